#include "scaffolding/ops/index/index.h"

#include "benchmarks/bench.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/search/search.h"

namespace sf::bench {

static Rows index_rows([](std::vector<Row>& rows) {
  for (DType t : {kFloat32, kBFloat16})
    rows.push_back({"index_add [1024,1024] " + short_name(t), Roof::None, 0, speedup(1), [=] {
                      return [x = random({1024, 1024}, t), i = randperm(1024), y = Tensor()]() mutable {
                        y = index_add(x, 0, i, x);
                      };
                    }});
  rows.push_back({"bincount [1000000] int64", Roof::None, 0, speedup(1.5),
                  [] { return [x = randint(0, 1000, {1000000}), y = Tensor()]() mutable { y = bincount(x); }; }});
});

}  // namespace sf::bench
