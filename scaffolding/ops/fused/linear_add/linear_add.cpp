#include "scaffolding/ops/fused/linear_add/linear_add.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/fused/linear_add/kernel.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
using autograd::save;

constinit KernelTable<LinearAdd> linear_add_kernel{"linear_add"};

Tensor linear_add(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& residual) {
  const char* op = "linear_add";
  check_defined(op, "input", input);
  check_defined(op, "weight", weight);
  check_defined(op, "residual", residual);
  SF_CHECK(input.ndim() >= 1 && weight.ndim() == 2, op, ": needs input [..., K] and weight [N, K], got ", input.shape(),
           " and ", weight.shape());
  Shape out = input.shape();
  out.back() = weight.size(0);
  check_shape(op, "residual", residual, out);
  check_same_device(op, input, residual);
  auto composed = [&] { return residual + linear(input, weight, bias); };
  const DType dtype = input.dtype();
  const bool one_type = weight.dtype() == dtype && residual.dtype() == dtype && (!bias || bias.dtype() == dtype);
  if (!input.device().is_cuda() || autocast::active() || !one_type || !is_floating(dtype) || input.numel() == 0 ||
      residual.numel() == 0)
    return composed();
  SF_CHECK(input.shape().back() == weight.size(1), op, ": the last size of input ", input.shape(),
           " must be weight's second, ", weight.size(1));
  check_shape(op, "bias", bias, {weight.size(0)});
  check_same_device(op, input, weight);
  check_same_device(op, input, bias);
  const int64_t n = weight.size(0), k = weight.size(1), rows = residual.numel() / n;
  Tensor y;
  {
    autograd::NoGrad off;
    y = empty(out, dtype, input.device());
    // held until the kernel has run: they are copies where memory lies otherwise
    const Tensor x = input.reshape({1, rows, k}), r = residual.reshape({1, rows, n}),
                 b = bias ? contiguous(bias) : bias;
    LinearAdd args{x, weight.t().unsqueeze(0), b, r, y.view({1, rows, n})};
    auto kernel = linear_add_kernel.find(input.device(), args);
    if (!kernel) y = {};
    else kernel(args);
  }
  if (!y) return composed();
  return autograd::record(op, y, {input, weight, bias, residual},
                          [x = save(input), w = save(weight), nx = input.requires_grad(), nw = weight.requires_grad(),
                           nb = bias.requires_grad(), nr = residual.requires_grad()](const Tensor& dy) -> Tensors {
                            Tensors g = linear_gradients(dy, nw ? x.get() : Tensor(), nx ? w.get() : Tensor(), nb);
                            return {g[0], g[1], g[2], nr ? dy : Tensor()};
                          });
}

SF_OP(linear_add, "input, weight, bias, residual")
    .doc(
        "residual + input[..., K] @ weight[N, K]^T + bias[N], in the product's own pass where a kernel adds it there. "
        "bias may be None.")
    .like("residual + F.linear(input, weight, bias)")
    .kernels(linear_add_kernel, gemm);

}  // namespace sf
