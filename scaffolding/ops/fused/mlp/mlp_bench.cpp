#include "benchmarks/bench.h"
#include "scaffolding/ops/fused/mlp/mlp.h"
#include "scaffolding/ops/reduce/reduce.h"

namespace sf::bench {

static Rows mlp_rows([](std::vector<Row>& rows) {
  constexpr int64_t m = 512, width = 384, hidden = 1536;
  // Two products, and two for the gradients of each.
  for (DType t : {kFloat32, kBFloat16})
    rows.push_back({"mlp 512x384-1536-384 gelu_tanh, with gradients " + short_name(t),
                    roof_of(t),
                    6 * 2.0 * double(m * width * hidden),
                    {},
                    [=] {
                      return [x = random({m, width}, t, true), w1 = random({hidden, width}, t, true),
                              b1 = random({hidden}, t, true), w2 = random({width, hidden}, t, true),
                              b2 = random({width}, t, true)] { sum(mlp(x, w1, b1, w2, b2)).backward(); };
                    }});
});

}  // namespace sf::bench
