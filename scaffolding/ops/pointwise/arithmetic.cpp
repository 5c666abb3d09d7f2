// In-place arithmetic of Tensor: straight into the tensor's memory when no gradient is wanted.
#include "scaffolding/autograd/take_over.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/pointwise/pointwise_internal.h"

namespace sf {

namespace {

template <class F>
Tensor& in_place(const char* op, const PointwiseTable& table, Tensor& self, const Tensor& other, double p0,
                 bool float_only, bool precise, const F& f) {
  check_defined(op, "self", self);
  if (autograd::any_requires_grad({self, other}))
    return autograd::overwrite(op, self, [&](const Tensor& x) { return f(x, other.is_same(self) ? x : other); });
  pointwise::Operands o = pointwise::prepare(op, self, other, float_only);
  if (o.dtype != self.dtype() || o.shape != self.shape() || o.device != self.device() || o.dtype == kBool ||
      self.device().is_meta())
    return autograd::assign_inplace(op, self, f(self, other));
  bool overlap =
      other.storage() == self.storage() && !(other.storage_offset() == self.storage_offset() &&
                                             other.shape() == self.shape() && other.strides() == self.strides());
  if (overlap) return autograd::assign_inplace(op, self, f(self, other));  // x[1:] += x[:-1] reads what it writes
  autograd::check_inplace(op, self);
  Tensor keep;
  pointwise::take_number(o, {false, precise || !self.device().is_cpu()});
  TensorView b = pointwise::operand(other, o, keep), out = self;
  pointwise::run(op, table, out, {out, b}, o.dtype, p0, o.value);
  autograd::bump_version(self);
  return self;
}

}  // namespace

Tensor& Tensor::add_(const Tensor& other, const Scalar& alpha) {
  return in_place("add_", add_forward, *this, other, pointwise::factor("add_", *this, other, alpha), false, false,
                  [&](const Tensor& x, const Tensor& y) { return add(x, y, alpha); });
}
Tensor& Tensor::sub_(const Tensor& other, const Scalar& alpha) {
  return in_place("sub_", sub_forward, *this, other, pointwise::factor("sub_", *this, other, alpha), false, false,
                  [&](const Tensor& x, const Tensor& y) { return sub(x, y, alpha); });
}
Tensor& Tensor::mul_(const Tensor& other) {
  return in_place("mul_", mul_forward, *this, other, 0, false, true,
                  [&](const Tensor& x, const Tensor& y) { return mul(x, y); });
}
Tensor& Tensor::div_(const Tensor& other) {
  return in_place("div_", div_forward, *this, other, 0, true, true,
                  [&](const Tensor& x, const Tensor& y) { return div(x, y); });
}
Tensor& Tensor::add_(const Scalar& other) { return add_(wrapped(other)); }
Tensor& Tensor::mul_(const Scalar& other) { return mul_(wrapped(other)); }

}  // namespace sf
