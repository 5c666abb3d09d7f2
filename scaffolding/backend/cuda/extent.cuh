// Dense images, volumes and sequences on the device: outer x size[0] x size[1] x size[2] x inner (spatial::Extent).
#pragma once
#include <cuda_runtime.h>

#include "scaffolding/backend/cuda/tables.h"
#include "scaffolding/ops/spatial/kernel.h"

namespace sf::cuda {

struct Pixel {
  int64_t outer, at[3], inner;
};

__device__ inline Pixel pixel_of(const spatial::Extent& e, int64_t i) {
  Pixel p;
  p.inner = i % e.inner, i /= e.inner;
  for (int d = 2; d >= 0; --d) p.at[d] = i % e.size[d], i /= e.size[d];
  p.outer = i;
  return p;
}
__device__ inline int64_t index_in(const spatial::Extent& e, int64_t outer, int64_t d, int64_t h, int64_t w, int64_t inner) {
  return (((outer * e.size[0] + d) * e.size[1] + h) * e.size[2] + w) * e.inner + inner;
}
inline int64_t elements_of(const spatial::Extent& e) { return e.outer * e.size[0] * e.size[1] * e.size[2] * e.inner; }

// The device of a kernel's bare pointer.
inline Device device_of(const void* p, const char* op) {
  cudaPointerAttributes a;
  check(cudaPointerGetAttributes(&a, p), op);
  return Device(Device::CUDA, a.device);
}

// The host's tables of a call, on the device for as long as this lives.
struct DeviceTables {
  Device device;
  DeviceTable kept[16];
  int count = 0;

  explicit DeviceTables(Device d) : device(d) {}
  template <class T> const T* operator()(const T* first, int64_t n) {
    kept[count] = device_table(device, first, n);
    return kept[count++]->template as<const T>();
  }
};

}  // namespace sf::cuda
