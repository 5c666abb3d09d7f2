// TensorView: what a kernel sees of a tensor. Plain data, owns nothing, knows nothing of the tape.
// Everything inlines: files compiled for an instruction set include this header and must leak no shared symbols.
#pragma once
#include "scaffolding/core/device.h"
#include "scaffolding/core/dtype.h"

namespace sf {

struct TensorView {
  void* data = nullptr;
  int32_t ndim = -1;  // -1: no tensor was given (an absent bias, say)
  DType dtype = kFloat32;
  Device device;
  int64_t sizes[12];    // kMaxDims
  int64_t strides[12];  // in elements; 0 for broadcast dimensions

  SF_INLINE bool defined() const { return ndim >= 0; }
  SF_INLINE explicit operator bool() const { return ndim >= 0; }
  template <class T> SF_INLINE T* as() const { return static_cast<T*>(data); }
  SF_INLINE int64_t size(int d) const { return sizes[d < 0 ? d + ndim : d]; }
  SF_INLINE int64_t stride(int d) const { return strides[d < 0 ? d + ndim : d]; }
  SF_INLINE int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < ndim; ++i) n *= sizes[i];
    return n;
  }
  SF_INLINE bool is_contiguous() const {
    int64_t want = 1;
    for (int i = ndim - 1; i >= 0; --i) {
      if (sizes[i] != 1 && strides[i] != want) return numel() == 0;
      want *= sizes[i];
    }
    return true;
  }
  // NHWC / NDHWC in memory behind [N, C, ...] sizes.
  SF_INLINE bool is_channels_last() const {
    if (ndim < 3) return false;
    int64_t want = 1;
    if (sizes[1] != 1 && strides[1] != want) return false;
    want *= sizes[1];
    for (int i = ndim - 1; i >= 0; --i) {
      if (i == 1) continue;
      if (sizes[i] != 1 && strides[i] != want) return false;
      want *= sizes[i];
    }
    return true;
  }
};

}  // namespace sf
