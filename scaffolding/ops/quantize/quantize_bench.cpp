#include "benchmarks/bench.h"
#include "scaffolding/ops/quantize/fp8.h"
#include "scaffolding/ops/quantize/half_rows.h"
#include "scaffolding/ops/quantize/int8_rows.h"
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
  // A product at the rate of the activations' dtype, since codes are decoded once for all rows; int8's sums at that of
  // integers.
  constexpr int64_t wide = 4096;
  for (DType t : {kFloat32, kBFloat16})
    rows.push_back(
        {std::string("linear_nf4 4096 ") + short_name(t), roof_of(t), 2.0 * wide * wide * wide, share(0.8), [=] {
           auto [codes, absmax] = quantize_nf4(random({wide, wide}, kFloat32));
           return [=, codes = codes, absmax = absmax, x = random({wide, wide}, t)] {
             keep(linear_nf4(x, codes, absmax, {}, {}, {}, wide));
           };
         }});
  for (bool dynamic : {false, true})
    rows.push_back({dynamic ? "linear_int8 4096 dynamic" : "linear_int8 4096", dynamic ? Roof::Int8 : Roof::F32,
                    2.0 * wide * wide * wide, dynamic ? share_of_int8(0.85, 0.5) : share(0.8), [=] {
                      auto [codes, scale] = quantize_int8(random({wide, wide}, kFloat32));
                      return [=, codes = codes, scale = scale, x = random({wide, wide}, kFloat32)] {
                        keep(linear_int8(x, codes, scale, {}, kInt8Unit, dynamic));
                      };
                    }});
  // Few rows: as fast as the codes are read.
  for (int64_t m : {1, 4, 16})
    rows.push_back({"linear_nf4 " + std::to_string(m) + " x 4096", Roof::Copy, wide * wide * 0.5625, share(0.7), [=] {
                      std::vector<std::tuple<Tensor, Tensor>> weights;
                      for (int i = 0; i < 8; ++i) weights.push_back(quantize_nf4(random({wide, wide}, kFloat32)));
                      return [=, x = random({m, wide}, kFloat32), i = size_t(0)]() mutable {
                        const auto& [codes, absmax] = weights[i++ % weights.size()];
                        keep(linear_nf4(x, codes, absmax, {}, {}, {}, wide));
                      };
                    }});
  for (bool dynamic : {false, true})
    for (int64_t m : {1, 4, 16})
      rows.push_back({"linear_int8 " + std::to_string(m) + " x 4096" + (dynamic ? " dynamic" : ""), Roof::Copy,
                      double(wide * wide), share(0.7), [=] {
                        Tensors weights, scales;
                        for (int i = 0; i < 8; ++i) {
                          auto [codes, scale] = quantize_int8(random({wide, wide}, kFloat32));
                          weights.push_back(codes), scales.push_back(scale);
                        }
                        return [=, x = random({m, wide}, kFloat32), i = size_t(0)]() mutable {
                          const size_t at = i++ % weights.size();
                          keep(linear_int8(x, weights[at], scales[at], {}, kInt8Unit, dynamic));
                        };
                      }});
  rows.push_back(
      {"linear_half 4096 f16", Roof::F32, 2.0 * wide * wide * wide, share(0.8), [] {
         return [w = random({wide, wide}, kFloat16), x = random({wide, wide}, kFloat32)] { keep(linear_half(x, w)); };
       }});
});

}  // namespace sf::bench
