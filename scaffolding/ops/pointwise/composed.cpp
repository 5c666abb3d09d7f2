// Values are computed off the tape, and gradients are expressions of their own: those of the compositions would be NaN
// or 0 at infinities and kinks where the function's own is a number.
#include "scaffolding/ops/pointwise/composed.h"

#include <limits>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/pointwise/pointwise_internal.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

double largest(DType t) {
  return t == kFloat16    ? 65504.0
         : t == kBFloat16 ? 0x1.fep127
         : t == kFloat32  ? double(std::numeric_limits<float>::max())
                          : std::numeric_limits<double>::max();
}

// Both operands in the dtype they promote to, on the tape.
struct Pair {
  Tensor a, b;
};
// A number stays one beside a tensor of dimensions: it has more bits than 16. Beside a 0-d tensor it would widen that.
Tensor in_dtype(const Tensor& x, const Tensor& beside, DType t) {
  if (!x.impl()->is_scalar || beside.ndim() == 0 || !is_floating(t)) return to_dtype(x, t);
  return is_floating(x.dtype()) ? x : wrapped(x.item());  // a double: the logarithm of an integer would be a float
}
Pair pair_of(const char* op, const Tensor& a, const Tensor& b, bool float_only) {
  check_defined(op, "input", a);
  check_defined(op, "other", b);
  DType t = pointwise::prepare(op, a, b, float_only).dtype;
  return {in_dtype(a, b, t), in_dtype(b, a, t)};
}

// gradient(dy, a, b) gives those of a and b before broadcasting is undone.
template <class F> Tensor recorded(const char* op, const Tensor& y, const Pair& p, const F& gradient) {
  return autograd::record(op, y, {p.a, p.b},
                          [gradient, a = autograd::save(p.a), b = autograd::save(p.b)](const Tensor& dy) -> Tensors {
                            Tensor x = a.get(), z = b.get();
                            Pair g = gradient(dy, x, z);
                            return {sum_to(g.a, x.shape()), sum_to(g.b, z.shape())};
                          });
}

Tensor negative(const Tensor& x) {  // the sign bit of a number; -0 has it
  return logical_or(lt(x, wrapped(0)), logical_and(eq(x, wrapped(0)), lt(reciprocal(x), wrapped(0))));
}

Tensor extremum(const char* op, const Tensor& input, const Tensor& other, bool largest) {
  Pair p = pair_of(op, input, other, false);
  Tensor y = largest ? maximum(p.a, p.b) : minimum(p.a, p.b);
  if (!is_floating(y.dtype())) return y;
  return where(isnan(p.a), p.b, where(isnan(p.b), p.a, y));
}

}  // namespace

Tensor nan_to_num(const Tensor& input, std::optional<double> nan, std::optional<double> posinf,
                  std::optional<double> neginf) {
  check_defined("nan_to_num", "input", input);
  SF_CHECK_AS(TypeError, !is_float8(input.dtype()), "nan_to_num: ", input.dtype(),
              " is storage only; convert it to compute");
  if (!is_floating(input.dtype())) return clone(input);
  Tensor y;
  {
    autograd::NoGrad off;
    double most = largest(input.dtype());
    y = where(isnan(input), wrapped(nan.value_or(0.0)), input);
    y = where(eq(input, wrapped(kInf)), wrapped(posinf.value_or(most)), y);
    y = where(eq(input, wrapped(-kInf)), wrapped(neginf.value_or(-most)), y);
  }
  return autograd::record("nan_to_num", y, {input}, [x = autograd::save(input)](const Tensor& dy) -> Tensors {
    return {where(isfinite(x.get()), dy, wrapped(0.0))};
  });
}

Tensor hypot(const Tensor& input, const Tensor& other) {
  Pair p = pair_of("hypot", input, other, true);
  Tensor y;
  {
    autograd::NoGrad off;
    Tensor a = abs(p.a), b = abs(p.b), most = maximum(a, b), least = minimum(a, b);
    Tensor ratio = where(eq(least, wrapped(0.0)), wrapped(0.0), least / most);
    y = most * sqrt(ratio * ratio + 1);
    y = where(logical_or(isinf(a), isinf(b)), wrapped(kInf), y);
  }
  return recorded("hypot", y, p, [](const Tensor& dy, const Tensor& a, const Tensor& b) {
    Tensor rate = dy / hypot(a, b);
    return Pair{a * rate, b * rate};
  });
}

Tensor copysign(const Tensor& input, const Tensor& other) {
  Pair p = pair_of("copysign", input, other, true);
  Tensor y;
  {
    autograd::NoGrad off;
    Tensor size = abs(p.a);
    y = where(negative(p.b), -size, size);
  }
  return recorded("copysign", y, p, [](const Tensor& dy, const Tensor& a, const Tensor& b) {
    Tensor d = dy * sign(a);
    return Pair{where(negative(b), -d, d), zeros_like(dy)};
  });
}

Tensor heaviside(const Tensor& input, const Tensor& values) {
  check_defined("heaviside", "input", input);
  check_defined("heaviside", "values", values);
  SF_CHECK_AS(TypeError, values.impl()->is_scalar || values.dtype() == input.dtype(),
              "heaviside: values must have the dtype of input, ", input.dtype(), ", got ", values.dtype());
  autograd::NoGrad off;
  Tensor at_zero = in_dtype(values, input, input.dtype()), step = to_dtype(gt(input, wrapped(0)), input.dtype());
  return where(eq(input, wrapped(0)), at_zero, step);
}

Tensor logaddexp(const Tensor& input, const Tensor& other) {
  Pair p = pair_of("logaddexp", input, other, true);
  Tensor y;
  {
    autograd::NoGrad off;
    Tensor most = maximum(p.a, p.b);
    // of equal infinities the difference is NaN
    y = where(isinf(most), most, most + log1p(exp(-abs(p.a - p.b))));
  }
  return recorded("logaddexp", y, p, [](const Tensor& dy, const Tensor& a, const Tensor& b) {
    return Pair{dy * sigmoid(a - b), dy * sigmoid(b - a)};
  });
}

Tensor xlogy(const Tensor& input, const Tensor& other) {
  Pair p = pair_of("xlogy", input, other, true);
  Tensor y;
  {
    autograd::NoGrad off;
    y = where(logical_and(eq(p.a, wrapped(0)), logical_not(isnan(p.b))), wrapped(0.0), p.a * log(p.b));
  }
  return recorded("xlogy", y, p, [](const Tensor& dy, const Tensor& a, const Tensor& b) {
    Tensor nothing = logical_and(eq(a, wrapped(0)), le(b, wrapped(0)));
    return Pair{where(nothing, wrapped(0.0), xlogy(dy, b)), dy * a / b};
  });
}

Tensor fmax(const Tensor& input, const Tensor& other) { return extremum("fmax", input, other, true); }
Tensor fmin(const Tensor& input, const Tensor& other) { return extremum("fmin", input, other, false); }

SF_OP(nan_to_num, "input, nan=None, posinf=None, neginf=None")
    .doc("input with NaN and infinities replaced by numbers: 0 and the dtype's largest and smallest without others.")
    .inplace();
SF_OP(hypot, "input, other").doc("sqrt(input^2 + other^2) without overflow on the way.").inplace();
SF_OP(copysign, "input, other").doc("|input| with the sign of other; -0 has one.").inplace();
SF_OP(heaviside, "input, values")
    .doc("0 where input is below 0, 1 where it is above, values where it is 0.")
    .inplace()
    .no_gradient();
SF_OP(logaddexp, "input, other").doc("log(exp(input) + exp(other)) without overflow.");
SF_OP(xlogy, "input, other").doc("input * log(other), and 0 where input is 0.").inplace();
SF_OP(fmax, "input, other").doc("The larger of the two; the other one where one is NaN.");
SF_OP(fmin, "input, other").doc("The smaller of the two; the other one where one is NaN.");

}  // namespace sf
