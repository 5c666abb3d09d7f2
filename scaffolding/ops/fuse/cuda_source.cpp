#include "scaffolding/ops/fuse/cuda_source.h"

#include <atomic>
#include <cstring>
#include <set>
#include <string_view>

#include "scaffolding/core/error.h"

namespace sf {

using pointwise::TracedOp;
using pointwise::TracedOperand;
using pointwise::TracedProgram;

namespace {

template <class... A> std::string text(const A&... parts) {
  Message m;
  (m << ... << parts);
  return m.str();
}

// The expression of an op, as the tables have it.
struct Expression {
  std::string_view name, parameters, result, formula;
};
const Expression kExpressions[] = {
#define SF_UNARY_P(name, kind, saves, forward, ...) {#name, "T x, T p0, T p1", "T", #forward},
#define SF_UNARY SF_UNARY_P
#define SF_BINARY_P(name, kind, reads, forward, ...) {#name, "T a, T b, T p0", "T", #forward},
#define SF_BINARY SF_BINARY_P
#define SF_COMPARE(name, expression, ...) {#name, "T a, T b, T", "bool", #expression},
#define SF_PREDICATE(name, expression, ...) {#name, "T x, T, T", "bool", #expression},
#define SF_BITWISE(name, expression, ...) {#name, "T a, T b, T", "T", #expression},
#include "scaffolding/ops/pointwise/binary.def"
#include "scaffolding/ops/pointwise/bitwise.def"
#include "scaffolding/ops/pointwise/compare.def"
#include "scaffolding/ops/pointwise/predicate.def"
#include "scaffolding/ops/pointwise/unary.def"
#undef SF_UNARY_P
#undef SF_UNARY
#undef SF_BINARY_P
#undef SF_BINARY
#undef SF_COMPARE
#undef SF_PREDICATE
#undef SF_BITWISE
};

const Expression* expression_of(std::string_view name) {
  for (auto& e : kExpressions)
    if (e.name == name) return &e;
  return nullptr;
}

// The conversions are those of backend/cuda/vec.cuh as instructions. keep() ends an op, adding -0, which changes no
// number: without it the product of one op and the sum of the next would become one multiply-add of one rounding, and
// the numbers would not be those of the ops alone. An empty asm does not do: ptxas, which also contracts, sees nothing
// of it; nor does a factor of 1, which it drops before. Values of 16 bits are rounded in between anyway.
const char kConversions[] = R"(#define SF_INLINE __device__ __forceinline__
namespace sf {
struct Half { unsigned short bits; };
struct BFloat16 { unsigned short bits; };
SF_INLINE float widen(Half h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h.bits)); return f; }
SF_INLINE float widen(BFloat16 h) { return __int_as_float(int(h.bits) << 16); }
template <class T> SF_INLINE T widen(T x) { return x; }
template <class S> struct To {
  template <class T> static SF_INLINE S of(T x) { return S(x); }
};
template <> struct To<bool> {
  template <class T> static SF_INLINE bool of(T x) { return x != T(0); }
};
template <> struct To<Half> {
  template <class T> static SF_INLINE Half of(T x) {
    Half h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(float(x))); return h;
  }
};
template <> struct To<BFloat16> {
  template <class T> static SF_INLINE BFloat16 of(T x) {
    BFloat16 h; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h.bits) : "f"(float(x))); return h;
  }
};
template <class T> SF_INLINE T keep(T x) { return x; }
SF_INLINE float keep(float x) { asm("add.rn.f32 %0, %1, 0f80000000;" : "=f"(x) : "f"(x)); return x; }
SF_INLINE double keep(double x) { asm("add.rn.f64 %0, %1, 0d8000000000000000;" : "=d"(x) : "d"(x)); return x; }
template <class T, int V> struct alignas(sizeof(T) * V) Vec { T v[V]; };
)";

const char* storage(DType t) {
  switch (t) {
    case kFloat32: return "float";
    case kFloat64: return "double";
    case kFloat16: return "Half";
    case kBFloat16: return "BFloat16";
    case kBool: return "bool";
    case kUInt8: return "unsigned char";
    case kInt8: return "signed char";
    case kInt16: return "short";
    case kInt32: return "int";
    case kInt64: return "long long";
    default: fail<NotSupported>("fuse: ", t, " is storage only; convert it to compute");
  }
}
// What an element of a dtype is computed in.
const char* arithmetic(DType t) { return pointwise::has_16_bits(t) ? "float" : storage(t); }

// The number to the last bit.
std::string literal(DType t, double real, int64_t whole) {
  if (t == kFloat64) {
    uint64_t bits;
    std::memcpy(&bits, &real, sizeof bits);
    return text(
        "__longlong_as_double(",
        int64_t(bits) == INT64_MIN ? std::string("-0x7fffffffffffffffLL - 1") : std::to_string(int64_t(bits)) + "LL",
        ")");
  }
  if (is_floating(t)) {
    float f = float(real);
    uint32_t bits;
    std::memcpy(&bits, &f, sizeof bits);
    return text("__int_as_float(", std::to_string(bits), "u)");
  }
  if (t == kBool) return whole ? "true" : "false";
  return text("(", storage(t), ")(",
              whole == INT64_MIN ? std::string("-0x7fffffffffffffffLL - 1") : std::to_string(whole) + "LL", ")");
}

std::string math() {
  std::string s = kConversions;
#define SF_SCALAR_1(name, fn)                                                                  \
  s += "SF_INLINE double " #name "(double x) { return ::" #fn "(x); }\nSF_INLINE float " #name \
       "(float x) { return ::" #fn "f(x); }\n";
#define SF_SCALAR_2(name, fn)                                                                               \
  s += "SF_INLINE double " #name "(double a, double b) { return ::" #fn "(a, b); }\nSF_INLINE float " #name \
       "(float a, float b) { return ::" #fn                                                                 \
       "f(a, b); "                                                                                          \
       "}\n";
#define SF_SCALAR_REAL(...) \
  s += "#define T float\n" #__VA_ARGS__ "\n#undef T\n#define T double\n" #__VA_ARGS__ "\n#undef T\n";
#define SF_SCALAR_TEXT(...) s += #__VA_ARGS__ "\n";
#include "scaffolding/ops/pointwise/scalar_functions.def"
  return s;
}

bool is_logic(std::string_view name) { return name == "bitwise_and" || name == "bitwise_or" || name == "bitwise_xor"; }

// The functions of the ops that a program has, each once.
std::string op_functions(const TracedProgram& p) {
  std::string s;
  std::set<std::string_view> done;
  for (auto& op : p.ops) {
    if (op.kind != TracedOp::Row || !done.insert(op.table->name()).second || op.table == &lerp_forward) continue;
    const Expression* e = expression_of(op.table->name());
    SF_CHECK_AS(NotSupported, e && (is_floating(op.dtype) || e->result == "bool" || is_logic(e->name)),
                "fuse: ", op.name, " of ", op.dtype, " cannot be fused on cuda");
    s += text("template <class T> SF_INLINE ", e->result, " op_", e->name, "(", e->parameters,
              ") { using I = T; return ", e->formula, "; }\n");
  }
  return s;
}

std::string operand_text(const TracedOp& op, int k) {
  const TracedOperand& o = op.in[k];
  if (o.value >= 0) return text("v", o.value);
  bool condition = op.kind == TracedOp::Where && k == 0;
  return literal(condition ? kBool : op.dtype, o.absent ? op.p1 : o.number, o.integer);
}

// Out compute(A0 a0, A1 a1, ...): values are kept in their arithmetic types, each rounded to its dtype.
std::string compute_function(const TracedProgram& p) {
  const int arguments = int(p.arguments.size());
  std::string s = text("SF_INLINE ", storage(p.dtype_of(p.result)), " compute(");
  for (int k = 0; k < arguments; ++k) s += text(k ? ", " : "", storage(p.arguments[size_t(k)]), " a", k);
  s += ") {\n";
  for (int k = 0; k < arguments; ++k)
    s += text("  ", arithmetic(p.arguments[size_t(k)]), " v", k, " = widen(a", k, ");\n");
  for (int i = 0; i < int(p.ops.size()); ++i) {
    const TracedOp& op = p.ops[size_t(i)];
    std::string value;
    std::string T = arithmetic(op.dtype);
    auto parameter = [&](double v) { return literal(op.dtype, v, Scalar(v).to_int()); };
    if (op.kind == TracedOp::Cast) value = operand_text(op, 0);
    else if (op.kind == TracedOp::Where)
      value = text(operand_text(op, 0), " ? ", operand_text(op, 1), " : ", operand_text(op, 2));
    else if (op.table == &lerp_forward)
      value = text("lerp_of<", T, ">(", operand_text(op, 0), ", ", operand_text(op, 1), ", ", operand_text(op, 2), ")");
    else if (op.count == 1)
      value = text("op_", op.table->name(), "<", T, ">(", operand_text(op, 0), ", ", parameter(op.p0), ", ",
                   parameter(op.p1), ")");
    else
      value = text("op_", op.table->name(), "<", T, ">(", operand_text(op, 0), ", ", operand_text(op, 1), ", ",
                   parameter(op.p0), ")");
    const char* end = pointwise::has_16_bits(op.out) ? "" : "keep";
    s += text("  ", arithmetic(op.out), " v", arguments + i, " = ", end, "(widen(To<", storage(op.out), ">::of(", value,
              ")));\n");
  }
  return s + text("  return To<", storage(p.dtype_of(p.result)), ">::of(v", p.result,
                  ");\n}\n}  // namespace sf\nusing namespace sf;\n");
}

std::string call_text(const TracedProgram& p, auto argument) {
  std::string s = "compute(";
  for (int k = 0; k < int(p.arguments.size()); ++k) s += text(k ? ", " : "", argument(k));
  return s + ")";
}

std::string dense_kernel(const TracedProgram& p, const FusedLayout& l) {
  std::string s = text("  const int V = ", l.lanes, ";\n  long long first = (blockIdx.x * 256LL + threadIdx.x) * V;\n");
  auto one = [&](const char* at) {
    return call_text(p, [&](int k) { return text("in", k, l.splat[size_t(k)] ? "[0]" : at); });
  };
  s += "  if (first + V > n) {\n";
  s += text("    for (long long i = first; i < n; ++i) out[i] = ", one("[i]"), ";\n    return;\n  }\n");
  const char* out = storage(p.dtype_of(p.result));
  for (int k = 0; k < int(p.arguments.size()); ++k) {
    const char* t = storage(p.arguments[size_t(k)]);
    if (l.splat[size_t(k)]) s += text("  ", t, " x", k, " = in", k, "[0];\n");
    else s += text("  Vec<", t, ", V> x", k, " = *reinterpret_cast<const Vec<", t, ", V>*>(in", k, " + first);\n");
  }
  s += text("  Vec<", out, ", V> y;\n#pragma unroll\n  for (int i = 0; i < V; ++i) y.v[i] = ",
            call_text(p, [&](int k) { return text("x", k, l.splat[size_t(k)] ? "" : ".v[i]"); }), ";\n");
  return s + text("  *reinterpret_cast<Vec<", out, ", V>*>(out + first) = y;\n");
}

std::string strided_kernel(const TracedProgram& p, const FusedLayout& l) {
  std::string s = "  long long first = blockIdx.x * 256LL + threadIdx.x, rest = first;\n  if (first >= n) return;\n";
  const int arguments = int(p.arguments.size());
  for (int k = 0; k < arguments; ++k) s += text("  long long at", k, " = 0;\n");
  for (int d = 0; d < l.ndim; ++d) {
    bool last = d + 1 == l.ndim;
    s += last ? text("  long long i", d, " = rest;\n")
              : text("  long long q", d, " = rest / places.sizes[", d, "], i", d, " = rest - q", d, " * places.sizes[",
                     d, "];\n");
    for (int k = 0; k < arguments; ++k) s += text("  at", k, " += i", d, " * places.strides[", k, "][", d, "];\n");
    if (!last) s += text("  rest = q", d, ";\n");
  }
  return s + text("  out[first] = ", call_text(p, [](int k) { return text("in", k, "[at", k, "]"); }), ";\n");
}

}  // namespace

FusedLayout::FusedLayout(const FusedCall& c, const FusedWalk& w) {
  const TracedProgram& p = *c.program;
  size_t largest = size_of(c.out.dtype);
  for (DType t : p.arguments) largest = std::max(largest, size_of(t));
  lanes = int(std::min<size_t>(8, 16 / largest));
  auto aligned = [&](const void* data, DType t) {
    return reinterpret_cast<uintptr_t>(data) % (size_of(t) * size_t(lanes)) == 0;
  };
  bool vectors = aligned(c.out.data, c.out.dtype);
  bool dense = w.ndim == 1;
  for (size_t k = 0; k < p.arguments.size(); ++k) {
    bool one = w.strides[k][0] == 0;
    splat.push_back(one);
    dense = dense && (one || w.strides[k][0] == 1);
    vectors = vectors && (one || aligned(c.in[k].data, p.arguments[k]));
  }
  if (!dense) {
    ndim = w.ndim;
    lanes = 1;
    splat.clear();
  } else if (!vectors) {
    lanes = 1;
  }
}

static std::atomic<int64_t> g_sources_built{0};
int64_t fused_cuda_sources_built() { return g_sources_built; }

std::string fused_cuda_source(const TracedProgram& p, const FusedLayout& l) {
  ++g_sources_built;
  std::string s = math() + op_functions(p) + compute_function(p);
  const int arguments = int(p.arguments.size());
  if (l.ndim > 0)
    s += text("struct Places { long long sizes[", l.ndim, "], strides[", arguments, "][", l.ndim, "]; };\n");
  s += text("extern \"C\" __global__ void __launch_bounds__(256) fused(", storage(p.dtype_of(p.result)),
            "* __restrict__ out");
  for (int k = 0; k < arguments; ++k) s += text(", const ", storage(p.arguments[size_t(k)]), "* __restrict__ in", k);
  s += l.ndim > 0 ? ", long long n, Places places) {\n" : ", long long n) {\n";
  return s + (l.ndim > 0 ? strided_kernel(p, l) : dense_kernel(p, l)) + "}\n";
}

}  // namespace sf
