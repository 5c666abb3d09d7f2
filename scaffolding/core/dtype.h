// Element types. Each is stored at its true size; float8 types are storage only (convert to compute).
#pragma once
#include <cstddef>
#include <string_view>

#include "scaffolding/core/half.h"

namespace sf {

enum class DType : uint8_t {
  UInt8,
  Int8,
  Int16,
  Int32,
  Int64,
  Float16,
  Float32,
  Float64,
  Bool,
  BFloat16,
  Float8E4M3,
  Float8E5M2
};
inline constexpr int kNumDTypes = 12;

inline constexpr DType kUInt8 = DType::UInt8, kInt8 = DType::Int8, kInt16 = DType::Int16, kInt32 = DType::Int32,
                       kInt64 = DType::Int64, kFloat16 = DType::Float16, kFloat32 = DType::Float32,
                       kFloat64 = DType::Float64, kBool = DType::Bool, kBFloat16 = DType::BFloat16,
                       kFloat8E4M3 = DType::Float8E4M3, kFloat8E5M2 = DType::Float8E5M2;

SF_INLINE constexpr size_t size_of(DType t) {
  constexpr uint8_t bytes[kNumDTypes] = {1, 1, 2, 4, 8, 2, 4, 8, 1, 2, 1, 1};
  return bytes[int(t)];
}
SF_INLINE constexpr bool is_float8(DType t) { return t == kFloat8E4M3 || t == kFloat8E5M2; }
SF_INLINE constexpr bool is_floating(DType t) {
  return t == kFloat32 || t == kFloat64 || t == kFloat16 || t == kBFloat16 || is_float8(t);
}
SF_INLINE constexpr bool is_integral(DType t) { return !is_floating(t) && t != kBool; }
// 16-bit floats compute in float32; the others in their own type.
SF_INLINE constexpr bool is_reduced(DType t) { return t == kFloat16 || t == kBFloat16; }

std::string_view name(DType t);  // "float32", torch's names
bool dtype_from_name(std::string_view name, DType& out);
DType promote(DType a, DType b);  // torch.promote_types
DType default_dtype();            // float32 unless changed
void set_default_dtype(DType t);  // floating types only

template <class T> struct dtype_of;
template <> struct dtype_of<uint8_t> { static constexpr DType value = kUInt8; };
template <> struct dtype_of<int8_t> { static constexpr DType value = kInt8; };
template <> struct dtype_of<int16_t> { static constexpr DType value = kInt16; };
template <> struct dtype_of<int32_t> { static constexpr DType value = kInt32; };
template <> struct dtype_of<int64_t> { static constexpr DType value = kInt64; };
template <> struct dtype_of<Half> { static constexpr DType value = kFloat16; };
template <> struct dtype_of<float> { static constexpr DType value = kFloat32; };
template <> struct dtype_of<double> { static constexpr DType value = kFloat64; };
template <> struct dtype_of<bool> { static constexpr DType value = kBool; };
template <> struct dtype_of<BFloat16> { static constexpr DType value = kBFloat16; };
template <> struct dtype_of<Float8E4M3> { static constexpr DType value = kFloat8E4M3; };
template <> struct dtype_of<Float8E5M2> { static constexpr DType value = kFloat8E5M2; };

template <class T> struct type_tag { using type = T; };
// Calls f(type_tag<T>{}) with the C++ type of t. Every dtype has one.
template <class F> SF_INLINE decltype(auto) visit_dtype(DType t, F&& f) {
  switch (t) {
    case kUInt8: return f(type_tag<uint8_t>{});
    case kInt8: return f(type_tag<int8_t>{});
    case kInt16: return f(type_tag<int16_t>{});
    case kInt32: return f(type_tag<int32_t>{});
    case kInt64: return f(type_tag<int64_t>{});
    case kFloat16: return f(type_tag<Half>{});
    case kFloat32: return f(type_tag<float>{});
    case kFloat64: return f(type_tag<double>{});
    case kBool: return f(type_tag<bool>{});
    case kBFloat16: return f(type_tag<BFloat16>{});
    case kFloat8E4M3: return f(type_tag<Float8E4M3>{});
    default: return f(type_tag<Float8E5M2>{});
  }
}

}  // namespace sf
