#include "benchmarks/bench.h"
#include "scaffolding/ops/matmul/matmul.h"

namespace sf::bench {

static Rows matmul_rows([](std::vector<Row>& rows) {
  for (DType t : {kFloat32, kBFloat16})
    for (int64_t n : {1024, 2048, 4096}) {
      std::string size = std::to_string(n) + " " + short_name(t);
      double flop = 2.0 * double(n) * double(n) * double(n);
      Goal goal = share(t == kFloat32 ? 0.92 : 0.90);
      rows.push_back({"matmul " + size, roof_of(t), flop, goal, [=] {
                        return [a = random({n, n}, t), b = random({n, n}, t)] { keep(matmul(a, b)); };
                      }});
      // The weight needs no gradient: its packed copy is kept between calls, as in inference.
      rows.push_back({"linear " + size, roof_of(t), flop, goal, [=] {
                        return [x = random({n, n}, t), w = random({n, n}, t)] { keep(linear(x, w)); };
                      }});
    }
});

}  // namespace sf::bench
