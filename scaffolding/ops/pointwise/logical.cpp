// Predicates and the ops on bits. logical_and, logical_or and logical_xor are comparisons: compare.def.
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/pointwise/pointwise_internal.h"
#include "scaffolding/ops/pointwise/trace.h"
#include "scaffolding/ops/reduce/reduce.h"

namespace sf {

#define SF_PREDICATE(name, ...) constinit PointwiseTable name##_forward{#name};
#define SF_BITWISE SF_PREDICATE
#include "scaffolding/ops/pointwise/bitwise.def"
#include "scaffolding/ops/pointwise/predicate.def"
#undef SF_PREDICATE
#undef SF_BITWISE
constinit PointwiseTable bitwise_not_forward{"bitwise_not"};

namespace {

Tensor predicate(const char* name, const PointwiseTable& table, const Tensor& input) {
  check_defined(name, "input", input);
  SF_CHECK_AS(TypeError, !is_float8(input.dtype()), name, ": ", input.dtype(),
              " is storage only; convert it to compute");
  Tensor y = empty_like(input, kBool);
  pointwise::run(name, table, y, {input}, input.dtype());
  if (y.device().is_meta()) [[unlikely]]
    if (auto* trace = pointwise::Trace::current()) trace->unary(name, table, input, y, input.dtype());
  return y;
}

Tensor bitwise(const char* name, const PointwiseTable& table, const Tensor& a, const Tensor& b, bool shift) {
  pointwise::Operands o = pointwise::prepare(name, a, b, false);
  SF_CHECK_AS(TypeError, !is_floating(o.dtype) && (!shift || o.dtype != kBool), name, ": needs integer",
              shift ? "" : " or bool", " tensors, got ", a.dtype(), " and ", b.dtype());
  Tensor y = pointwise::binary_forward(name, table, o, 0, o.dtype);
  if (o.device.is_meta()) [[unlikely]]
    if (auto* trace = pointwise::Trace::current()) trace->binary(name, table, a, b, y, o.dtype, 0, {});
  return y;
}
constexpr bool is_shift(std::string_view name) { return name.ends_with("_shift"); }

}  // namespace

#define SF_PREDICATE(fn, expression, torch, text)                                \
  Tensor fn(const Tensor& input) { return predicate(#fn, fn##_forward, input); } \
  SF_OP(fn, "input").doc(text).like(torch).no_gradient().kernels(fn##_forward);
#define SF_BITWISE(fn, expression, text)                            \
  Tensor fn(const Tensor& input, const Tensor& other) {             \
    return bitwise(#fn, fn##_forward, input, other, is_shift(#fn)); \
  }                                                                 \
  SF_OP(fn, "input, other").doc(text).like("torch." #fn "(input, other)").inplace().no_gradient().kernels(fn##_forward);
#include "scaffolding/ops/pointwise/bitwise.def"
#include "scaffolding/ops/pointwise/predicate.def"

Tensor bitwise_not(const Tensor& input) {
  check_defined("bitwise_not", "input", input);
  SF_CHECK_AS(TypeError, !is_floating(input.dtype()), "bitwise_not: needs an integer or bool tensor, got ",
              input.dtype());
  if (input.dtype() == kBool) return logical_not(input);
  Tensor y = empty_like(input);
  pointwise::run("bitwise_not", bitwise_not_forward, y, {input}, input.dtype());
  if (y.device().is_meta()) [[unlikely]]
    if (auto* trace = pointwise::Trace::current())
      trace->unary("bitwise_not", bitwise_not_forward, input, y, input.dtype());
  return y;
}
SF_OP(bitwise_not, "input").doc("Every bit of input flipped.").inplace().no_gradient().kernels(bitwise_not_forward);

void pointwise::check_divisor(const char* op, const Operands& o) {
  if (is_floating(o.dtype) || o.device.is_meta() || !o.b.device().is_cpu() || numel(o.shape) == 0) return;
  bool zero = o.b.numel() == 1 ? o.b.item() == 0 : any(logical_not(o.b)).item() != 0;
  SF_CHECK_AS(RuntimeError, !zero, op, ": ZeroDivisionError: an integer is divided by 0");
}

}  // namespace sf
