// Long sums. GeForce GPUs compute float64 at 1/64 of float32's rate, so that float32 keeps its lost digits here
// instead.
#pragma once
#include <cuda_runtime.h>

namespace sf::cuda {

template <class A> struct Total {  // double
  A high = 0;
  __device__ void add(A x) { high += x; }
  __device__ A value() const { return high; }
};
// What each addition rounds away is added up too (Knuth's two-sum): nearly the digits of two floats.
template <> struct Total<float> {
  float high = 0, low = 0;
  __device__ void add(float x) {
    const float sum = high + x, part = sum - high;
    low += (high - (sum - part)) + (x - part);
    high = sum;
  }
  // of an infinite sum the rest is NaN
  __device__ float value() const { return high - high == 0 ? high + low : high; }
};

}  // namespace sf::cuda
