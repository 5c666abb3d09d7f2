// Scalar: a bool, integer or real number that never widens a tensor's dtype (half * 2.0 stays half).
#pragma once
#include <concepts>
#include <cstdint>

#include "scaffolding/core/dtype.h"

namespace sf {

class Scalar {
 public:
  enum Kind : uint8_t { Bool, Int, Float };
  Scalar() : Scalar(int64_t(0)) {}
  Scalar(bool v) : kind_(Bool), i_(v) {}
  template <std::integral I> Scalar(I v) : kind_(Int), i_(int64_t(v)) {}
  template <std::floating_point F> Scalar(F v) : kind_(Float), d_(double(v)) {}

  Kind kind() const { return kind_; }
  bool is_float() const { return kind_ == Float; }
  double to_double() const { return kind_ == Float ? d_ : double(i_); }
  int64_t to_int() const { return kind_ != Float ? i_ : saturated(d_); }
  bool to_bool() const { return kind_ == Float ? d_ != 0 : i_ != 0; }
  DType dtype() const { return kind_ == Float ? default_dtype() : kind_ == Int ? kInt64 : kBool; }

 private:
  static int64_t saturated(double d) {
    return d != d ? 0 : d >= 9.2233720368547758e18 ? INT64_MAX : d <= -9.2233720368547758e18 ? INT64_MIN : int64_t(d);
  }
  Kind kind_;
  union {
    int64_t i_;
    double d_;
  };
};

// The dtype of tensor (op) scalar: the tensor's, unless the scalar is of a higher category (int tensor, float scalar).
inline DType promote(DType t, const Scalar& s) {
  if (s.kind() == Scalar::Float && !is_floating(t)) return default_dtype();
  if (s.kind() == Scalar::Int && t == kBool) return kInt64;
  return t;
}

}  // namespace sf
