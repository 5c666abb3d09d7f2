// Maths for results that are stored as bfloat16: relative errors of 2^-12, an eighth of that type's own rounding, at
// half the cost of simd_math.h. The functions on Vec<T> at the end choose by the type that is stored.
// Included only by *.cpu.cpp files and the headers beside them; everything inlines.
#pragma once
#include <type_traits>

#include "scaffolding/backend/cpu/simd_rows.h"

namespace sf {
namespace SF_ISA {

// 1 / d for d in [2^-126, 2^126], 1.2e-7 relative: a division occupies the divider for as long as eight
// multiplications.
SF_INLINE vf reciprocal(vf d) {
#if defined(__AVX512F__)
  vf r = (vf_raw)_mm512_rcp14_ps((__m512)d.v);
  return r * (vf(2.f) - d * r);
#else
  return vf(1.f) / d;
#endif
}
SF_INLINE double reciprocal(double d) { return 1 / d; }
// The same, 6e-5 relative.
SF_INLINE vf reciprocal_short(vf d) {
#if defined(__AVX512F__)
  return (vf_raw)_mm512_rcp14_ps((__m512)d.v);
#else
  return vf(1.f) / d;
#endif
}

// e^x, 1.2e-4 relative, for finite x with -1e4 < x < 88. 0 below the normal numbers.
SF_INLINE vf exp_short(vf x) {
#if defined(__AVX512F__)
  // x = v ln2 + r with v a multiple of 1/16; 2^(v - floor v) from a table; e^r = 1 + r,
  // the table's factor halves the error.
  const __m512 table =
      _mm512_setr_ps(1.0001169f, 1.0443959f, 1.0906353f, 1.1389219f, 1.1893462f, 1.2420031f, 1.2969912f, 1.3544140f,
                     1.4143790f, 1.4769989f, 1.5423913f, 1.6106788f, 1.6819896f, 1.7564577f, 1.8342227f, 1.9154307f);
  constexpr float kMagic = 0x1.8p19f;  // u = kMagic + v holds 16 v in its low bits
  vf u = fma(x, vf(1.44269504f), vf(kMagic)), v = u - vf(kMagic), r = fma(v, vf(-0.69314718f), x);
  vf p = (vf_raw)_mm512_permutexvar_ps((__m512i)u.v, table);
  return (vf_raw)_mm512_scalef_ps((__m512)fma(p, r, p).v, (__m512)v.v);
#else
  x = max(vf(-88.f), x);  // n = -127 scales by the bits of 0
  vf t = fma(x, vf(1.44269504f), vf(kRoundMagic)), r = fma(t - vf(kRoundMagic), vf(-0.69314718f), x);
  vf p = fma(fma(fma(vf(0.165667464f), r, vf(0.504963419f)), r, vf(1.00016432f)), r, vf(0.999928071f));
  return scale_by_normal(p, t);
#endif
}

// 1 / (1 + e^-x), 2e-4 relative, for any x; 0 where e^-x overflows.
SF_INLINE vf sigmoid_short(vf x) {
#if defined(__AVX512DQ__)
  // exp_short(-x) with the sign in the constants, and one instruction for both bounds: the smaller magnitude, x's sign.
  const __m512 table =
      _mm512_setr_ps(1.0001169f, 1.0443959f, 1.0906353f, 1.1389219f, 1.1893462f, 1.2420031f, 1.2969912f, 1.3544140f,
                     1.4143790f, 1.4769989f, 1.5423913f, 1.6106788f, 1.6819896f, 1.7564577f, 1.8342227f, 1.9154307f);
  constexpr float kMagic = 0x1.8p19f;
  vf c = (vf_raw)_mm512_range_ps((__m512)x.v, _mm512_set1_ps(200.f), 0x2);
  vf u = fma(c, vf(-1.44269504f), vf(kMagic)), v = u - vf(kMagic);
  vf r = (vf_raw)_mm512_fnmsub_ps((__m512)v.v, _mm512_set1_ps(0.69314718f), (__m512)c.v);
  vf p = (vf_raw)_mm512_permutexvar_ps((__m512i)u.v, table);
  return reciprocal_short(vf(1.f) + (vf_raw)_mm512_scalef_ps((__m512)fma(p, r, p).v, (__m512)v.v));
#else
  return reciprocal_short(vf(1.f) + exp_short(max(vf(-200.f), min(vf(87.f), -x))));
#endif
}

// x Phi(x) = max(x, 0) - |x| Phi(-|x|), and log Phi(-a) is nearly a parabola: our minimax fit on [0, 6], 2e-4 relative
// for a < 3.5 and 3e-3 at 6, where the product is 6e-9.
SF_INLINE vf gelu_short(vf x) {
  vf a = min(vf(16.f), abs(x));  // NaN passes
  vf p = vf(-0.000168251165f);
  p = fma(p, a, vf(0.00346917752f));
  p = fma(p, a, vf(-0.0313519314f));
  p = fma(p, a, vf(-0.324767649f));
  p = fma(p, a, vf(-0.795000792f));
  p = fma(p, a, vf(-0.693352997f));
  return max(vf(0.f), x) - a * exp_short(p);
}

// ---- by the stored type: V is vf, or double where T is double
template <class T> inline constexpr bool kShort = std::is_same_v<T, BFloat16>;

// For arguments <= 88, minus infinity included; NaN stays NaN.
template <class T, class V> SF_INLINE V exp_for(V x) {
  if constexpr (kShort<T>) return exp_short(max(vf(-200.f), x));
  else return exp_fast(x);
}
// z sigmoid(z) for any z; below -87 a number of that size (1e-36) instead of 0.
template <class T, class V> SF_INLINE V silu_for(V z) {
  if constexpr (kShort<T>) return z * sigmoid_short(z);
  else if constexpr (std::is_same_v<V, vf>) return z * reciprocal(vf(1.f) + exp_fast(min(vf(87.f), -z)));
  else return z / (V(1.f) + exp_fast(-z));
}

// z sigmoid(z) from t = kSiluScale<T> z, for callers whose own coefficients can take the scale in: 17 and 11 operations
// instead of 21 and 13 (float32, bfloat16). 2^t is 2^v 2^r, v a multiple of 1/16, and 1 / (scale (1 + 2^v 2^r))
// comes of one multiply-add.
#if defined(__AVX512F__)
template <class T> inline constexpr double kSiluScale = std::is_same_v<T, double> ? 1 : -1.4426950408889634;
template <class T> SF_INLINE double silu_scaled(double t) { return t / (1 + exp_fast(-t)); }
template <class T> SF_INLINE vf silu_scaled(vf t) {
  constexpr float kMagic = 0x1.8p19f, kScale = float(kSiluScale<T>);
  if constexpr (kShort<T>) {  // 2^(k/16), times what halves the error of 1 + r ln2. No bounds: 2^v saturates
    const __m512 powers =
        _mm512_setr_ps(1.0001169f, 1.0443959f, 1.0906353f, 1.1389219f, 1.1893462f, 1.2420031f, 1.2969912f, 1.3544140f,
                       1.4143790f, 1.4769989f, 1.5423913f, 1.6106788f, 1.6819896f, 1.7564577f, 1.8342227f, 1.9154307f);
    vf u = t + vf(kMagic), v = u - vf(kMagic), r = t - v;
    vf p = (vf_raw)_mm512_permutexvar_ps((__m512i)u.v, powers);
    vf s = (vf_raw)_mm512_scalef_ps((__m512)p.v, (__m512)v.v);
    return t * reciprocal_short(fma(s, fma(r, vf(0.69314718f * kScale), vf(kScale)), vf(kScale)));
  } else {
    const __m512 powers = _mm512_setr_ps(1.f, 1.04427378f, 1.09050773f, 1.13878863f, 1.18920712f, 1.24185781f,
                                         1.29683955f, 1.35425555f, 1.41421356f, 1.47682615f, 1.54221083f, 1.61049033f,
                                         1.68179283f, 1.75625216f, 1.83400809f, 1.91520656f);
    vf c = min(vf(125.f), t);  // NaN passes
    vf u = c + vf(kMagic), v = u - vf(kMagic), r = c - v;
    vf p = (vf_raw)_mm512_permutexvar_ps((__m512i)u.v, powers);
    vf s = (vf_raw)_mm512_scalef_ps((__m512)p.v, (__m512)v.v);
    vf q = fma(fma(vf(0.055504109f * kScale), r, vf(0.24022651f * kScale)), r, vf(0.69314718f * kScale));
    return t * reciprocal(fma(s, fma(q, r, vf(kScale)), vf(kScale)));
  }
}
#else
template <class T> inline constexpr double kSiluScale = 1;
template <class T, class V> SF_INLINE V silu_scaled(V t) { return silu_for<T>(t); }
#endif

}  // namespace SF_ISA
}  // namespace sf
