// where, masked_fill and lerp.
#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/cpu/strided.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/pointwise/pointwise_internal.h"
#include "scaffolding/ops/pointwise/trace.h"
#include "scaffolding/ops/pointwise/where_kernel.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<Where> where_kernel{"where"};
constinit PointwiseTable lerp_forward{"lerp"};

Tensor where(const Tensor& condition, const Tensor& input, const Tensor& other) {
  check_defined("where", "condition", condition);
  SF_CHECK_AS(TypeError, condition.dtype() == kBool, "where: condition must be a bool tensor, got ", condition.dtype());
  pointwise::Operands o = pointwise::prepare("where", input, other, false);
  o.shape = broadcast_shapes("where", condition.shape(), o.shape);
  auto is_number = [](const Tensor& t) { return t.ndim() == 0 && t.device().is_cpu(); };  // goes where the rest is
  if (is_number(input) && is_number(other)) o.device = condition.device();
  SF_CHECK(condition.device() == o.device || is_number(condition), "where: condition is on ", condition.device(),
           ", the values on ", o.device);
  Tensor ka, kb, y = pointwise::result_like(o.shape, o.dtype, o.device, input, other);
  Tensor mask;
  {
    autograd::NoGrad off;
    // A number is written by a kernel: a copy would wait for the device.
    mask =
        (condition.device() == o.device ? condition : full({}, condition.item() != 0, kBool, o.device)).expand(o.shape);
  }
  Where w{y, mask, pointwise::operand(input, o, ka), pointwise::operand(other, o, kb)};
  auto kernel = where_kernel.find(o.device, w);
  SF_CHECK_AS(NotSupported, kernel, "where: no kernel on ", o.device);
  if (y.numel() > 0) kernel(w);
  if (o.device.is_meta()) [[unlikely]]
    if (auto* trace = pointwise::Trace::current()) trace->where(condition, input, other, y, o.dtype);
  return autograd::record(
      "where", y, {input, other},
      [kept = autograd::save(condition), sa = input.shape(), sb = other.shape()](const Tensor& dy) -> Tensors {
        Tensor zero = zeros({}, dy.dtype(), dy.device()), condition = kept.get();
        return {sum_to(where(condition, dy, zero), sa), sum_to(where(condition, zero, dy), sb)};
      });
}

Tensor masked_fill(const Tensor& input, const Tensor& mask, const Scalar& value) {
  check_defined("masked_fill", "input", input);
  check_defined("masked_fill", "mask", mask);
  SF_CHECK_AS(TypeError, !value.is_float() || is_floating(input.dtype()), "masked_fill: a ", input.dtype(),
              " tensor cannot hold ", value.to_double());
  Tensor filling = scalar_tensor(value, input.dtype(), input.device());
  if (input.device().is_meta()) [[unlikely]]
    if (auto* trace = pointwise::Trace::current()) trace->constant(filling, value);
  return where(mask, filling, input);
}

Tensor lerp(const Tensor& input, const Tensor& end, const Tensor& weight) {
  check_defined("lerp", "weight", weight);
  SF_CHECK_AS(TypeError, input.defined() && end.defined() && input.dtype() == end.dtype(),
              "lerp: input and end must have one dtype");
  check_floating("lerp", "input", input);
  pointwise::Operands o = pointwise::prepare("lerp", input, end, true);
  o.shape = broadcast_shapes("lerp", weight.shape(), o.shape);
  if (weight.ndim() == 0 && weight.device().is_cpu() && !o.shape.empty() &&
      (o.dtype != kFloat64 || !o.device.is_cpu())) {
    o.number = &weight;
    o.value = weight.item();
  }
  Tensor ka, kb, kw, y = pointwise::result_like(o.shape, o.dtype, o.device, input, end);
  pointwise::run("lerp", lerp_forward, y,
                 {pointwise::operand(input, o, ka), pointwise::operand(end, o, kb), pointwise::operand(weight, o, kw)},
                 o.dtype, 0, o.value);
  if (o.device.is_meta()) [[unlikely]]
    if (auto* trace = pointwise::Trace::current()) trace->lerp(input, end, weight, y, o.dtype);
  return autograd::record(
      "lerp", y, {input, end, weight},
      [a = autograd::save(input), b = autograd::save(end), w = autograd::save(weight)](const Tensor& dy) -> Tensors {
        Tensor x = a.get(), e = b.get(), t = w.get();
        Tensor rest = t.impl()->is_scalar ? wrapped(1.0 - t.item()) : 1.0 - t;  // a number is a double
        return {sum_to(dy * rest, x.shape()), sum_to(dy * t, e.shape()), sum_to(dy * (e - x), t.shape())};
      });
}

SF_OP(where, "condition, input, other")
    .doc("input where condition holds, else other; all three broadcast.")
    .kernels(where_kernel);
SF_OP(masked_fill, "input, mask, value")
    .doc("value where mask holds, else input.")
    .like("input.masked_fill(mask, value)")
    .inplace()
    .kernels(where_kernel);
SF_OP(lerp, "input, end, weight").doc("input + weight * (end - input).").inplace().kernels(lerp_forward);

namespace {

// Any dtype by its size: the bytes are only moved.
template <class U> void rows(const Where& w) {
  constexpr int64_t kGrain = 1 << 14;
  cpu::StridedLoop loop{&w.out, &w.condition, &w.a, &w.b};
  const bool pixels = loop.has_pixels();
  const int along = pixels ? 1 : 0;
  const int64_t so = loop.strides[0][along], sm = loop.strides[1][along], sa = loop.strides[2][along],
                sb = loop.strides[3][along];
  auto part = [&](char* const* p, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
      *reinterpret_cast<U*>(p[0] + i * so) = *reinterpret_cast<const bool*>(p[1] + i * sm)
                                                 ? *reinterpret_cast<const U*>(p[2] + i * sa)
                                                 : *reinterpret_cast<const U*>(p[3] + i * sb);
  };
  pixels ? loop.run_pixels(kGrain, part) : loop.run(kGrain, part);
}
void where_cpu(const Where& w) {
  size_t item = size_of(w.out.dtype);
  item == 4 ? rows<uint32_t>(w) : item == 2 ? rows<uint16_t>(w) : item == 8 ? rows<uint64_t>(w) : rows<uint8_t>(w);
}
SF_KERNEL(where_kernel, DeviceType::CPU, "native", 0, where_cpu, nullptr)

}  // namespace
}  // namespace sf
