// The 16- and 8-bit floating-point types as plain bits, with conversions to and from float.
// Conversions round to nearest even; constexpr, so that CUDA kernels may call them. Safe to include from files compiled
// for an instruction set: everything inlines.
#pragma once
#include <bit>
#include <cstdint>

#define SF_INLINE [[gnu::always_inline]] inline

namespace sf {

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
struct Float8E4M3 {
  uint8_t bits;
};  // float8_e4m3fn: no infinities, NaN = 0x7f, largest 448
struct Float8E5M2 {
  uint8_t bits;
};  // IEEE-like, largest 57344

SF_INLINE constexpr float to_float(BFloat16 x) { return std::bit_cast<float>(uint32_t(x.bits) << 16); }
SF_INLINE constexpr BFloat16 to_bfloat16(float f) {
  uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {uint16_t((u >> 16) | 0x40)};  // NaN stays NaN, quiet
  return {uint16_t((u + 0x7fffu + ((u >> 16) & 1)) >> 16)};
}

// Half: exponent 5 bits (bias 15), mantissa 10. Subnormals are handled by scaling with 2^112.
SF_INLINE constexpr float to_float(Half x) {
  uint32_t sign = uint32_t(x.bits & 0x8000u) << 16, em = x.bits & 0x7fffu;
  if (em >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((em & 0x3ffu) << 13));
  float magnitude = std::bit_cast<float>(em << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}
SF_INLINE constexpr Half to_half(float f) {
  uint32_t u = std::bit_cast<uint32_t>(f), sign = (u >> 16) & 0x8000u;
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return {uint16_t(sign | 0x7e00u | ((u >> 13) & 0x3ffu))};
  if (u >= 0x477ff000u) return {uint16_t(sign | 0x7c00u)};  // rounds past 65504: infinity
  if (u < 0x38800000u) {                                    // subnormal half: let the adder round
    float r = std::bit_cast<float>(u) + 0.5f;               // ulp of 0.5f is 2^-24, the smallest half
    return {uint16_t(sign | (std::bit_cast<uint32_t>(r) - 0x3f000000u))};
  }
  u += 0xfffu + ((u >> 13) & 1);
  return {uint16_t(sign | ((u - 0x38000000u) >> 13))};
}

SF_INLINE constexpr float to_float(Float8E4M3 x) {
  uint32_t sign = uint32_t(x.bits & 0x80u) << 24, em = x.bits & 0x7fu;
  if (em == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  float magnitude = std::bit_cast<float>(em << 20) * 0x1p120f;  // bias 7 -> 127
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}
SF_INLINE constexpr Float8E4M3 to_float8_e4m3(float f) {
  uint32_t u = std::bit_cast<uint32_t>(f);
  uint8_t sign = uint8_t((u >> 24) & 0x80u);
  u &= 0x7fffffffu;
  if (u >= 0x43f00000u) return {uint8_t(sign | 0x7fu)};  // >= 480 rounds past 448: NaN, as torch does
  if (u < 0x3c800000u) {                                 // below 2^-6: subnormal, step 2^-9
    float r = std::bit_cast<float>(u) + 0x1p14f;         // ulp of 2^14 is 2^-9
    return {uint8_t(sign | (std::bit_cast<uint32_t>(r) - 0x46800000u))};
  }
  u += 0x7ffffu + ((u >> 20) & 1);
  return {uint8_t(sign | ((u - 0x3c000000u) >> 20))};
}

SF_INLINE constexpr float to_float(Float8E5M2 x) { return to_float(Half{uint16_t(uint16_t(x.bits) << 8)}); }
SF_INLINE constexpr Float8E5M2 to_float8_e5m2(float f) {
  uint32_t u = std::bit_cast<uint32_t>(f);
  uint8_t sign = uint8_t((u >> 24) & 0x80u);
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return {uint8_t(sign | 0x7fu)};
  if (u >= 0x47700000u) return {uint8_t(sign | 0x7cu)};  // >= 61440 rounds past 57344: infinity
  if (u < 0x38800000u) {                                 // below 2^-14: step 2^-16
    float r = std::bit_cast<float>(u) + 0x1p7f;          // ulp of 2^7 is 2^-16
    return {uint8_t(sign | (std::bit_cast<uint32_t>(r) - 0x43000000u))};
  }
  u += 0xfffffu + ((u >> 21) & 1);
  return {uint8_t(sign | ((u - 0x38000000u) >> 21))};
}

// One name for "convert from float", used by templates over element types.
template <class T> SF_INLINE constexpr T from_float(float f) { return T(f); }
template <> SF_INLINE constexpr Half from_float<Half>(float f) { return to_half(f); }
template <> SF_INLINE constexpr BFloat16 from_float<BFloat16>(float f) { return to_bfloat16(f); }
template <> SF_INLINE constexpr Float8E4M3 from_float<Float8E4M3>(float f) { return to_float8_e4m3(f); }
template <> SF_INLINE constexpr Float8E5M2 from_float<Float8E5M2>(float f) { return to_float8_e5m2(f); }
SF_INLINE constexpr float to_float(float f) { return f; }

}  // namespace sf
