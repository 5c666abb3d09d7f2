#include "scaffolding/ops/pointwise/pointwise.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/expr.h"
#include "scaffolding/ops/pointwise/pointwise_internal.h"
#include "scaffolding/ops/pointwise/trace.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

#define SF_UNARY(name, ...) constinit PointwiseTable name##_forward{#name}, name##_backward{#name "_backward"};
#define SF_UNARY_P SF_UNARY
#define SF_BINARY(name, ...) constinit PointwiseTable name##_forward{#name, true};
#define SF_BINARY_P SF_BINARY
#define SF_COMPARE(name, ...) constinit PointwiseTable name##_forward{#name};
#include "scaffolding/ops/pointwise/binary.def"
#include "scaffolding/ops/pointwise/compare.def"
#include "scaffolding/ops/pointwise/unary.def"
#undef SF_UNARY
#undef SF_UNARY_P
#undef SF_BINARY
#undef SF_BINARY_P
#undef SF_COMPARE

Tensor wrapped(const Scalar& s) {
  Tensor t = empty({}, s.is_float() ? kFloat64 : s.dtype(), Device());  // full precision; the dtype does not count
  if (s.is_float()) *t.data<double>() = s.to_double();
  else if (s.kind() == Scalar::Int) *t.data<int64_t>() = s.to_int();
  else *t.data<bool>() = s.to_bool();
  t.impl()->is_scalar = true;
  return t;
}

// Categories, lowest first: tensors with dimensions, 0-d tensors, numbers. A lower category only decides the kind
// (bool < integer < floating), never the width.
DType result_type(const Tensor& a, const Tensor& b) {
  auto rank = [](const Tensor& t) { return t.impl()->is_scalar ? 2 : t.ndim() == 0 ? 1 : 0; };
  auto kind = [](DType t) { return t == kBool ? 0 : is_floating(t) ? 2 : 1; };
  int ra = rank(a), rb = rank(b);
  if (ra == 2 && rb == 2) {  // two numbers
    DType t = kind(a.dtype()) >= kind(b.dtype()) ? a.dtype() : b.dtype();
    return t == kFloat64 ? default_dtype() : t;
  }
  if (ra == rb) return promote(a.dtype(), b.dtype());
  const Tensor &strong = ra < rb ? a : b, &weak = ra < rb ? b : a;
  if (kind(weak.dtype()) <= kind(strong.dtype())) return strong.dtype();
  if (weak.impl()->is_scalar && is_floating(weak.dtype())) return default_dtype();
  return weak.dtype();
}

namespace pointwise {

// The value of a number or a 0-d tensor in another dtype; others are converted (and stay on the tape).
Tensor as(const Tensor& x, DType t) { return x.dtype() == t ? x : to_dtype(x, t); }

Operands prepare(const char* op, const Tensor& a, const Tensor& b, bool float_only) {
  check_defined(op, "input", a);
  check_defined(op, "other", b);
  Device device = a.device();
  if (a.device() != b.device()) {
    bool a_weak = a.ndim() == 0 && a.device().is_cpu(), b_weak = b.ndim() == 0 && b.device().is_cpu();
    if (Trace* trace = Trace::current(); trace && !a_weak && !b_weak) trace->refuse(op, a.device().is_meta() ? b : a);
    SF_CHECK(a_weak || b_weak, op, ": tensors must be on one device, got ", a.device(), " and ", b.device());
    if (a_weak) device = b.device();
  }
  DType t = a.dtype() == b.dtype() && !a.impl()->is_scalar && !b.impl()->is_scalar ? a.dtype() : result_type(a, b);
  SF_CHECK_AS(TypeError, !is_float8(t), op, ": ", t, " is storage only; convert it to compute");
  if (float_only && !is_floating(t)) t = default_dtype();
  Operands o{a, b, a.shape() == b.shape() ? a.shape() : broadcast_shapes(op, a.shape(), b.shape()), t, device};
  return o;
}

// Layout of the result: that of the first operand which already has the result's shape, else row-major.
Tensor result_like(const Shape& shape, DType t, Device device, const Tensor& a, const Tensor& b) {
  if (a.shape() == shape && !a.is_contiguous() && a.device() == device) return empty_like(a, t);
  if (b && b.shape() == shape && !b.is_contiguous() && a.shape() != shape && b.device() == device)
    return empty_like(b, t);
  return empty(shape, t, device);
}

void take_number(Operands& o, Precise precise) {
  auto number = [](const Tensor& x, const Tensor& other) {
    return x.device().is_cpu() && x.ndim() == 0 && !x.is_same(other) &&
           (other.ndim() > 0 || (x.impl()->is_scalar && !other.impl()->is_scalar));
  };
  bool left = number(o.a, o.b), right = number(o.b, o.a);
  if (left == right) return;
  bool keeps = left ? precise.left && o.a.impl()->is_scalar : precise.right;
  if (!is_floating(o.dtype) || (o.device.is_cpu() && !(keeps && has_16_bits(o.dtype)))) return;
  o.number = left ? &o.a : &o.b;
  o.value = o.number->item();
  if (!keeps && has_16_bits(o.dtype)) o.value = full({}, o.value, o.dtype).item();
}

// x in dtype t, seen with the result's shape, off the tape.
TensorView operand(const Tensor& x, const Operands& o, Tensor& keep) {
  if (&x == o.number) return {};
  autograd::NoGrad off;
  keep = x.dtype() == o.dtype ? x : to_dtype(x, o.dtype);
  if (keep.device() != o.device)  // a host number: written by a kernel, because a copy would wait for the device
    keep = full({},
                is_floating(o.dtype) ? Scalar(keep.item())
                                     : Scalar(keep.dtype() == kInt64 ? keep.item_int() : int64_t(keep.item())),
                o.dtype, o.device);
  if (keep.shape() == o.shape) return keep;
  TensorView v = keep, full;
  full.data = v.data;
  full.dtype = v.dtype;
  full.device = v.device;
  full.ndim = int32_t(o.shape.size());
  int lead = full.ndim - v.ndim;
  for (int i = 0; i < full.ndim; ++i) {
    full.sizes[i] = o.shape[i];
    full.strides[i] = i < lead || v.sizes[i - lead] != full.sizes[i] ? 0 : v.strides[i - lead];
  }
  return full;
}

Tensor binary_forward(const char* op, const PointwiseTable& table, const Operands& o, double p0, DType out) {
  Tensor ka, kb, y = result_like(o.shape, out, o.device, o.a, o.b);
  TensorView va = operand(o.a, o, ka), vb = operand(o.b, o, kb);
  run(op, table, y, {va, vb}, o.dtype, p0, o.value);
  return y;
}

}  // namespace pointwise

using namespace pointwise;
using pointwise::expr::Expr;

namespace {

enum Saves { NONE = 0, X = 1, Y = 2, XY = 3, A = 4, B = 1 };  // unary ops: X, Y; binary ones: sums of A, B, Y
constexpr int reads(int da, int db) { return da | db << 3; }
enum Kind { FLOAT, NUMERIC };

using Gradient1 = Expr (*)(Expr, Expr, Expr, Expr, Expr);
struct UnaryOp {
  const char* name;
  Kind kind;
  int saves;
  const PointwiseTable* forward;
  const PointwiseTable* backward;
  Gradient1 gradient;
};

Tensor unary_backward(const UnaryOp& op, const Tensor& dy, const Tensor& x, const Tensor& y, double p0, double p1) {
  Expr none(0.0);
  if (autograd::grad_enabled()) return op.gradient(dy, x ? Expr(x) : none, y ? Expr(y) : none, p0, p1).t;
  const Tensor& like = x ? x : y ? y : dy;
  Tensor dx = empty_like(like), dy_dense = dy.dtype() == like.dtype() ? dy : to_dtype(dy, like.dtype());
  run(op.name, *op.backward, dx, {dy_dense, x, y}, like.dtype(), p0, p1);
  return dx;
}

Tensor unary(const UnaryOp& op, const Tensor& input, double p0 = 0, double p1 = 0) {
  check_defined(op.name, "input", input);
  SF_CHECK_AS(TypeError, !is_float8(input.dtype()), op.name, ": ", input.dtype(),
              " is storage only; convert it to compute");
  Tensor x = input;
  if (!is_floating(x.dtype())) {
    if (op.kind == FLOAT) x = to_dtype(x, default_dtype());
    SF_CHECK_AS(TypeError, x.dtype() != kBool, op.name, ": is not defined for bool tensors; convert to a number first");
  }
  Tensor y = empty_like(x);
  run(op.name, *op.forward, y, {x}, x.dtype(), p0, p1);
  if (y.device().is_meta()) [[unlikely]]
    if (Trace* trace = Trace::current()) trace->unary(op.name, *op.forward, x, y, x.dtype(), p0, p1);
  if (!autograd::any_requires_grad({x})) return y;
  const UnaryOp* o = &op;
  switch (op.saves) {
    case NONE:
      return autograd::record(op.name, y, {x}, [o, p0, p1](const Tensor& dy) -> Tensors {
        return {unary_backward(*o, dy, {}, {}, p0, p1)};
      });
    case X:
      return autograd::record(op.name, y, {x}, [o, p0, p1, x = autograd::save(x)](const Tensor& dy) -> Tensors {
        return {unary_backward(*o, dy, x.get(), {}, p0, p1)};
      });
    default:
      return autograd::record(op.name, y, {x}, [o, p0, p1](const Tensor& dy, const Tensor& y) -> Tensors {
        return {unary_backward(*o, dy, {}, y, p0, p1)};
      });
  }
}

using Gradient2 = Expr (*)(Expr, Expr, Expr, Expr, Expr);
struct BinaryOp {
  const char* name;
  Kind kind;
  int reads;  // by da, and shifted by 3 bits by db
  const PointwiseTable* forward;
  Gradient2 grad_a, grad_b;
  Precise precise(Device device) const;
};

extern const BinaryOp add_op, sub_op, mul_op, div_op, pow_op, remainder_op, fmod_op, floor_divide_op, trunc_divide_op;

// Exponents that are products, roots and quotients, as most are, without the logarithm of a general power:
// a tenth of its time.
// False for all others. x^3 of 16-bit floats would round twice, so it is not among them.
bool plain_power(const TensorImpl& x, double exponent, Tensor& y) {
  auto apply = [&](const PointwiseTable& table, const void* a, const void* b) {
    run_dense("pow", table, y.data_ptr(), x.dtype, a, b, nullptr, x.numel, x.dtype, 0, 0);
    return true;
  };
  const bool cube = exponent == 3 && size_of(x.dtype) >= 4;
  if (exponent != 2 && !cube && exponent != 0.5 && exponent != -0.5 && exponent != -1) return false;
  y = empty(x.sizes, x.dtype);
  if (exponent == 0.5) return apply(sqrt_forward, x.data, nullptr);
  if (exponent == -0.5) return apply(rsqrt_forward, x.data, nullptr);
  if (exponent == -1) return apply(reciprocal_forward, x.data, nullptr);
  apply(mul_forward, x.data, x.data);
  return !cube || apply(mul_forward, y.data_ptr(), x.data);
}

// The commonest calls, without the general machinery: two dense host tensors of one shape and floating dtype, or one
// and a number. False when the call is not of that kind.
bool fast_binary(const BinaryOp& op, const Tensor& a, const Tensor& b, double p0, Tensor& y) {
  if (!a || !b) return false;
  const TensorImpl &x = *a.impl(), &z = *b.impl();
  auto plain = [](const TensorImpl& t) {
    return t.contiguous && !t.is_scalar && t.device.type == Device::CPU && is_floating(t.dtype) && !is_float8(t.dtype);
  };
  if (plain(x) && plain(z) && x.dtype == z.dtype && x.sizes == z.sizes) {
    y = empty(x.sizes, x.dtype);
    run_dense(op.name, *op.forward, y.data_ptr(), x.dtype, x.data, z.data, nullptr, x.numel, x.dtype, p0, 0);
    return true;
  }
  bool left = x.is_scalar;
  const TensorImpl &t = left ? z : x, &s = left ? x : z;
  if (!s.is_scalar || !plain(t) || s.device.type != Device::CPU) return false;
  const double number = (left ? a : b).item();
  if (&op == &pow_op && !left && plain_power(t, number, y)) return true;
  y = empty(t.sizes, t.dtype);
  Precise precise = has_16_bits(t.dtype) ? op.precise(t.device) : Precise();
  if (left ? precise.left : precise.right) {
    run_dense(op.name, *op.forward, y.data_ptr(), t.dtype, left ? nullptr : t.data, left ? t.data : nullptr, nullptr,
              t.numel, t.dtype, p0, number);
    return true;
  }
  run_splat(op.name, *op.forward, y.data_ptr(), t.dtype, t.data, number, left, t.numel, t.dtype, p0);
  return true;
}

Precise BinaryOp::precise(Device device) const {
  if (this == &mul_op) return {true, true};
  if (this == &add_op || this == &sub_op) return {!device.is_cpu(), !device.is_cpu()};
  return {false, this == &div_op || this == &floor_divide_op || this == &trunc_divide_op};
}

// Puts the op on the tape, keeping only what the wanted gradients read. `same_shape`: operands have the result's shape
// or are numbers, so that gradients need no summing back.
Tensor record_binary(const BinaryOp& op, Tensor y, const Tensor& a, const Tensor& b, double p0, bool same_shape) {
  const BinaryOp* f = &op;
  bool na = a.requires_grad(), nb = b.requires_grad();
  int used = (na ? op.reads & 7 : 0) | (nb ? op.reads >> 3 : 0);
  auto gradients = [f, p0, na, nb](const Tensor& dy, const Tensor& x, const Tensor& z, const Tensor& y) -> Tensors {
    Expr none(Tensor{}), ea = x ? Expr(x) : none, eb = z ? Expr(z) : none, ey = y ? Expr(y) : none, e0 = p0;
    return {na ? f->grad_a(dy, ea, eb, ey, e0).t : Tensor(), nb ? f->grad_b(dy, ea, eb, ey, e0).t : Tensor()};
  };
  if (!used && same_shape)  // a small node: moving it costs a fifth of the call
    return autograd::record(op.name, std::move(y), {a, b},
                            [gradients](const Tensor& dy) { return gradients(dy, {}, {}, {}); });
  using autograd::Saved;
  Saved sa = used & A ? autograd::save(a) : Saved(), sb = used & B ? autograd::save(b) : Saved();
  std::shared_ptr<const std::pair<Shape, Shape>> shapes;
  if (!same_shape) shapes = std::make_shared<const std::pair<Shape, Shape>>(a.shape(), b.shape());
  auto reduced = [shapes](Tensors g) {
    if (!shapes) return g;
    return Tensors{g[0] ? sum_to(g[0], shapes->first) : Tensor(), g[1] ? sum_to(g[1], shapes->second) : Tensor()};
  };
  if (used & Y)
    return autograd::record(
        op.name, std::move(y), {a, b},
        [gradients, reduced, sa = std::move(sa), sb = std::move(sb)](const Tensor& dy, const Tensor& y) {
          return reduced(gradients(dy, sa.get(), sb.get(), y));
        });
  return autograd::record(op.name, std::move(y), {a, b},
                          [gradients, reduced, sa = std::move(sa), sb = std::move(sb)](const Tensor& dy) {
                            return reduced(gradients(dy, sa.get(), sb.get(), {}));
                          });
}

// What torch refuses for integers and bools: dividing by 0, powers of True, 2 ** -1 (the result is no integer).
void check_whole(const BinaryOp& op, const Operands& o) {
  bool divides = &op == &floor_divide_op || &op == &remainder_op || &op == &fmod_op || &op == &trunc_divide_op;
  if (!divides && &op != &pow_op) return;
  SF_CHECK_AS(TypeError, o.dtype != kBool, op.name, ": is not defined for two bool tensors; convert to a number first");
  if (divides) return check_divisor(op.name, o);
  bool negative = o.b.impl()->is_scalar && !o.device.is_meta() && o.b.item() < 0;
  SF_CHECK_AS(RuntimeError, !negative,
              "pow: integers to negative integer powers are not integers; convert to a floating dtype first");
}

void trace_binary(Trace& trace, const BinaryOp& op, const Tensor& a, const Tensor& b, const Tensor& y, DType dtype,
                  double p0) {
  SF_CHECK(y.dtype() != kBool, "fuse: ", op.name, " of bool tensors cannot be fused; convert them to integers first");
  const PointwiseTable* power = nullptr;  // what plain_power would run in its place
  if (&op == &pow_op && trace.target().is_cpu() && b.impl()->is_scalar && a.is_contiguous() && is_floating(dtype) &&
      a.dtype() == dtype) {
    double e = b.item();
    if (e == 2 || (e == 3 && size_of(dtype) >= 4)) {
      Tensor square = e == 2 ? y : empty_like(y);
      trace.binary("mul", mul_forward, a, a, square, dtype, 0, {});
      if (e == 3) trace.binary("mul", mul_forward, square, a, y, dtype, 0, {});
      return;
    }
    power = e == 0.5 ? &sqrt_forward : e == -0.5 ? &rsqrt_forward : e == -1 ? &reciprocal_forward : nullptr;
  }
  if (power) return trace.unary(power->name(), *power, a, y, dtype);
  trace.binary(op.name, *op.forward, a, b, y, dtype, p0, op.precise(trace.target()));
}

Tensor binary(const BinaryOp& op, const Tensor& a, const Tensor& b, double p0 = 1) {
  if (Tensor y; fast_binary(op, a, b, p0, y)) {
    if (!autograd::any_requires_grad({a, b})) return y;
    return record_binary(op, std::move(y), a, b, p0, true);
  }
  Operands o = prepare(op.name, a, b, op.kind == FLOAT);
  if (!is_floating(o.dtype)) check_whole(op, o);
  take_number(o, op.precise(o.device));
  Tensor y;
  Trace* trace = o.device.is_meta() ? Trace::current() : nullptr;
  if (o.dtype == kBool) {  // bools compute as bytes: 1 + 1 is true
    o.dtype = kUInt8;
    y = to_dtype(binary_forward(op.name, *op.forward, o, p0, kUInt8), kBool);
  } else {
    y = binary_forward(op.name, *op.forward, o, p0, o.dtype);
  }
  if (trace) [[unlikely]]
    trace_binary(*trace, op, a, b, y, o.dtype, p0);
  if (!autograd::any_requires_grad({a, b})) return y;
  return record_binary(op, std::move(y), a, b, p0, false);
}

Tensor compare(const char* name, const PointwiseTable& table, const Tensor& a, const Tensor& b) {
  Operands o = prepare(name, a, b, false);
  Tensor y = binary_forward(name, table, o, 0, kBool);
  if (o.device.is_meta()) [[unlikely]]
    if (Trace* trace = Trace::current()) trace->binary(name, table, a, b, y, o.dtype, 0, {});
  return y;
}

#define SF_UNARY(name, kind, saves, ...) \
  const UnaryOp name##_op{               \
      #name, kind, saves, &name##_forward, &name##_backward, &pointwise::expr::name##_fn::template dx<Expr>};
#define SF_UNARY_P SF_UNARY
#define SF_BINARY(name, kind, reads, ...)                                  \
  const BinaryOp name##_op{#name,                                          \
                           kind,                                           \
                           reads,                                          \
                           &name##_forward,                                \
                           &pointwise::expr::name##_fn::template da<Expr>, \
                           &pointwise::expr::name##_fn::template db<Expr>};
#define SF_BINARY_P SF_BINARY
#include "scaffolding/ops/pointwise/binary.def"
#include "scaffolding/ops/pointwise/unary.def"
#undef SF_UNARY
#undef SF_UNARY_P
#undef SF_BINARY
#undef SF_BINARY_P

}  // namespace

#define SF_UNARY(fn, kind, saves, forward, backward, torch, text) \
  Tensor fn(const Tensor& input) {                                \
    SF_AUTOCAST_IF_LISTED(fn, input);                             \
    return unary(fn##_op, input);                                 \
  }                                                               \
  SF_OP(fn, "input").doc(text).like(torch).inplace().kernels(fn##_forward, fn##_backward);
#define SF_UNARY_P(...)
#define SF_BINARY(fn, kind, saves, forward, a, b, torch, text) \
  Tensor fn(const Tensor& input, const Tensor& other) {        \
    SF_AUTOCAST_IF_LISTED(fn, input, other);                   \
    return binary(fn##_op, input, other);                      \
  }                                                            \
  SF_OP(fn, "input, other").doc(text).like(torch "(input, other)").inplace().kernels(fn##_forward);
#define SF_BINARY_P(...)
#define SF_COMPARE(fn, expression, text)                                                                   \
  Tensor fn(const Tensor& input, const Tensor& other) { return compare(#fn, fn##_forward, input, other); } \
  SF_OP(fn, "input, other").doc(text).inplace().no_gradient().kernels(fn##_forward);
#include "scaffolding/ops/pointwise/binary.def"
#include "scaffolding/ops/pointwise/compare.def"
#include "scaffolding/ops/pointwise/unary.def"

static void check_alpha(const char* op, const Tensor& a, const Tensor& b, const Scalar& alpha) {
  if (!alpha.is_float() || !a || !b) return;
  SF_CHECK_AS(TypeError, is_floating(a.dtype()) || is_floating(b.dtype()), op,
              ": alpha must be an integer for integer tensors, got ", alpha.to_double());
}
double pointwise::factor(const char* op, const Tensor& a, const Tensor& b, const Scalar& alpha) {
  const double f = alpha.to_double();
  if (f >= 0 || !a || !b || is_floating(a.dtype()) || is_floating(b.dtype())) return f;
  const DType t = prepare(op, a, b, false).dtype;  // bytes wrap around: -1 is 255; of bools it is true
  return t == kUInt8 ? double(uint8_t(int64_t(f))) : t == kBool ? 1 : f;
}
Tensor add(const Tensor& input, const Tensor& other, const Scalar& alpha) {
  check_alpha("add", input, other, alpha);
  return binary(add_op, input, other, pointwise::factor("add", input, other, alpha));
}
Tensor sub(const Tensor& input, const Tensor& other, const Scalar& alpha) {
  check_alpha("sub", input, other, alpha);
  SF_CHECK_AS(TypeError, !input || !other || (input.dtype() != kBool && other.dtype() != kBool),
              "sub: bool tensors cannot be subtracted; use logical_xor");
  return binary(sub_op, input, other, pointwise::factor("sub", input, other, alpha));
}
Tensor div(const Tensor& input, const Tensor& other, const std::optional<std::string>& rounding_mode) {
  if (!rounding_mode) return binary(div_op, input, other);
  if (*rounding_mode == "floor") return floor_divide(input, other);
  SF_CHECK(*rounding_mode == "trunc", "div: rounding_mode must be None, 'floor' or 'trunc', got '", *rounding_mode,
           "'");
  return binary(trunc_divide_op, input, other);
}
Tensor gelu(const Tensor& input, const std::string& approximate) {
  SF_CHECK(approximate == "none" || approximate == "tanh", "gelu: approximate must be 'none' or 'tanh', got '",
           approximate, "'");
  return approximate == "tanh" ? gelu_tanh(input) : gelu_erf(input);
}
Tensor leaky_relu(const Tensor& input, double negative_slope) { return unary(leaky_relu_op, input, negative_slope); }
Tensor elu(const Tensor& input, double alpha) { return unary(elu_op, input, alpha); }
Tensor softplus(const Tensor& input, double beta, double threshold) {
  SF_AUTOCAST(softplus, input, beta, threshold);
  SF_CHECK(beta != 0, "softplus: beta must not be 0");
  return unary(softplus_op, input, beta, threshold);
}
Tensor clamp(const Tensor& input, std::optional<Scalar> min, std::optional<Scalar> max) {
  SF_CHECK(min || max, "clamp: min or max must be given");
  check_defined("clamp", "input", input);
  DType t = input.dtype();
  if (min) t = promote(t, *min);
  if (max) t = promote(t, *max);
  Tensor x = as(input, t);
  // Where min > max every element becomes max, as in torch.
  double high = max ? max->to_double() : __builtin_inf(), low = min ? min->to_double() : -__builtin_inf();
  return unary(clamp_op, x, std::min(low, high), high);
}

SF_OP(add, "input, other, alpha=1")
    .doc("input + alpha * other.")
    .like("torch.add(input, other, alpha=alpha)")
    .inplace()
    .kernels(add_forward);
SF_OP(sub, "input, other, alpha=1")
    .doc("input - alpha * other.")
    .like("torch.sub(input, other, alpha=alpha)")
    .inplace()
    .kernels(sub_forward);
SF_OP(div, "input, other, rounding_mode=None")
    .doc("input / other; integers divide to floats unless rounding_mode is 'floor' or 'trunc'.")
    .inplace()
    .kernels(div_forward);
SF_OP(gelu, "input, approximate='none'")
    .doc("Gaussian error linear unit, exact or with the tanh approximation.")
    .like("torch.nn.functional.gelu")
    .inplace()
    .kernels(gelu_erf_forward, gelu_tanh_forward);
SF_OP(leaky_relu, "input, negative_slope=0.01")
    .doc("input where positive, else negative_slope * input.")
    .like("torch.nn.functional.leaky_relu")
    .inplace()
    .kernels(leaky_relu_forward);
SF_OP(elu, "input, alpha=1.0")
    .doc("input where positive, else alpha * (exp(input) - 1).")
    .like("torch.nn.functional.elu")
    .inplace()
    .kernels(elu_forward);
SF_OP(softplus, "input, beta=1.0, threshold=20.0")
    .doc("log(1 + exp(beta * input)) / beta; linear above threshold.")
    .like("torch.nn.functional.softplus")
    .kernels(softplus_forward);
SF_OP(clamp, "input, min=None, max=None").doc("input limited to [min, max].").inplace().kernels(clamp_forward);

}  // namespace sf
