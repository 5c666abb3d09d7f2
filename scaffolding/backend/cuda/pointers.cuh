// What the host reads off the bare pointers of a call: their device, and the units they can be moved in.
#pragma once
#include <cuda_runtime.h>

#include "scaffolding/backend/cuda/tables.h"

namespace sf::cuda {

// The device of a kernel's bare pointer; the driver is asked where there are several.
inline Device device_of(const void* p, const char* op) {
  if (device_count() == 1) return Device(Device::CUDA, 0);
  cudaPointerAttributes a;
  check(cudaPointerGetAttributes(&a, p), op);
  return Device(Device::CUDA, a.device);
}

// The largest of 16, 8, ... bytes that a pixel of `bytes` and all addresses are multiples of.
template <class... P> int64_t unit_of(int64_t bytes, const P*... at) {
  int64_t all = (bytes | ... | int64_t(reinterpret_cast<uintptr_t>(at))), unit = 16;
  while (all % unit != 0) unit /= 2;
  return unit;
}

}  // namespace sf::cuda
