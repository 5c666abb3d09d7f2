// Errors of the CUDA runtime as sf::RuntimeError, the current device as a scope, and what this build can run on.
#pragma once
#include <cuda_runtime_api.h>

#include "scaffolding/core/device.h"

namespace sf {
struct DeviceProperties;  // backend/accelerator.h
}

namespace sf::cuda {

inline constexpr int kMaxDevices = 64;

// RuntimeError "<op>: CUDA error: <text> (<name>)". An error of an earlier kernel may surface here: launches do not
// wait. Where a kernel broke the context, what may have been it is named as well (queued.h).
void check(cudaError_t status, const char* op);

// Number of GPUs the driver shows. RuntimeError with the reason when the driver is missing or too old, or when no GPU
// can run this build's kernels.
int device_count();
// RuntimeError when this GPU cannot run this build's kernels, or does not exist.
void check_usable(int device);

// What a GPU is; the driver is asked once, which takes it a millisecond. RuntimeError where there is no such GPU.
const DeviceProperties& properties(int device);

// Whether kernels that wait for the one before by themselves are launched so that they start early:
// dependent_launches(), a GPU of compute capability 9.0 or later, and a driver of CUDA 12.3 or later, which knows such
// edges in graphs.
bool starts_early(int device);

// f(), for what gives back: an error is swallowed. A context that a kernel broke gives nothing back; what it held is
// lost, and the next call that may throw reports the failure, which stays.
template <class F> void without_throwing(const F& f) noexcept {
  try {
    f();
  } catch (...) {}
}

// Lets blocks of a kernel take so much dynamic shared memory on the current device, which is `device`; asked once.
void allow_shared(const void* kernel, int bytes, int device, const char* op);

// Makes a device the calling thread's current one for as long as the scope lives. Nothing to do inside of a scope of
// the same device, and where there is one GPU. No code of others runs in a scope.
class DeviceScope {
 public:
  explicit DeviceScope(int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int previous_ = 0, outer_;
  bool changed_ = false;
};

}  // namespace sf::cuda
