#include "scaffolding/ops/quantize/gguf_int8.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/quantize/int8_codes.h"
#include "scaffolding/ops/quantize/int8_rows.h"

namespace sf {

constinit KernelTable<GgufInt8Product> gguf_int8_product{"gguf_int8_product"};

namespace {

constexpr int64_t kSummedCodes = 16;

// n numbers in blocks: their codes, a scale for each block, a sum for each 16. Whether all are finite.
bool to_int8_blocks(const float* x, int64_t n, int64_t block, int8_t* codes, float* scales, int16_t* sums) {
  bool finite = true;
  for (int64_t at = 0; at < n; at += block) {
    const float largest = largest_magnitude(x + at, block), by = code_factor(largest);
    finite &= !std::isnan(largest);
    to_codes(x + at, block, finite ? by : 0, codes + at);
    scales[at / block] = largest * float(kInt8Unit);
    for (int64_t i = at; i < at + block; i += kSummedCodes) {
      int sum = 0;
      for (int64_t j = i; j < i + kSummedCodes; ++j) sum += codes[j];
      sums[i / kSummedCodes] = int16_t(sum);
    }
  }
  return finite;
}

}  // namespace

Tensor linear_gguf_in_int8(const Tensor& input, const Tensor& weight, const Tensor& bias, const GgufFormat& f) {
  const char* op = "linear_gguf";
  const int64_t k = input.shape().back(), rows = input.numel() / k, n = weight.size(0), block = f.block;
  Shape out = input.shape();
  out.back() = n;
  if (input.device().is_meta()) return empty(out, input.dtype(), input.device());
  SF_CHECK_AS(NotSupported, input.device().is_cpu(), op, ": products with int8 activations are computed on the CPU, ",
              "got ", input.device(), "; leave dynamic out there");
  const Tensor x = contiguous(to_dtype(input.detach(), kFloat32)), blocks = contiguous(weight);
  const Tensor codes = empty({rows, k}, kInt8), scales = empty({rows, k / block}, kFloat32),
               sums = empty({rows, k / kSummedCodes}, kInt16), y = empty({rows, n}, kFloat32);
  std::atomic<bool> finite = true;
  parallel_for(rows, std::max<int64_t>(1, 16384 / k), [&](int64_t begin, int64_t end) {
    const int64_t at = begin * k;
    if (!to_int8_blocks(static_cast<const float*>(x.data_ptr()) + at, (end - begin) * k, block,
                        static_cast<int8_t*>(codes.data_ptr()) + at,
                        static_cast<float*>(scales.data_ptr()) + at / block,
                        static_cast<int16_t*>(sums.data_ptr()) + at / kSummedCodes))
      finite.store(false, std::memory_order_relaxed);
  });
  SF_CHECK(finite, op, ": input has numbers that are not finite");
  const Tensor b = bias ? contiguous(to_dtype(bias.detach(), kFloat32)) : bias;
  GgufInt8Product p{codes, scales, sums, blocks, {}, y, *f.blocks};
  if (b) p.bias = b;
  auto kernel = gguf_int8_product.find(input.device(), p);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for int8 activations on ", input.device());
  kernel(p);
  return to_dtype(y, input.dtype()).view(out);
}

}  // namespace sf
