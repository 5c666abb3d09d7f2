#include "scaffolding/ops/quantize/gguf_int8.h"

#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/quantize/int8_kernel.h"
#include "scaffolding/ops/quantize/int8_rows.h"

namespace sf {

constinit KernelTable<GgufInt8Product> gguf_int8_product{"gguf_int8_product"};

namespace {
constexpr int64_t kSummedCodes = 16;
}

Tensor linear_gguf_in_int8(const Tensor& input, const Tensor& weight, const Tensor& bias, const GgufFormat& f) {
  const char* op = "linear_gguf";
  const int64_t k = input.shape().back(), rows = input.numel() / k, n = weight.size(0), block = f.block;
  Shape out = input.shape();
  out.back() = n;
  if (input.device().is_meta()) return empty(out, input.dtype(), input.device());
  SF_CHECK_AS(NotSupported, input.device().is_cpu(), op, ": products with int8 activations are computed on the CPU, ",
              "got ", input.device(), "; leave dynamic out there");
  const Tensor x = contiguous(input.detach()), blocks = contiguous(weight);
  const Tensor codes = empty({rows, k}, kInt8), most = empty({rows * k / block}, kFloat32),
               sums = empty({rows, k / kSummedCodes}, kInt16), y = empty({rows, n}, kFloat32);
  quantize_rows_into(op, x.view({rows * k / block, block}), codes.view({rows * k / block, block}), most);
  parallel_for(sums.numel(), 4096, [&](int64_t begin, int64_t end) {
    const auto* from = static_cast<const int8_t*>(codes.data_ptr());
    auto* to = static_cast<int16_t*>(sums.data_ptr());
    for (int64_t i = begin; i < end; ++i) {
      int16_t sum = 0;
      for (int64_t j = 0; j < kSummedCodes; ++j) sum = int16_t(sum + from[i * kSummedCodes + j]);
      to[i] = sum;
    }
  });
  const Tensor scales = (most * double(float(kInt8Unit))).view({rows, k / block});
  const Tensor b = bias ? contiguous(to_dtype(bias.detach(), kFloat32)) : bias;
  GgufInt8Product p{codes, scales, sums, blocks, {}, y, *f.blocks};
  if (b) p.bias = b;
  auto kernel = gguf_int8_product.find(input.device(), p);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for int8 activations on ", input.device());
  kernel(p);
  return to_dtype(y, input.dtype()).view(out);
}

}  // namespace sf
