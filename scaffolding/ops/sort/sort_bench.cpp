#include "scaffolding/ops/sort/sort.h"

#include "benchmarks/bench.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/order/order.h"
#include "scaffolding/ops/random/random.h"

namespace sf::bench {

static Rows sort_rows([](std::vector<Row>& rows) {
  rows.push_back({"sort [1000000] int64", Roof::None, 0, speedup(2), [] {
                    return [x = randint(0, 1000, {1000000}), y = Tensor()]() mutable { y = std::get<0>(sort(x)); };
                  }});
  for (DType t : {kFloat32, kBFloat16}) {
    rows.push_back({"topk 10 of [1024,1024] " + short_name(t), Roof::None, 0, speedup(2), [=] {
                      return [x = random({1024, 1024}, t), y = Tensor()]() mutable { y = std::get<0>(topk(x, 10)); };
                    }});
    rows.push_back(
        {"median of [1024,1024] " + short_name(t), Roof::None, 0, speedup(2), [=] {
           return [x = random({1024, 1024}, t), y = Tensor()]() mutable { y = std::get<0>(median_dim(x, 1)); };
         }});
  }
});

}  // namespace sf::bench
