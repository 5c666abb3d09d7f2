#include "scaffolding/ops/softmax/softmax.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/softmax/kernel.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<SoftmaxForward> softmax_forward{"softmax"};
constinit KernelTable<SoftmaxBackward> softmax_backward{"softmax_backward"};

namespace {

Tensor gradient(const Tensor& dy, const Tensor& y, bool log) {
  if (autograd::grad_enabled()) {  // as ops, for derivatives of derivatives
    if (log) return dy - exp(y) * sum(dy, {-1}, true);
    return y * (dy - sum(y * dy, {-1}, true));
  }
  Tensor g = contiguous(dy), dx = empty(y.shape(), y.dtype(), y.device());
  SoftmaxBackward b{y, g, dx, 1, log};
  auto kernel = softmax_backward.find(y.device(), b);
  SF_CHECK_AS(NotSupported, kernel, "softmax_backward: no kernel for ", y.dtype(), " on ", y.device());
  kernel(b);
  return dx;
}

Tensor over_last(const char* op, const Tensor& x, bool log) {
  Tensor y = empty(x.shape(), x.dtype(), x.device());
  SoftmaxForward f{x, y, 1, log};
  auto kernel = softmax_forward.find(x.device(), f);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", x.dtype(), " on ", x.device());
  if (y.numel() > 0) kernel(f);
  return autograd::record(op, y, {x}, [log](const Tensor& dy, const Tensor& y) -> Tensors {
    return {y.numel() > 0 ? gradient(dy, y, log) : dy};
  });
}

Tensor along(const char* op, const Tensor& input, int64_t dim, std::optional<DType> dtype, bool log) {
  check_defined(op, "input", input);
  Tensor x = dtype ? to_dtype(input, *dtype) : input;
  check_floating(op, "input", x);
  dim = wrap_dim(op, dim, x.ndim());
  if (x.ndim() == 0) return over_last(op, x.reshape({1}), log).reshape({});
  int64_t last = x.ndim() - 1;
  if (dim == last) return over_last(op, contiguous(x), log);
  return over_last(op, contiguous(x.transpose(dim, last)), log).transpose(dim, last);
}

}  // namespace

Tensor softmax(const Tensor& input, int64_t dim, std::optional<DType> dtype) {
  SF_AUTOCAST(softmax, input, dim, dtype);
  return along("softmax", input, dim, dtype, false);
}
Tensor log_softmax(const Tensor& input, int64_t dim, std::optional<DType> dtype) {
  SF_AUTOCAST(log_softmax, input, dim, dtype);
  return along("log_softmax", input, dim, dtype, true);
}

SF_OP(softmax, "input, dim, dtype=None")
    .doc("exp(input) / sum(exp(input)) along dim.")
    .like("torch.softmax")
    .kernels(softmax_forward, softmax_backward);
SF_OP(log_softmax, "input, dim, dtype=None")
    .doc("log(softmax(input)) along dim, without overflow.")
    .like("torch.log_softmax")
    .kernels(softmax_forward, softmax_backward);

}  // namespace sf
