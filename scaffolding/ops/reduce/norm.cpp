// norm, vector_norm and logsumexp.
#include <cmath>

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/reduce/reduce_internal.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

using reduction::Dims;
using reduction::dims_of;
using reduction::spread;

namespace {

// y = norm of x over d, both as they were; 0 where the norm is 0, as torch. Formulas: with r = dy / y^(p-1),
// dx = sign(x) |x|^(p-1) r.
Tensor norm_gradient(const Tensor& dy, const Tensor& y, const Tensor& x, double p, const Dims& d) {
  Tensor g = dy.reshape(d.kept), n = y.reshape(d.kept);
  if (p == 0) return mul(zeros_like(x), g);
  if (p == 1) return sign(x) * g;
  if (std::isinf(p)) {
    Tensor chosen = eq(abs(x), n), share = g / sum(chosen, d.reduced, true);
    return where(chosen, sign(x) * share, wrapped(0.0));
  }
  Tensor none = eq(n, wrapped(0.0));
  if (p == 2) return x * masked_fill(g / n, none, 0.0);
  Tensor rate = masked_fill(g * pow(n, wrapped(1 - p)), none, 0.0);
  Tensor powers = pow(abs(x), wrapped(p - 1));
  if (p < 2) powers = masked_fill(powers, eq(x, wrapped(0.0)), 0.0);
  return sign(x) * powers * rate;
}

Tensor norm_of(const char* op, const Tensor& input, double p, const Shape& dim, bool keepdim,
               std::optional<DType> dtype) {
  check_defined(op, "input", input);
  SF_CHECK_AS(TypeError, is_floating(dtype.value_or(input.dtype())), op, ": needs a floating-point dtype, got ",
              dtype.value_or(input.dtype()));
  SF_CHECK(!std::isnan(p), op, ": the order must be a number, got NaN");
  Tensor x = dtype ? to_dtype(input, *dtype) : input;
  bool neutral = !(std::isinf(p) || p < 0);
  Dims d = dims_of(op, x, dim, keepdim, !neutral);
  Reduction what = p == 0          ? Reduction::NonzeroSum
                   : p == 1        ? Reduction::AbsSum
                   : p == 2        ? Reduction::SquareSum
                   : std::isinf(p) ? (p > 0 ? Reduction::AbsMax : Reduction::AbsMin)
                                   : Reduction::PowerSum;
  bool rooted = what == Reduction::SquareSum || what == Reduction::PowerSum;
  Tensor y = reduction::run(op, what, x, d, rooted ? kFloat64 : x.dtype(), p);
  if (rooted) {
    autograd::NoGrad off;
    y = to_dtype(p == 2 ? sqrt(y) : pow(y, wrapped(1 / p)), x.dtype());
  }
  return autograd::record(op, y, {x}, [p, d, x = autograd::save(x)](const Tensor& dy, const Tensor& y) -> Tensors {
    return {norm_gradient(dy, y, x.get(), p, d)};
  });
}

}  // namespace

Tensor norm(const Tensor& input, double p, const Shape& dim, bool keepdim, std::optional<DType> dtype) {
  SF_AUTOCAST(norm, input, p, dim, keepdim, dtype);
  return norm_of("norm", input, p, dim, keepdim, dtype);
}
Tensor vector_norm(const Tensor& input, double ord, const Shape& dim, bool keepdim, std::optional<DType> dtype) {
  SF_AUTOCAST(vector_norm, input, ord, dim, keepdim, dtype);
  return norm_of("vector_norm", input, ord, dim, keepdim, dtype);
}

Tensor logsumexp(const Tensor& input, const Shape& dim, bool keepdim) {
  SF_AUTOCAST(logsumexp, input, dim, keepdim);
  check_defined("logsumexp", "input", input);
  Tensor x = is_floating(input.dtype()) ? input : to_dtype(input, default_dtype());
  Dims d = dims_of("logsumexp", x, dim, keepdim);
  Tensor y;
  {
    autograd::NoGrad off;
    Tensor top = reduction::run("logsumexp", Reduction::Max, x, d, kFloat64);
    top = where(isfinite(top), top, wrapped(0.0));  // exp(inf - inf) would be NaN
    y = to_dtype(log(reduction::run("logsumexp", Reduction::ExpDeviation, x, d, kFloat64, 0, 1, top)) + top, x.dtype());
  }
  return autograd::record("logsumexp", y, {x},
                          [d, x = autograd::save(x)](const Tensor& dy, const Tensor& y) -> Tensors {
                            Tensor v = x.get();
                            return {spread(dy, d, v.shape()) * exp(v - spread(y, d, v.shape()))};
                          });
}

SF_OP(norm, "input, p=2.0, dim=None, keepdim=False, dtype=None")
    .doc("(sum |input|^p)^(1/p) over dim (all without it); p may be 0, inf or -inf.")
    .like("torch.linalg.vector_norm(input, p, dim, keepdim, dtype=dtype)")
    .kernels(reduce_kernel);
SF_OP(vector_norm, "input, ord=2.0, dim=None, keepdim=False, dtype=None")
    .doc("The norm of input as a vector, over dim (all without it); ord may be 0, inf or -inf.")
    .like("torch.linalg.vector_norm")
    .kernels(reduce_kernel);
SF_OP(logsumexp, "input, dim, keepdim=False")
    .doc("log(sum(exp(input))) over dim, without overflow.")
    .kernels(reduce_kernel);

}  // namespace sf
