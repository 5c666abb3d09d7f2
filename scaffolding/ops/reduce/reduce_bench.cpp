#include "scaffolding/ops/reduce/reduce.h"

#include "benchmarks/bench.h"

namespace sf::bench {

static Rows reduce_rows([](std::vector<Row>& rows) {
  for (DType t : {kFloat32, kBFloat16}) {
    rows.push_back({"cumsum [1024,1024] " + short_name(t), Roof::None, 0, speedup(1.5), [=] {
                      return [x = random({1024, 1024}, t), y = Tensor()]() mutable { y = cumsum(x, 1); };
                    }});
    rows.push_back({"max of rows [1024,1024] " + short_name(t), Roof::None, 0, speedup(1.5), [=] {
                      return [x = random({1024, 1024}, t), y = Tensor()]() mutable { y = std::get<0>(max_dim(x, 1)); };
                    }});
  }
});

}  // namespace sf::bench
