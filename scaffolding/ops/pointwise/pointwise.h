// Elementwise ops. Tensors broadcast; dtypes promote as in torch; a C++ or Python number never widens a tensor.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// ---- one tensor: unary.def
#define SF_UNARY(name, ...) Tensor name(const Tensor& input);
#define SF_UNARY_P(...)
#include "scaffolding/ops/pointwise/unary.def"
#undef SF_UNARY
#undef SF_UNARY_P
Tensor gelu(const Tensor& input, const std::string& approximate = "none");  // "none" (erf) or "tanh"
Tensor leaky_relu(const Tensor& input, double negative_slope = 0.01);
Tensor elu(const Tensor& input, double alpha = 1);
Tensor softplus(const Tensor& input, double beta = 1, double threshold = 20);
Tensor clamp(const Tensor& input, std::optional<Scalar> min = {}, std::optional<Scalar> max = {});
Tensor bitwise_not(const Tensor& input);
#define SF_PREDICATE(name, ...) Tensor name(const Tensor& input);  // logical_not, isnan, isinf, isfinite
#include "scaffolding/ops/pointwise/predicate.def"
#undef SF_PREDICATE

// ---- two tensors: binary.def, compare.def and bitwise.def
Tensor add(const Tensor& input, const Tensor& other, const Scalar& alpha = 1);  // input + alpha * other
Tensor sub(const Tensor& input, const Tensor& other, const Scalar& alpha = 1);
Tensor div(const Tensor& input, const Tensor& other,
           const std::optional<std::string>& rounding_mode = {});  // "floor" or "trunc"
#define SF_BINARY(name, ...) Tensor name(const Tensor& input, const Tensor& other);
#define SF_BINARY_P(...)
#define SF_COMPARE(name, ...) Tensor name(const Tensor& input, const Tensor& other);
#define SF_BITWISE SF_COMPARE
#include "scaffolding/ops/pointwise/binary.def"
#include "scaffolding/ops/pointwise/bitwise.def"
#include "scaffolding/ops/pointwise/compare.def"
#undef SF_BINARY
#undef SF_BINARY_P
#undef SF_COMPARE
#undef SF_BITWISE

// ---- three
Tensor where(const Tensor& condition, const Tensor& input, const Tensor& other);  // condition: bool
Tensor lerp(const Tensor& input, const Tensor& end, const Tensor& weight);
Tensor masked_fill(const Tensor& input, const Tensor& mask, const Scalar& value);

// The dtype two tensors compute in: torch.result_type (0-d tensors and numbers do not widen within a category).
DType result_type(const Tensor& a, const Tensor& b);
// A number as a 0-d tensor that does not widen dtypes.
Tensor wrapped(const Scalar& s);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator-(const Tensor& a) { return neg(a); }
#define SF_SCALAR_OPERATOR(op, fn)                                                          \
  inline Tensor operator op(const Tensor& a, const Scalar& b) { return fn(a, wrapped(b)); } \
  inline Tensor operator op(const Scalar& a, const Tensor& b) { return fn(wrapped(a), b); }
SF_SCALAR_OPERATOR(+, add)
SF_SCALAR_OPERATOR(-, sub)
SF_SCALAR_OPERATOR(*, mul)
SF_SCALAR_OPERATOR(/, div)
#undef SF_SCALAR_OPERATOR

}  // namespace sf
