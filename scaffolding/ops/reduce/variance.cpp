// var, std, var_mean, std_mean: the mean in float64 first, then the squares of the deviations from it.
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

namespace {

struct Moments {
  Tensor var, mean;  // float64 while `mean` is kept, both in the result's shape
  Dims dims;
  double divisor;  // count - correction, at least 0
};

Moments moments(const char* op, const Tensor& x, const Shape& dim, const Scalar& correction, bool keepdim,
                std::optional<bool> unbiased, DType t) {
  Moments m{{}, {}, dims_of(op, x, dim, keepdim), 0};
  double taken = unbiased ? double(*unbiased) : correction.to_double();
  m.divisor = std::max(0.0, double(m.dims.count) - taken);
  m.mean = reduction::run(op, Reduction::Sum, x, m.dims, kFloat64, 0, double(m.dims.count));
  m.var = reduction::run(op, Reduction::SquareDeviation, x, m.dims, t, 0, m.divisor, m.mean);
  return m;
}
void check_real(const char* op, const Tensor& x) {
  check_defined(op, "input", x);
  check_floating(op, "input", x);
}

// d var / dx = 2 (x - mean) / divisor.
Tensor var_gradient(const Tensor& dy, const Tensor& x, const Dims& d, double divisor) {
  Tensor centred = x - mean(x, d.reduced, true);
  return centred * (dy.reshape(d.kept) * (2 / divisor));
}
// d std / dx = d var / (2 std); 0 where std is 0.
Tensor std_gradient(const Tensor& dy, const Tensor& y, const Tensor& x, const Dims& d, double divisor) {
  return var_gradient(masked_fill(dy / (y * 2.0), eq(y, wrapped(0.0)), 0.0), x, d, divisor);
}
Tensor mean_gradient(const Tensor& dy, const Dims& d, const Shape& full) {
  return reduction::spread(dy / double(d.count), d, full);
}

std::tuple<Tensor, Tensor> with_mean(const char* op, const Tensor& input, const Shape& dim, const Scalar& correction,
                                     bool keepdim, std::optional<bool> unbiased, bool root) {
  check_real(op, input);
  Moments m = moments(op, input, dim, correction, keepdim, unbiased,
                      root && is_reduced(input.dtype()) ? kFloat32 : input.dtype());
  {
    autograd::NoGrad off;
    if (root) m.var = to_dtype(sqrt(m.var), input.dtype());
  }
  Tensors ys{m.var, to_dtype(m.mean, input.dtype())};
  autograd::record_outputs(
      op, ys, {input},
      [d = m.dims, divisor = m.divisor, root, y = root ? autograd::save(ys[0].detach()) : autograd::Saved(),
       x = autograd::save(input)](const Tensors& dys) -> Tensors {
        Tensor v = x.get(), dx;
        if (dys[0] && root) {
          // Under create_graph the root is taken anew, so that it is on the tape.
          Tensor s = autograd::grad_enabled()
                         ? sqrt(var(v, d.reduced, double(d.count) - divisor, true)).reshape(d.result)
                         : y.get();
          dx = std_gradient(dys[0], s, v, d, divisor);
        } else if (dys[0]) {
          dx = var_gradient(dys[0], v, d, divisor);
        }
        if (!dys[1]) return {dx};
        Tensor g = mean_gradient(dys[1], d, v.shape());
        return {dx ? dx + g : g};
      });
  return {ys[0], ys[1]};
}

}  // namespace

Tensor var(const Tensor& input, const Shape& dim, const Scalar& correction, bool keepdim,
           std::optional<bool> unbiased) {
  check_real("var", input);
  Moments m = moments("var", input, dim, correction, keepdim, unbiased, input.dtype());
  return autograd::record("var", m.var, {input},
                          [d = m.dims, divisor = m.divisor, x = autograd::save(input)](const Tensor& dy) -> Tensors {
                            return {var_gradient(dy, x.get(), d, divisor)};
                          });
}

Tensor std(const Tensor& input, const Shape& dim, const Scalar& correction, bool keepdim,
           std::optional<bool> unbiased) {
  check_real("std", input);
  Moments m =
      moments("std", input, dim, correction, keepdim, unbiased, is_reduced(input.dtype()) ? kFloat32 : input.dtype());
  {
    autograd::NoGrad off;
    m.var = to_dtype(sqrt(m.var), input.dtype());
  }
  return autograd::record(
      "std", m.var, {input},
      [d = m.dims, divisor = m.divisor, x = autograd::save(input)](const Tensor& dy, const Tensor& y) -> Tensors {
        return {std_gradient(dy, y, x.get(), d, divisor)};
      });
}

std::tuple<Tensor, Tensor> var_mean(const Tensor& input, const Shape& dim, const Scalar& correction, bool keepdim,
                                    std::optional<bool> unbiased) {
  return with_mean("var_mean", input, dim, correction, keepdim, unbiased, false);
}
std::tuple<Tensor, Tensor> std_mean(const Tensor& input, const Shape& dim, const Scalar& correction, bool keepdim,
                                    std::optional<bool> unbiased) {
  return with_mean("std_mean", input, dim, correction, keepdim, unbiased, true);
}

#define SF_VARIANCE(fn, text)                                                                              \
  SF_OP(fn, "input, dim=None, correction=1, keepdim=False, unbiased=None")                                 \
      .doc(text)                                                                                           \
      .like("torch." #fn                                                                                   \
            "(input, dim, correction=correction if unbiased is None else int(unbiased), keepdim=keepdim)") \
      .kernels(reduce_kernel);
SF_VARIANCE(var, "Variance over dim (all without it): the sum of squared deviations over (count - correction).")
SF_VARIANCE(std, "Standard deviation over dim (all without it), the square root of var.")
SF_VARIANCE(var_mean, "var and mean over dim.")
SF_VARIANCE(std_mean, "std and mean over dim.")

}  // namespace sf
