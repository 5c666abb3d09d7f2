#include "benchmarks/bench.h"
#include "scaffolding/ops/quantize/gguf.h"

namespace sf::bench {

// Many rows: a product at the rate of the activations' dtype, since blocks are decoded once for all rows; with int8
// activations ("int8") at that of integers, beside which scales of blocks are multiplied. Few rows: as fast as the
// blocks are read; so many weights in turn that no cache holds them.
static Rows gguf_rows([](std::vector<Row>& rows) {
  constexpr int64_t n = 4096;
  for (const char* format : {"Q8_0", "Q4_0", "Q4_K", "Q6_K"}) {
    const std::string name = format;
    for (DType t : {kFloat32, kBFloat16})
      rows.push_back({"linear_gguf 4096 " + name + " " + short_name(t), roof_of(t), 2.0 * n * n * n, share(0.8), [=] {
                        const Tensor w = quantize_gguf(random({n, n}, kFloat32), name);
                        return [=, x = random({n, n}, t)] { keep(linear_gguf(x, w, {}, name)); };
                      }});
    const Goal of_integers = name.ends_with("_K") ? share_of_int8(0.5, 0.35) : share_of_int8(0.6, 0.4);
    rows.push_back({"linear_gguf 4096 " + name + " int8", Roof::Int8, 2.0 * n * n * n, of_integers, [=] {
                      const Tensor w = quantize_gguf(random({n, n}, kFloat32), name);
                      return [=, x = random({n, n}, kFloat32)] { keep(linear_gguf(x, w, {}, name, "none", {}, true)); };
                    }});
  }
  for (const char* format :
       {"Q8_0", "Q4_0", "Q4_K", "Q6_K", "Q2_K", "Q3_K", "Q5_K", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL"}) {
    const std::string name = format;
    for (bool dynamic : {false, true})
      for (int64_t m : {1, 4, 16}) {
        const GgufFormat& f = gguf_blocks("bench", name);
        const double bytes = double(n * n / f.block * f.bytes);
        rows.push_back({"linear_gguf " + std::to_string(m) + " x 4096 " + name + (dynamic ? " int8" : ""), Roof::Copy,
                        bytes, share(0.7), [=] {
                          Tensors weights;
                          for (int i = 0; i < 8; ++i) weights.push_back(quantize_gguf(random({n, n}, kFloat32), name));
                          return [=, x = random({m, n}, kFloat32), i = size_t(0)]() mutable {
                            keep(linear_gguf(x, weights[i++ % weights.size()], {}, name, "none", {}, dynamic));
                          };
                        }});
      }
  }
});

}  // namespace sf::bench
