// Elements whose dtype a kernel learns at run time: for kernels that do little else than move or compare them.
#pragma once
#include <cuda_runtime.h>

#include "scaffolding/backend/cuda/vec.cuh"
#include "scaffolding/core/shape.h"

namespace sf::cuda {

// The i-th element as A, any dtype but float8.
template <class A> __device__ inline A element(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case kUInt8: return A(static_cast<const uint8_t*>(data)[i]);
    case kInt8: return A(static_cast<const int8_t*>(data)[i]);
    case kInt16: return A(static_cast<const int16_t*>(data)[i]);
    case kInt32: return A(static_cast<const int32_t*>(data)[i]);
    case kInt64: return A(static_cast<const int64_t*>(data)[i]);
    case kBool: return A(static_cast<const bool*>(data)[i]);
    case kFloat16: return A(widen(static_cast<const Half*>(data)[i]));
    case kBFloat16: return A(widen(static_cast<const BFloat16*>(data)[i]));
    case kFloat64: return A(static_cast<const double*>(data)[i]);
    default: return A(static_cast<const float*>(data)[i]);
  }
}
template <class A> __device__ inline void set_element(void* data, DType dtype, int64_t i, A x) {
  switch (dtype) {
    case kUInt8: static_cast<uint8_t*>(data)[i] = uint8_t(x); return;
    case kInt8: static_cast<int8_t*>(data)[i] = int8_t(x); return;
    case kInt16: static_cast<int16_t*>(data)[i] = int16_t(x); return;
    case kInt32: static_cast<int32_t*>(data)[i] = int32_t(x); return;
    case kInt64: static_cast<int64_t*>(data)[i] = int64_t(x); return;
    case kFloat16: static_cast<Half*>(data)[i] = narrow<Half>(float(x)); return;
    case kBFloat16: static_cast<BFloat16*>(data)[i] = narrow<BFloat16>(float(x)); return;
    case kFloat64: static_cast<double*>(data)[i] = double(x); return;
    default: static_cast<float*>(data)[i] = float(x); return;
  }
}

// to[i] = from[j], elements of 1, 2, 4 or 8 bytes.
__device__ inline void move_element(void* to, int64_t i, const void* from, int64_t j, int bytes) {
  switch (bytes) {
    case 1: static_cast<uint8_t*>(to)[i] = static_cast<const uint8_t*>(from)[j]; return;
    case 2: static_cast<uint16_t*>(to)[i] = static_cast<const uint16_t*>(from)[j]; return;
    case 4: static_cast<uint32_t*>(to)[i] = static_cast<const uint32_t*>(from)[j]; return;
    default: static_cast<uint64_t*>(to)[i] = static_cast<const uint64_t*>(from)[j]; return;
  }
}

// Where row r of a view lies: its dimensions but the last, in order. Plain data for kernels.
struct RowPlaces {
  int32_t ndim = 0;
  int64_t sizes[kMaxDims] = {}, strides[kMaxDims] = {};

  RowPlaces() = default;
  template <class View> explicit RowPlaces(const View& t) {
    for (int d = 0; t.defined() && d + 1 < t.ndim; ++d) sizes[ndim] = t.sizes[d], strides[ndim++] = t.strides[d];
  }
  __device__ int64_t at(int64_t row) const {
    int64_t place = 0;
    for (int d = ndim - 1; d >= 0; --d) {
      place += row % sizes[d] * strides[d];
      row /= sizes[d];
    }
    return place;
  }
};

}  // namespace sf::cuda
