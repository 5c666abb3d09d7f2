#include "benchmarks/bench.h"
#include "scaffolding/ops/layer_norm/layer_norm.h"

namespace sf::bench {

static Rows layer_norm_rows([](std::vector<Row>& rows) {
  for (DType t : {kFloat32, kBFloat16})
    rows.push_back(
        {"layer_norm [8192,640] " + short_name(t), Roof::Copy, 2.0 * 8192 * 640 * double(size_of(t)), share(0.75), [=] {
           return [x = random({8192, 640}, t), w = random({640}, t), b = random({640}, t), y = Tensor()]() mutable {
             y = layer_norm(x, {640}, w, b);
           };
         }});
});

}  // namespace sf::bench
