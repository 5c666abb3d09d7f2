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

}  // namespace sf::cuda
