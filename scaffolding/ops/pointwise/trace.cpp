#include "scaffolding/ops/pointwise/trace.h"

#include <atomic>

namespace sf::pointwise {

namespace {

bool is_number(const Tensor& x) { return x.impl()->is_scalar && x.device().is_cpu(); }

// As an operand of this dtype would hold it.
double rounded(double v, DType t) {
  double y = v;
  visit_dtype(t, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, float>) y = double(float(v));
    else if constexpr (!std::is_arithmetic_v<T>) y = double(to_float(from_float<T>(float(v))));
  });
  return y;
}

}  // namespace

void Trace::add_argument(const Tensor& stand_in) {
  values_[stand_in.impl()] = int(program_.arguments.size());
  program_.arguments.push_back(stand_in.dtype());
  kept_.push_back(stand_in);
}

void Trace::constant(const Tensor& t, const Scalar& value) {
  constants_[t.impl()] = value;
  kept_.push_back(t);
}

int Trace::value_of(const char* op, const Tensor& x) const {
  auto at = values_.find(x.impl());
  if (at == values_.end()) refuse(op, x);
  return at->second;
}

void Trace::refuse(const char* op, const Tensor& x) const {
  if (auto at = others_.find(x.impl()); at != others_.end())
    fail("fuse: only pointwise ops can be fused, and ", op, " takes the result of ", at->second,
         "; call that one outside of the fused function");
  SF_CHECK(x.device().is_meta(), "fuse: ", op, " takes a tensor of shape ", x.shape(),
           " that is no argument of the fused function; pass it as one");
  fail("fuse: only pointwise ops can be fused, and ", op, " takes a tensor of shape ", x.shape(),
       " that was made in another way than by them from the arguments; make it outside of the fused function");
}

TracedOperand Trace::operand(const char* op, const Tensor& x, DType dtype) {
  TracedOperand o;
  if (auto at = constants_.find(x.impl()); at != constants_.end()) {
    o.number = rounded(at->second.to_double(), dtype);
    o.integer = at->second.to_int();
    return o;
  }
  if (is_number(x)) {
    o.number = rounded(x.item(), dtype);
    o.integer = is_floating(x.dtype()) ? Scalar(x.item()).to_int() : x.item_int();
    return o;
  }
  o.value = value_of(op, x);
  if (program_.dtype_of(o.value) != dtype) {
    TracedOp c{
        .kind = TracedOp::Cast, .name = "to", .in = {o}, .count = 1, .dtype = program_.dtype_of(o.value), .out = dtype};
    program_.ops.push_back(c);
    o.value = int(program_.arguments.size() + program_.ops.size()) - 1;
  }
  return o;
}

void Trace::add(TracedOp op, const Tensor& y) {
  program_.ops.push_back(op);
  values_[y.impl()] = int(program_.arguments.size() + program_.ops.size()) - 1;
  kept_.push_back(y);
}

void Trace::unary(const char* op, const PointwiseTable& table, const Tensor& x, const Tensor& y, DType dtype, double p0,
                  double p1) {
  add({.name = op,
       .table = &table,
       .in = {operand(op, x, dtype)},
       .count = 1,
       .dtype = dtype,
       .out = y.dtype(),
       .p0 = p0,
       .p1 = p1},
      y);
}

// A number beside a tensor is rounded to the tensor's dtype,
// or takes part in the precision of the computation where `precise` says so.
void Trace::binary(const char* op, const PointwiseTable& table, const Tensor& a, const Tensor& b, const Tensor& y,
                   DType dtype, double p0, Precise precise) {
  TracedOp t{.name = op, .table = &table, .count = 2, .dtype = dtype, .out = y.dtype(), .p0 = p0};
  t.in[0] = operand(op, a, dtype);
  t.in[1] = operand(op, b, dtype);
  for (int k : {0, 1}) {
    if (t.in[k].value >= 0 || t.in[1 - k].value < 0 || !has_16_bits(dtype) || !(k == 0 ? precise.left : precise.right))
      continue;
    t.in[k].absent = true;
    t.p1 = (k == 0 ? a : b).item();
  }
  add(t, y);
}

void Trace::lerp(const Tensor& start, const Tensor& end, const Tensor& weight, const Tensor& y, DType dtype) {
  TracedOp t{.name = "lerp", .table = &lerp_forward, .count = 3, .dtype = dtype, .out = y.dtype()};
  t.in[0] = operand("lerp", start, dtype);
  t.in[1] = operand("lerp", end, dtype);
  t.in[2] = operand("lerp", weight, dtype);
  if (t.in[2].value < 0 && has_16_bits(dtype)) {
    t.in[2].absent = true;
    t.p1 = weight.item();
  }
  add(t, y);
}

void Trace::where(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& y, DType dtype) {
  TracedOp t{.kind = TracedOp::Where, .name = "where", .count = 3, .dtype = dtype, .out = dtype};
  t.in[0] = operand("where", condition, kBool);
  t.in[1] = operand("where", a, dtype);
  t.in[2] = operand("where", b, dtype);
  add(t, y);
}

void Trace::cast(const Tensor& x, const Tensor& y) {
  if (is_number(x)) return;
  if (auto at = constants_.find(x.impl()); at != constants_.end()) return constant(y, at->second);
  TracedOp t{.kind = TracedOp::Cast, .name = "to", .count = 1, .dtype = x.dtype(), .out = y.dtype()};
  t.in[0].value = value_of("to", x);
  add(t, y);
}

void Trace::recorded(const char* op, const Tensor& y) {
  if (values_.count(y.impl()) || !y.device().is_meta()) return;
  others_[y.impl()] = op;
  kept_.push_back(y);
}

void Trace::written(const char* op) {
  fail("fuse: ", op, " writes in place, which a fused function must not; use the op that returns its result");
}

TracedProgram Trace::finish(const Tensor& result) && {
  SF_CHECK_AS(TypeError, result.defined(), "fuse: the fused function must return one tensor");
  int last = value_of("the end of the function", result);
  static std::atomic<int64_t> traces{0};
  TracedProgram p = std::move(program_);
  p.id = ++traces;
  p.result = last;
  p.shape = result.shape();
  p.strides = result.strides();
  // Only what the result needs, under new numbers.
  const int arguments = int(p.arguments.size());
  std::vector<int> wanted(size_t(arguments) + p.ops.size(), 0);
  wanted[size_t(p.result)] = 1;
  for (int i = int(p.ops.size()) - 1; i >= 0; --i)
    if (wanted[size_t(arguments + i)])
      for (int k = 0; k < p.ops[size_t(i)].count; ++k)
        if (int v = p.ops[size_t(i)].in[k].value; v >= 0) wanted[size_t(v)] = 1;
  std::vector<int> number(wanted.size());
  int next = arguments;
  std::vector<TracedOp> ops;
  for (int v = 0; v < int(wanted.size()); ++v) {
    number[size_t(v)] = v < arguments ? v : next;
    if (v < arguments || !wanted[size_t(v)]) continue;
    ++next;
    TracedOp op = p.ops[size_t(v - arguments)];
    for (auto& in : op.in)
      if (in.value >= 0) in.value = number[size_t(in.value)];
    ops.push_back(op);
  }
  p.result = number[size_t(p.result)];
  p.ops = std::move(ops);
  return p;
}

}  // namespace sf::pointwise
