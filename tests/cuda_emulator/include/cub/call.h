// What CUB's device-wide algorithms have in common (CUB's documentation, "Device-wide primitives"): called without
// temporary memory they say how much they need and do nothing else; with it they queue their work on a stream. Here the
// work is one piece that runs on this processor, and every byte of the temporary memory is written first, as one that
// is too small would show.
#pragma once
#include <cstring>
#include <functional>

#include "cuda_runtime.h"

extern "C" void sf_cuda_emulator_queue(cudaStream_t stream, void (*work)(void*), void* argument, void (*drop)(void*));

namespace cub::emulated {

inline bool on_device(const void* p) {
  cudaPointerAttributes a{};
  return cudaPointerGetAttributes(&a, p) == cudaSuccess && a.type == cudaMemoryTypeDevice;
}

template <class Work> cudaError_t call(void* temporary, size_t& bytes, size_t needed, cudaStream_t stream, Work work) {
  if (!temporary) {
    bytes = needed;
    return cudaSuccess;
  }
  if (bytes < needed || !on_device(temporary)) return cudaErrorInvalidValue;
  auto* all = new std::function<void()>([=] {
    std::memset(temporary, 0xa5, needed);
    work();
  });
  sf_cuda_emulator_queue(
      stream, [](void* f) { (*static_cast<std::function<void()>*>(f))(); }, all,
      [](void* f) { delete static_cast<std::function<void()>*>(f); });
  return cudaSuccess;
}

}  // namespace cub::emulated
