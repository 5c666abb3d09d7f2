#include "benchmarks/bench.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::bench {

static Rows pointwise_rows([](std::vector<Row>& rows) {
  for (DType t : {kFloat32, kBFloat16})
    rows.push_back(
        {"gelu [8192,2560] " + short_name(t), Roof::Copy, 2.0 * 8192 * 2560 * double(size_of(t)), share(0.75), [=] {
           return [x = random({8192, 2560}, t), y = Tensor()]() mutable { y = gelu(x); };
         }});
});

}  // namespace sf::bench
