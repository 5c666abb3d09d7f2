#include "scaffolding/ops/softmax/softmax.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/softmax/kernel.h"

namespace sf {

constinit KernelTable<SoftmaxForward> softmax_forward{"softmax"};
constinit KernelTable<SoftmaxBackward> softmax_backward{"softmax_backward"};

static Tensor softmax_rows(const char* op, const Tensor& input, int64_t dim, std::optional<DType> dtype, bool log) {
  check_defined(op, "input", input);
  int64_t d = wrap_dim(op, dim, input.ndim());
  Tensor x = dtype ? to_dtype(input, *dtype) : input;
  check_floating(op, "input", x);
  if (x.ndim() == 0) return softmax_rows(op, x.reshape({1}), 0, {}, log).reshape({});
  if (d != x.ndim() - 1) return softmax_rows(op, x.transpose(d, -1), -1, {}, log).transpose(d, -1);
  Tensor dense;
  {
    autograd::NoGrad off;
    dense = contiguous(x);
  }
  Tensor y = empty(x.shape(), x.dtype(), x.device());
  SoftmaxForward f{dense, y, 1, log};
  auto kernel = softmax_forward.find(x.device(), f);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", x.dtype(), " on ", x.device());
  if (y.numel() > 0) kernel(f);
  return autograd::record(op, y, {x}, [log](const Tensor& dy, const Tensor& y) -> Tensors {
    if (autograd::grad_enabled()) {
      if (log) return {dy - exp(y) * dy.sum({-1}, true)};
      Tensor weighted = y * dy;
      return {weighted - y * weighted.sum({-1}, true)};
    }
    Tensor dx = empty(y.shape(), y.dtype(), y.device());
    Tensor g = contiguous(dy);
    SoftmaxBackward b{y, g, dx, 1, log};
    if (dx.numel() > 0) softmax_backward.find(y.device(), b)(b);
    return {dx};
  });
}

Tensor softmax(const Tensor& input, int64_t dim, std::optional<DType> dtype) { return softmax_rows("softmax", input, dim, dtype, false); }
Tensor log_softmax(const Tensor& input, int64_t dim, std::optional<DType> dtype) { return softmax_rows("log_softmax", input, dim, dtype, true); }

SF_OP(softmax, "input, dim, dtype=None").doc("exp(input) normalised to sum 1 along dim.").kernels(softmax_forward, softmax_backward);
SF_OP(log_softmax, "input, dim, dtype=None").doc("The logarithm of softmax, computed without overflow.").kernels(softmax_forward, softmax_backward);

}  // namespace sf
