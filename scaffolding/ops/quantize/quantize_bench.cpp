#include "benchmarks/bench.h"
#include "scaffolding/ops/quantize/fp8.h"
#include "scaffolding/ops/quantize/nf4.h"

namespace sf::bench {

// Half a byte read and two written for each element; one and two for float8.
static Rows quantize_rows([](std::vector<Row>& rows) {
  constexpr int64_t n = 2048;
  rows.push_back({"dequantize_nf4 2048 bf16", Roof::Copy, 2.5 * n * n, {}, [] {
                    auto [codes, absmax] = quantize_nf4(random({n, n}, kFloat32));
                    return [codes = codes, absmax = absmax, y = Tensor()]() mutable {
                      keep(y = dequantize_nf4(codes, absmax, {n, n}, kBFloat16));
                    };
                  }});
  rows.push_back({"dequantize_fp8 2048 bf16", Roof::Copy, 3.0 * n * n, {}, [] {
                    auto [q, scale] = quantize_fp8(random({n, n}, kFloat32), {}, true);
                    return [q = q, scale = scale, y = Tensor()]() mutable {
                      keep(y = dequantize_fp8(q, scale, kBFloat16));
                    };
                  }});
});

}  // namespace sf::bench
