// Maths on vectors of float32 (vf), with scalar overloads of the same names for double and float, so that one
// expression template over T serves all three:
//   template <class T> T silu(T x) { return x * sigmoid(x); }        // T = vf, double or float
//
// Largest errors found against double libm (every 127th float, each instruction set), in units in the last place:
//   exp 1.1  exp2 1.1  expm1 1.4  log 0.8  log2 1.2  log10 2.1  log1p 1.5  sqrt 0.5  rsqrt 1.5  sin, cos 1.5  tan 3.1
//   atan, atan2 2.0  tanh 1.3  sigmoid 2.2  erf 1.1  pow 1.3  exp_fast, exp2_fast 2.2
// relative also near the zeros of expm1, log1p, tanh, erf and sin; infinities, NaN, denormals and gradual underflow
// come out as libm's. Scalars call libm.
// Included only by *.cpu.cpp files, like simd.h: everything inlines, nothing is seen by another instruction set.
//
// Method: argument reduction by adding 1.5 * 2^23 (rounds to an integer and leaves it in the low bits), then a minimax
// polynomial. Coefficients of exp and exp2 are our own Lawson fits; log is Cephes' logf; erf, atan, sin and cos use
// N. Juffa's published minimax sets.
#pragma once
#include "scaffolding/backend/cpu/simd.h"

namespace sf {
namespace SF_ISA {

typedef uint32_t vu_raw __attribute__((vector_size(kLanes * 4)));

template <class T> SF_INLINE T constant(double x) { return T(x); }

// ---- scalars: libm under the same names
// ------------------------------------------------------------------------------
#define SF_SCALAR_1(name, fn)                                   \
  SF_INLINE double name(double x) { return __builtin_##fn(x); } \
  SF_INLINE float name(float x) { return __builtin_##fn##f(x); }
SF_SCALAR_1(exp, exp)
SF_SCALAR_1(exp2, exp2)
SF_SCALAR_1(exp_fast, exp)
SF_SCALAR_1(exp2_fast, exp2)
SF_SCALAR_1(expm1, expm1)
SF_SCALAR_1(log, log)
SF_SCALAR_1(log2, log2)
SF_SCALAR_1(log10, log10)
SF_SCALAR_1(log1p, log1p)
SF_SCALAR_1(sqrt, sqrt)
SF_SCALAR_1(sin, sin)
SF_SCALAR_1(cos, cos)
SF_SCALAR_1(tan, tan)
SF_SCALAR_1(atan, atan)
SF_SCALAR_1(tanh, tanh)
SF_SCALAR_1(erf, erf)
SF_SCALAR_1(floor, floor)
SF_SCALAR_1(ceil, ceil)
SF_SCALAR_1(trunc, trunc)
SF_SCALAR_1(round, rint)
SF_SCALAR_1(abs, fabs)
#undef SF_SCALAR_1

#define SF_SCALAR(T, f)                                                     \
  SF_INLINE T pow(T x, T y) { return __builtin_pow##f(x, y); }              \
  SF_INLINE T atan2(T y, T x) { return __builtin_atan2##f(y, x); }          \
  SF_INLINE T copysign(T x, T s) { return __builtin_copysign##f(x, s); }    \
  SF_INLINE T rsqrt(T x) { return T(1) / __builtin_sqrt##f(x); }            \
  SF_INLINE T sigmoid(T x) { return T(1) / (T(1) + __builtin_exp##f(-x)); } \
  SF_INLINE T sign(T x) { return T(x > 0) - T(x < 0); }                     \
  SF_INLINE T max(T a, T b) { return a > b ? a : b; }                       \
  SF_INLINE T min(T a, T b) { return a < b ? a : b; }                       \
  SF_INLINE T maximum(T a, T b) { return a != a || a > b ? a : b; }         \
  SF_INLINE T minimum(T a, T b) { return a != a || a < b ? a : b; }         \
  SF_INLINE T select(bool m, T a, T b) { return m ? a : b; }                \
  SF_INLINE bool isnan(T x) { return x != x; }                              \
  SF_INLINE bool isinf(T x) { return __builtin_fabs##f(x) == T(__builtin_inf()); }
SF_SCALAR(double, )
SF_SCALAR(float, f)
#undef SF_SCALAR
SF_INLINE float fma(float a, float b, float c) { return a * b + c; }
SF_INLINE bool any(bool m) { return m; }
SF_INLINE bool all(bool m) { return m; }

// ---- vectors: bits and comparisons
// -----------------------------------------------------------------------------------
SF_INLINE bool any(vm m) {
#if defined(__AVX512DQ__)
  return _mm512_movepi32_mask((__m512i)m.m) != 0;
#elif defined(__AVX__)
  return _mm256_movemask_ps((__m256)m.m) != 0;
#elif SF_SSE
  return _mm_movemask_ps((__m128)m.m) != 0;
#else
  int32_t r = 0;
  for (int i = 0; i < kLanes; ++i) r |= m.m[i];
  return r != 0;
#endif
}
SF_INLINE bool all(vm m) { return !any(!m); }

SF_INLINE vm isnan(vf x) { return x != x; }
SF_INLINE vm isinf(vf x) { return {vi_raw(bits(abs(x)) == 0x7f800000)}; }
SF_INLINE vf copysign(vf x, vf s) { return from_bits((bits(x) & 0x7fffffff) | (bits(s) & INT32_MIN)); }
// 0 for NaN, as torch.sign
SF_INLINE vf sign(vf x) { return select(x > vf(0.f), vf(1.f), select(x < vf(0.f), vf(-1.f), vf(0.f))); }
SF_INLINE vf maximum(vf a, vf b) { return select(isnan(a), a, max(a, b)); }  // NaN if either is, as torch.maximum
SF_INLINE vf minimum(vf a, vf b) { return select(isnan(a), a, min(a, b)); }

#if defined(__AVX512F__)
#define SF_ROUND(name, mode, scalar) \
  SF_INLINE vf name(vf x) { return (vf_raw)_mm512_roundscale_ps((__m512)x.v, (mode) | _MM_FROUND_NO_EXC); }
#elif defined(__AVX__)
#define SF_ROUND(name, mode, scalar) \
  SF_INLINE vf name(vf x) { return (vf_raw)_mm256_round_ps((__m256)x.v, (mode) | _MM_FROUND_NO_EXC); }
#elif SF_SSE
#define SF_ROUND(name, mode, scalar) \
  SF_INLINE vf name(vf x) { return (vf_raw)_mm_round_ps((__m128)x.v, (mode) | _MM_FROUND_NO_EXC); }
#else
#define SF_ROUND(name, mode, scalar)                                      \
  SF_INLINE vf name(vf x) {                                               \
    for (int i = 0; i < kLanes; ++i) x.v[i] = __builtin_##scalar(x.v[i]); \
    return x;                                                             \
  }
#endif
SF_ROUND(floor, _MM_FROUND_TO_NEG_INF, floorf)
SF_ROUND(ceil, _MM_FROUND_TO_POS_INF, ceilf)
SF_ROUND(trunc, _MM_FROUND_TO_ZERO, truncf)
SF_ROUND(round, _MM_FROUND_TO_NEAREST_INT, rintf)  // halves to even, as torch.round
#undef SF_ROUND

SF_INLINE vf sqrt(vf x) {
#if defined(__AVX512F__)
  return (vf_raw)_mm512_sqrt_ps((__m512)x.v);
#elif defined(__AVX__)
  return (vf_raw)_mm256_sqrt_ps((__m256)x.v);
#elif SF_SSE
  return (vf_raw)_mm_sqrt_ps((__m128)x.v);
#else
  for (int i = 0; i < kLanes; ++i) x.v[i] = __builtin_sqrtf(x.v[i]);
  return x;
#endif
}
SF_INLINE vf rsqrt(vf x) { return vf(1.f) / sqrt(x); }

// ---- exponentials
// ----------------------------------------------------------------------------------------------------
inline constexpr float kRoundMagic = 0x1.8p23f;  // t = x + kRoundMagic holds round(x) in its low bits, |x| < 2^22

// p * 2^n where t = n + kRoundMagic and |n| <= 252; overflows to infinity and underflows gradually.
SF_INLINE vf scale_by(vf p, vf t) {
#if defined(__AVX512F__)
  return (vf_raw)_mm512_scalef_ps((__m512)p.v, (__m512)(t.v - kRoundMagic));
#else
  vi_raw n = (vi_raw)((vu_raw)t.v - 0x4b400000u), half = n >> 1;
  vu_raw a = (vu_raw)half + 127u, b = (vu_raw)n - (vu_raw)half + 127u;
  return p.v * (vf_raw)(a << 23) * (vf_raw)(b << 23);
#endif
}
// The same for -126 <= n <= 127, in one multiplication.
SF_INLINE vf scale_by_normal(vf p, vf t) {
#if defined(__AVX512F__)
  return scale_by(p, t);
#else
  return p.v * (vf_raw)(((vu_raw)t.v + 127u) << 23);  // the magic's own bits leave with the shift
#endif
}

SF_INLINE vf exp2_poly(vf r) {  // 2^r on [-0.5, 0.5], 2.0e-9 before rounding
  vf p = vf(0.00015353361959569156f);
  p = fma(p, r, vf(0.0013398873852565885f));
  p = fma(p, r, vf(0.00961843691766262f));
  p = fma(p, r, vf(0.055503323674201965f));
  p = fma(p, r, vf(0.24022647738456726f));
  p = fma(p, r, vf(0.6931471824645996f));
  return fma(p, r, vf(1.f));
}
SF_INLINE vf exp2(vf x) {
  x = min(vf(130.f), max(vf(-160.f), x));  // NaN passes: max and min return their second operand then
  vf t = x + vf(kRoundMagic);
  return scale_by(exp2_poly(x - (t - vf(kRoundMagic))), t);
}

// x = n ln2 + r with |r| <= ln2 / 2; t = n + kRoundMagic. ln2 in two parts: n * 0.693359375 is exact.
SF_INLINE vf exp_reduce(vf x, vf& t) {
  t = fma(x, vf(1.44269504f), vf(kRoundMagic));
  vf n = t - vf(kRoundMagic);
  return fma(n, vf(2.12194440e-4f), fma(n, vf(-0.693359375f), x));
}
SF_INLINE vf exp_poly(vf r) {  // e^r, 3.1e-9 before rounding
  vf p = vf(0.0013814173871651292f);
  p = fma(p, r, vf(0.008368921466171741f));
  p = fma(p, r, vf(0.04166840761899948f));
  p = fma(p, r, vf(0.1666651964187622f));
  p = fma(p, r, vf(0.4999999403953552f));
  return fma(fma(p, r, vf(1.f)), r, vf(1.f));
}
SF_INLINE vf exp(vf x) {
  vf t;
  vf r = exp_reduce(min(vf(90.f), max(vf(-105.f), x)), t);
  return scale_by(exp_poly(r), t);
}
// e^x for -87 <= x <= 88 only (smaller arguments give e^-87): inside functions that saturate.
SF_INLINE vf exp_narrow(vf x) {
  vf t;
  vf r = exp_reduce(max(vf(-87.f), x), t);
  return scale_by_normal(exp_poly(r), t);
}

// One term less and one scaling: 1.7e-7 relative. Results below 2^-126.5 are 0; without AVX-512 results above 2^127.5
// are already infinite. For attention, where arguments are <= 0.
SF_INLINE vf exp2_fast(vf x) {
#if defined(__AVX512F__)
  x = max(vf(-160.f), x);
#else
  x = min(vf(128.f), max(vf(-127.f), x));             // 2^-127 and 2^128 scale by the bits of 0 and infinity
#endif
  vf t = x + vf(kRoundMagic), r = x - (t - vf(kRoundMagic));
  vf p = vf(0.001326472731307149f);
  p = fma(p, r, vf(0.009671512991189957f));
  p = fma(p, r, vf(0.05550733581185341f));
  p = fma(p, r, vf(0.24022242426872253f));
  p = fma(p, r, vf(0.6931470036506653f));
  return scale_by_normal(fma(p, r, vf(1.f)), t);
}
SF_INLINE vf exp_fast(vf x) {
#if defined(__AVX512F__)
  x = max(vf(-110.f), x);
#else
  x = min(vf(88.8f), max(vf(-88.f), x));
#endif
  vf t;
  vf r = exp_reduce(x, t);
  vf p = vf(0.008290058933198452f);
  p = fma(p, r, vf(0.041899312287569046f));
  p = fma(p, r, vf(0.16667647659778595f));
  p = fma(p, r, vf(0.49999138712882996f));
  p = fma(p, r, vf(0.9999997019767761f));
  return scale_by_normal(fma(p, r, vf(1.f)), t);
}

SF_INLINE vf expm1(vf x) {
  vf t;
  vf r = exp_reduce(min(vf(89.f), max(vf(-40.f), x)), t);
  vf p = vf(0.00019845901988446712f);
  p = fma(p, r, vf(0.0013940926874056458f));
  p = fma(p, r, vf(0.008333389647305012f));
  p = fma(p, r, vf(0.04166635870933533f));
  p = fma(p, r, vf(0.1666666567325592f));
  p = fma(p, r, vf(0.5f));
  vf q = fma(p, r * r, r);                       // e^r - 1, 2.4e-10 before rounding
  vf h = scale_by_normal(vf(1.f), t - vf(1.f));  // 2^(n-1): n = 128 must not overflow early
  vf y = fma(q, h, h - vf(0.5f));
  return select(t == vf(kRoundMagic), q, y + y);
}

SF_INLINE vf sigmoid(vf x) { return vf(1.f) / (vf(1.f) + exp(-x)); }

SF_INLINE vf tanh(vf x) {
  vf a = abs(x), s = x * x;
  vf big = vf(1.f) - vf(2.f) / (exp_narrow(min(vf(20.f), a + a)) + vf(1.f));
  vf p = vf(-5.70498872745e-3f);
  p = fma(p, s, vf(2.06390887954e-2f));
  p = fma(p, s, vf(-5.37397155531e-2f));
  p = fma(p, s, vf(1.33314422036e-1f));
  p = fma(p, s, vf(-3.33332819422e-1f));
  vf small = fma(p * s, x, x);
  return select(a < vf(0.625f), small, copysign(big, x));
}

SF_INLINE vf erf(vf x) {
  vf a = abs(x), s = x * x;
  vf r = fma(vf(-0x1.220000p-16f), a, vf(0x1.91cfb2p-12f));
  vf u = fma(vf(-0x1.fd1438p-9f), a, vf(0x1.8d6342p-6f));
  r = fma(r, s, u);
  r = fma(r, a, vf(-0x1.b55cb8p-4f));
  r = fma(r, a, vf(-0x1.450aa0p-1f));
  r = fma(r, a, vf(-0x1.079d0cp-3f));
  r = fma(r, a, -a);
  vf big = vf(1.f) - exp_narrow(r);
  vf p = vf(-0x1.38e000p-11f);
  p = fma(p, s, vf(0x1.471a58p-8f));
  p = fma(p, s, vf(-0x1.b691b2p-6f));
  p = fma(p, s, vf(0x1.ce1c44p-4f));
  p = fma(p, s, vf(-0x1.812700p-2f));
  p = fma(p, s, vf(0x1.06eba8p-3f));
  return select(a > vf(0.927734375f), copysign(big, x), fma(p, x, x));
}

// The normal distribution's cdf, and its density by the way: all that GELU and its gradient need, for one exponential
// (x cdf(x) costs three quarters of x (1 + erf(x / sqrt 2)) / 2, and keeps its digits where that cancels, x < -3).
// Q(u) = t poly(t) e^(-u^2/2) with t = 1 / (1 + 0.27 u), our Lawson fit on [0, 14.5]. Relative error at most 6e-7 for
// |x| <= 3 and below 4e-7 (1 + x^2) everywhere, from the rounding of the exponent. 0 for x < -13.2.
SF_INLINE vf normal_cdf(vf x, vf& density) {
  vf u = abs(x), t = vf(1.f) / fma(u, vf(0.27f), vf(1.f)), e = exp_fast(x * x * vf(-0.5f));
  vf p = vf(0.0289667957f);
  p = fma(p, t, vf(-0.126514256f));
  p = fma(p, t, vf(0.169846386f));
  p = fma(p, t, vf(-0.0692815483f));
  p = fma(p, t, vf(0.107875884f));
  p = fma(p, t, vf(0.0720276237f));
  p = fma(p, t, vf(0.101816371f));
  p = fma(p, t, vf(0.107542053f));
  p = fma(p, t, vf(0.107720703f));
  vf q = p * (t * e);
  density = e * vf(0.398942280f);
  return select(x < vf(0.f), q, vf(1.f) - q);
}
SF_INLINE double normal_cdf(double x, double& density) {
  density = __builtin_exp(-0.5 * x * x) * 0.39894228040143268;
  return 0.5 * __builtin_erfc(x * -0.70710678118654752);
}
SF_INLINE float normal_cdf(float x, float& density) {
  double d, c = normal_cdf(double(x), d);
  density = float(d);
  return float(c);
}

// ---- logarithms
// ------------------------------------------------------------------------------------------------------ x = 2^e (1 +
// f) with 1 + f in [sqrt(1/2), sqrt(2)); returns y with log(1 + f) = f + y. x > 0 and normal or denormal.
SF_INLINE vf log_reduce(vf x, vf& f, vf& e) {
  vm tiny = x < vf(0x1p-126f);
  vi_raw ix = bits(select(tiny, x * vf(0x1p23f), x));
  vi_raw n = (vi_raw)((vu_raw)ix - 0x3f3504f3u) >> 23;
  f = from_bits((vi_raw)((vu_raw)ix - ((vu_raw)n << 23))) - vf(1.f);
  e = vf(__builtin_convertvector(n, vf_raw)) - select(tiny, vf(23.f), vf(0.f));
  vf z = f * f;
  vf p = vf(7.0376836292e-2f);
  p = fma(p, f, vf(-1.1514610310e-1f));
  p = fma(p, f, vf(1.1676998740e-1f));
  p = fma(p, f, vf(-1.2420140846e-1f));
  p = fma(p, f, vf(1.4249322787e-1f));
  p = fma(p, f, vf(-1.6668057665e-1f));
  p = fma(p, f, vf(2.0000714765e-1f));
  p = fma(p, f, vf(-2.4999993993e-1f));
  p = fma(p, f, vf(3.3333331174e-1f));
  return fma(p * f, z, z * vf(-0.5f));
}
SF_INLINE vf log_special(vf x, vf y) {  // log of 0, negatives, infinity and NaN
  y = select(x < vf(__builtin_inff()), y, x);
  return select(x > vf(0.f), y, select(x == vf(0.f), vf(-__builtin_inff()), vf(__builtin_nanf(""))));
}
SF_INLINE vf log(vf x) {
  vf f, e;
  vf y = log_reduce(x, f, e);
  y = fma(e, vf(-2.12194440e-4f), y);
  return log_special(x, fma(e, vf(0.693359375f), f + y));
}
// log2(1 + f) = (f + y) * 1.4427: the 0.4427 apart keeps the leading f exact.
SF_INLINE vf log2(vf x) {
  vf f, e;
  vf y = log_reduce(x, f, e);
  vf l = fma(f, vf(0.44269504f), y * vf(0.44269504f)) + y + f;
  return log_special(x, l + e);
}
SF_INLINE vf log10(vf x) {
  vf f, e;
  vf y = log_reduce(x, f, e);
  vf l = fma(e, vf(4.60503893e-6f), y * vf(0.4342944819f));  // log10(2) = 0.301025390625 + 4.605e-6
  l = fma(f, vf(0.4342944819f), l);
  return log_special(x, fma(e, vf(0.301025390625f), l));
}
// log(u) + (x - (u - 1)) / u with u = 1 + x rounded: the second term returns what the rounding lost.
SF_INLINE vf log1p(vf x) {
  vf u = vf(1.f) + x, lost = x - (u - vf(1.f));
  return log(u) + select(abs(x) < vf(0.9f), lost / u, vf(0.f));
}

// ---- trigonometry
// ----------------------------------------------------------------------------------------------------
inline constexpr float kTrigLimit = 1e5f;  // beyond it libm, lane by lane

// A vector of kLanes doubles, as two halves: where float32 has too few bits (pow, and trigonometry without FMA).
typedef double vd_raw __attribute__((vector_size(kLanes * 4)));
typedef int64_t vl_raw __attribute__((vector_size(kLanes * 4)));
struct vd2 {
  vd_raw lo, hi;
};
SF_INLINE vd2 widen(vf x) {
#if defined(__AVX512DQ__)
  return {(vd_raw)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)x.v)),
          (vd_raw)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)x.v, 1))};
#elif defined(__AVX__)
  return {(vd_raw)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)x.v)),
          (vd_raw)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)x.v, 1))};
#elif SF_SSE
  return {(vd_raw)_mm_cvtps_pd((__m128)x.v), (vd_raw)_mm_cvtps_pd(_mm_movehl_ps((__m128)x.v, (__m128)x.v))};
#else
  vd2 r;
  for (int i = 0; i < kLanes / 2; ++i) r.lo[i] = x.v[i], r.hi[i] = x.v[i + kLanes / 2];
  return r;
#endif
}
SF_INLINE vf narrow(vd2 x) {
#if defined(__AVX512DQ__)
  return (vf_raw)_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)x.lo)),
                                    _mm512_cvtpd_ps((__m512d)x.hi), 1);
#elif defined(__AVX__)
  return (vf_raw)_mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps((__m256d)x.lo)),
                                      _mm256_cvtpd_ps((__m256d)x.hi), 1);
#elif SF_SSE
  return (vf_raw)_mm_movelh_ps(_mm_cvtpd_ps((__m128d)x.lo), _mm_cvtpd_ps((__m128d)x.hi));
#else
  vf r;
  for (int i = 0; i < kLanes / 2; ++i) r.v[i] = float(x.lo[i]), r.v[i + kLanes / 2] = float(x.hi[i]);
  return r;
#endif
}

// x = q pi/2 + r, |r| <= pi/4, q in the low bits of `quadrant`; |x| <= kTrigLimit.
SF_INLINE vf trig_reduce(vf x, vi_raw& quadrant) {
  vf t = fma(x, vf(0.636619747f), vf(kRoundMagic)), n = t - vf(kRoundMagic);
  quadrant = bits(t);
#if defined(__FMA__) || defined(__AVX512F__)
  vf r = fma(n, vf(-1.57079601e+00f), x);
  r = fma(n, vf(-3.13916473e-07f), r);
  return fma(n, vf(-5.39030253e-15f), r);
#else
  vd2 dx = widen(x), dn = widen(n);  // 0x1.921fb544p0 has 33 bits: its product with n is exact
  dx.lo = (dx.lo - dn.lo * 0x1.921fb544p0) - dn.lo * 0x1.0b4611a626331p-34;
  dx.hi = (dx.hi - dn.hi * 0x1.921fb544p0) - dn.hi * 0x1.0b4611a626331p-34;
  return narrow(dx);
#endif
}
SF_INLINE vf sin_poly(vf r) {
  vf s = r * r;
  vf p = vf(2.86567956e-6f);
  p = fma(p, s, vf(-1.98559923e-4f));
  p = fma(p, s, vf(8.33338592e-3f));
  p = fma(p, s, vf(-1.66666672e-1f));
  return fma(p, r * s, r);
}
SF_INLINE vf cos_poly(vf r) {
  vf s = r * r;
  vf p = vf(2.44677067e-5f);
  p = fma(p, s, vf(-1.38877297e-3f));
  p = fma(p, s, vf(4.16666567e-2f));
  p = fma(p, s, vf(-5.00000000e-1f));
  return fma(p, s, vf(1.f));
}
SF_INLINE vm odd(vi_raw quadrant) { return {vi_raw((quadrant & 1) != 0)}; }
// Bit 1 of the quadrant is the sign.
SF_INLINE vf flip(vf x, vi_raw quadrant) { return from_bits(bits(x) ^ (vi_raw)((vu_raw)(quadrant & 2) << 30)); }

template <class F> [[gnu::noinline]] static vf trig_large(vf x, vf y) {
  for (int i = 0; i < kLanes; ++i)
    if (!(__builtin_fabsf(x.v[i]) <= kTrigLimit)) y.v[i] = F::of(x.v[i]);
  return y;
}
struct LibmSin {
  SF_INLINE static float of(float x) { return __builtin_sinf(x); }
};
struct LibmCos {
  SF_INLINE static float of(float x) { return __builtin_cosf(x); }
};
struct LibmTan {
  SF_INLINE static float of(float x) { return __builtin_tanf(x); }
};

SF_INLINE vf sin(vf x) {
  vi_raw q;
  vf r = trig_reduce(x, q);
  vf y = flip(select(odd(q), cos_poly(r), sin_poly(r)), q);
  if (any(abs(x) > vf(kTrigLimit))) [[unlikely]]
    y = trig_large<LibmSin>(x, y);
  return y;
}
SF_INLINE vf cos(vf x) {
  vi_raw q;
  vf r = trig_reduce(x, q);
  vf y = flip(select(odd(q), sin_poly(r), cos_poly(r)), (vi_raw)((vu_raw)q + (vu_raw)(q & 1)));  // signs + - - +
  if (any(abs(x) > vf(kTrigLimit))) [[unlikely]]
    y = trig_large<LibmCos>(x, y);
  return y;
}
SF_INLINE vf tan(vf x) {
  vi_raw q;
  vf r = trig_reduce(x, q), s = sin_poly(r), c = cos_poly(r);
  vf y = select(odd(q), -c, s) / select(odd(q), s, c);
  if (any(abs(x) > vf(kTrigLimit))) [[unlikely]]
    y = trig_large<LibmTan>(x, y);
  return y;
}

SF_INLINE vf atan2(vf y, vf x) {
  vf ax = abs(x), ay = abs(y), big = max(ax, ay), small = min(ax, ay);
  vf a = select(big == vf(0.f), vf(0.f), select(small == vf(__builtin_inff()), vf(1.f), small / big));
  vf s = a * a;
  vf p = vf(0x1.6d2086p-9f);
  p = fma(p, s, vf(-0x1.03f2ecp-6f));
  p = fma(p, s, vf(0x1.5beebap-5f));
  p = fma(p, s, vf(-0x1.33194ep-4f));
  p = fma(p, s, vf(0x1.b403a8p-4f));
  p = fma(p, s, vf(-0x1.22f5c2p-3f));
  p = fma(p, s, vf(0x1.997748p-3f));
  p = fma(p, s, vf(-0x1.5554d8p-2f));
  vf r = fma(p * s, a, a);  // atan on [0, 1]
  r = select(ay > ax, vf(1.57079637f) - r, r);
  r = select(vm{bits(x) < 0}, vf(3.14159274f) - r, r);
  return select(isnan(x) | isnan(y), x + y, copysign(r, y));
}
SF_INLINE vf atan(vf x) { return atan2(x, vf(1.f)); }

// ---- pow
// ------------------------------------------------------------------------------------------------------------- y *
// log2(x) in double (2e-11 relative), so that the result keeps float's 24 bits when it is as large as 2^127.
SF_INLINE vd_raw log2_mantissa(vd_raw m) {  // m in [sqrt(1/2), sqrt(2)): 2 atanh(q) / ln 2
  vd_raw q = (m - 1.0) / (m + 1.0), s = q * q;
  vd_raw p = s * (1.0 / 13) + 1.0 / 11;
  p = p * s + 1.0 / 9;
  p = p * s + 1.0 / 7;
  p = p * s + 1.0 / 5;
  p = p * s + 1.0 / 3;
  p = p * s + 1.0;
  return p * q * 2.8853900817779268;
}
SF_INLINE vf pow(vf x, vf y) {
  const vf inf = vf(__builtin_inff()), one = vf(1.f);
  vf ax = abs(x), f, e;
  log_reduce(ax, f, e);  // the compiler drops the polynomial
  vd2 m = widen(one + f), n = widen(e), w = widen(y);
  // 1e300 stands for the infinity of log2(0) and log2(inf): times y it saturates, without 0 * inf.
  vf edge = select(ax == vf(0.f), -one, select(ax == inf, one, vf(0.f)));
  vd2 d = widen(edge);
  m.lo = (log2_mantissa(m.lo) + n.lo + d.lo * 1e300) * w.lo;
  m.hi = (log2_mantissa(m.hi) + n.hi + d.hi * 1e300) * w.hi;
  constexpr double magic = 0x1.8p52;
  m.lo = m.lo > 200.0 ? vd_raw{} + 200.0 : m.lo < -200.0 ? vd_raw{} - 200.0 : m.lo;
  m.hi = m.hi > 200.0 ? vd_raw{} + 200.0 : m.hi < -200.0 ? vd_raw{} - 200.0 : m.hi;
  n.lo = (m.lo + magic) - magic;
  n.hi = (m.hi + magic) - magic;
  m.lo -= n.lo;
  m.hi -= n.hi;
  vf r = scale_by(exp2_poly(narrow(m)), narrow(n) + vf(kRoundMagic));
  // Negative x: the sign of an odd integer y; NaN for other finite y.
  vf half = y * vf(0.5f);
  vm integer = trunc(y) == y, is_odd = integer & (trunc(half) != half);
  r = select(vm{bits(x) < 0} & is_odd, -r, r);
  r = select((x < vf(0.f)) & (ax < inf) & !integer, vf(__builtin_nanf("")), r);
  r = select(isnan(x) | isnan(y), x + y, r);
  r = select((y == vf(0.f)) | (x == one) | ((x == -one) & isinf(y)), one, r);
  return r;
}

}  // namespace SF_ISA
}  // namespace sf
