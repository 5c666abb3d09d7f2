// Expr: a tensor or a number with the operators and functions of the .def expressions. Evaluating a gradient with
// T = Expr runs it as ops on the tape, which is how pointwise ops get second derivatives.
#pragma once
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::pointwise::expr {

struct Expr {
  Tensor t;
  Expr(const Tensor& x) : t(x) {}
  Expr(double v) : t(wrapped(v)) {}
  explicit Expr(int v) : t(wrapped(double(v))) {}
};

// Two numbers stay a number, in double precision; anything else is an op on tensors.
#define SF_EXPR_ARITHMETIC(op, fn)                                                             \
  inline Expr operator op(const Expr& a, const Expr& b) {                                      \
    if (a.t.impl()->is_scalar && b.t.impl()->is_scalar) return Expr(a.t.item() op b.t.item()); \
    return sf::fn(a.t, b.t);                                                                   \
  }
SF_EXPR_ARITHMETIC(+, add)
SF_EXPR_ARITHMETIC(-, sub)
SF_EXPR_ARITHMETIC(*, mul)
SF_EXPR_ARITHMETIC(/, div)
#undef SF_EXPR_ARITHMETIC
inline Expr operator-(const Expr& a) { return sf::neg(a.t); }
inline Expr operator<(const Expr& a, const Expr& b) { return sf::lt(a.t, b.t); }
inline Expr operator<=(const Expr& a, const Expr& b) { return sf::le(a.t, b.t); }
inline Expr operator>(const Expr& a, const Expr& b) { return sf::gt(a.t, b.t); }
inline Expr operator>=(const Expr& a, const Expr& b) { return sf::ge(a.t, b.t); }
inline Expr operator==(const Expr& a, const Expr& b) { return sf::eq(a.t, b.t); }
inline Expr select(const Expr& m, const Expr& a, const Expr& b) { return sf::where(m.t, a.t, b.t); }
inline Expr zero(const Expr& a) { return zeros_like(a.t); }
// a * p where p is a parameter: nothing to do when it is 1.
inline Expr times(const Expr& a, const Expr& p) { return p.t.item() == 1 ? a : a * p; }
inline Expr square_of(const Expr& a) { return sf::square(a.t); }
inline Expr softplus_of(const Expr& a) { return sf::softplus(a.t); }
// Functions of a number are a number again, in double precision.
inline Tensor keep_number(const Expr& a, Tensor y) {
  y.impl()->is_scalar = a.t.impl()->is_scalar;
  return y;
}
#define SF_EXPR1(name) \
  inline Expr name(const Expr& a) { return keep_number(a, sf::name(a.t.impl()->is_scalar ? a.t.to(kFloat64) : a.t)); }
SF_EXPR1(abs)
SF_EXPR1(sign)
SF_EXPR1(floor)
SF_EXPR1(ceil)
SF_EXPR1(round)
SF_EXPR1(trunc)
SF_EXPR1(exp)
SF_EXPR1(exp2)
SF_EXPR1(expm1)
SF_EXPR1(log)
SF_EXPR1(log2)
SF_EXPR1(log1p)
SF_EXPR1(sqrt)
SF_EXPR1(rsqrt)
SF_EXPR1(sin)
SF_EXPR1(cos)
SF_EXPR1(tan)
SF_EXPR1(tanh)
SF_EXPR1(sigmoid)
SF_EXPR1(erf)
#undef SF_EXPR1
inline Expr normal_cdf(const Expr& x) { return Expr(0.5) * (Expr(1.0) + erf(x * Expr(0.70710678118654752440))); }
inline Expr gelu_of(const Expr& x) { return x * normal_cdf(x); }
inline Expr gelu_slope_of(const Expr& x) {
  return normal_cdf(x) + x * Expr(0.39894228040143267794) * exp(Expr(-0.5) * x * x);
}
#define SF_EXPR2(name) \
  inline Expr name(const Expr& a, const Expr& b) { return sf::name(a.t, b.t); }
SF_EXPR2(pow)
SF_EXPR2(maximum)
SF_EXPR2(minimum)
SF_EXPR2(atan2)
SF_EXPR2(remainder)
SF_EXPR2(fmod)
SF_EXPR2(floor_divide)
#undef SF_EXPR2

#include "scaffolding/ops/pointwise/expressions.h"

}  // namespace sf::pointwise::expr
