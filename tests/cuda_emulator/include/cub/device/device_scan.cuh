// cub::DeviceScan of CUB: what cub.cu calls of it. See call.h.
#pragma once
#include <cub/call.h>

namespace cub {

struct DeviceScan {
  template <class T, class N>
  static cudaError_t ExclusiveSum(void* temporary, size_t& bytes, const T* in, T* out, N n, cudaStream_t stream) {
    if (temporary && (n < 0 || !emulated::on_device(in) || !emulated::on_device(out))) return cudaErrorInvalidValue;
    return emulated::call(temporary, bytes, size_t(n) / 128 + 1, stream, [=] {
      T sum = 0;
      for (N i = 0; i < n; ++i) {
        T x = in[i];
        out[i] = sum;
        sum = T(sum + x);
      }
    });
  }
};

}  // namespace cub
