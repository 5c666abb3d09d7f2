#include "benchmarks/bench.h"
#include "scaffolding/ops/softmax/softmax.h"

namespace sf::bench {

static Rows softmax_rows([](std::vector<Row>& rows) {
  for (DType t : {kFloat32, kBFloat16})
    rows.push_back({"softmax [20,1024,1024] " + short_name(t), Roof::Copy, 2.0 * 20 * 1024 * 1024 * double(size_of(t)),
                    share(0.75), [=] {
                      return [x = random({20, 1024, 1024}, t), y = Tensor()]() mutable { y = softmax(x, -1); };
                    }});
});

}  // namespace sf::bench
