// Functions of C's library by the width of their argument: a call in float must not be computed in double.
#pragma once
#include <cuda_runtime.h>

namespace sf::cuda {

__device__ inline float exp_of(float x) { return ::expf(x); }
__device__ inline double exp_of(double x) { return ::exp(x); }
__device__ inline float log_of(float x) { return ::logf(x); }
__device__ inline double log_of(double x) { return ::log(x); }
__device__ inline float tanh_of(float x) { return ::tanhf(x); }
__device__ inline double tanh_of(double x) { return ::tanh(x); }
__device__ inline float erf_of(float x) { return ::erff(x); }
__device__ inline double erf_of(double x) { return ::erf(x); }
__device__ inline float root(float x) { return ::sqrtf(x); }
__device__ inline double root(double x) { return ::sqrt(x); }
__device__ inline float inverse_root(float x) { return ::rsqrtf(x); }  // to 2 ulp
__device__ inline double inverse_root(double x) { return 1 / ::sqrt(x); }

// The larger; of a NaN and a number the number.
__device__ inline float larger_of(float a, float b) { return ::fmaxf(a, b); }
__device__ inline double larger_of(double a, double b) { return ::fmax(a, b); }

// 2^x in one instruction, to 2 ulp; results below 2^-126 are 0 (PTX ISA, "ex2").
__device__ inline float power_of_two(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return ::exp2f(x);
#endif
}

// 1 / x in one instruction, to 1 ulp; of what is above 2^126 0 (PTX ISA, "rcp").
__device__ inline float reciprocal_fast(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1 / x;
#endif
}

// exp((x - top) * scale) for numbers that come from elements of T. Those of 16 bits take one multiply-add and one
// instruction more, since expf alone is eight: `unit` is the factor that of() wants x and top to be multiplied with.
template <class T, bool kShort = sizeof(T) == 2> struct Exponential {
  template <class A> __device__ static A unit(A scale) { return scale; }
  template <class A> __device__ static A of(A z) { return exp_of(z); }
  template <class A> __device__ static A natural(A z) { return z; }
};
template <class T> struct Exponential<T, true> {
  __device__ static float unit(float scale) { return scale * 1.44269504f; }  // log2(e)
  __device__ static float of(float z) { return power_of_two(z); }
  __device__ static float natural(float z) { return z * 0.693147181f; }  // ln(2)
};

// For results that are rounded to 16 bits: within a few units of float32's last place, by the GPU's own instructions
// instead of a dozen. The quotient of what is above 2^126 is 0.
__device__ inline float exp_fast(float x) { return ::__expf(x); }
__device__ inline float divide_fast(float a, float b) { return ::__fdividef(a, b); }

// The normal distribution's integral, of relative error 1e-6 on both sides: erfc(z) = t exp(P(t) - z^2) with t = 1 /
// (1 + z / 2), the Chebyshev fit of Numerical Recipes in C, 6.2 ("erfcc"). No branch, where erff has two that a warp
// walks one after the other.
__device__ inline float normal_cdf_fast(float x) {
  const float coefficients[] = {-0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f, -0.18628806f,
                                0.09678418f,  0.37409196f, 1.00002368f,  -1.26551223f};
  float z = 0.70710678f * ::fabsf(x), t = divide_fast(1.0f, 1.0f + 0.5f * z), p = 0.17087277f;
#pragma unroll
  for (int k = 0; k < 9; ++k) p = p * t + coefficients[k];
  float tail = 0.5f * t * exp_fast(p - z * z);
  return x < 0 ? tail : 1.0f - tail;
}

}  // namespace sf::cuda
