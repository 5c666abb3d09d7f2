// What nvcc includes by itself: the runtime and device code. Kernels are launched with copies of their arguments.
#pragma once
#include <math.h>

#include <bit>
#include <cmath>
#include <functional>
#include <tuple>
#include <type_traits>

#include "cuda_runtime_api.h"
#include "device.h"

namespace cuda_emulator {
cudaError_t failed(cudaError_t);  // what cudaGetLastError will say
// Appends kernel's run over a grid to a stream. function: by which its attributes were set.
cudaError_t launch(const cudaLaunchConfig_t& config, const void* function, std::function<void()> kernel);
// Gives up to 32 bytes to the warp and returns what its 32 lanes gave. Theirs until the lane's next but one exchange.
struct Given {
  uint64_t words[4];
};
const Given* gather(const Given& value);
void count_bank_conflicts(bool conflict);  // adds one to what sf_cuda_emulator_bank_conflicts() returns
// cp.async: `read` of the bytes come from `from`, the rest are zeros. What lies at `to` is lost at once; the new bytes
// are there no earlier than at the wait that covers their group.
void copy_async(unsigned char* to, const void* from, int bytes, int read);
void commit_copies();
void wait_for_copies(int all_but);

// Kernels take at most this much: CUDA C++ Programming Guide, "__global__ function parameters", 4 KiB before 12.1.
inline constexpr size_t kParameterBytes = 4096;
}  // namespace cuda_emulator

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... args) {
  static_assert((sizeof(P) + ... + 0) <= cuda_emulator::kParameterBytes);
  static_assert((std::is_trivially_copyable_v<P> && ...), "arguments are copied to the device byte by byte");
  return cuda_emulator::launch(
      *config, reinterpret_cast<const void*>(kernel),
      [kernel, copies = std::tuple<P...>(static_cast<A&&>(args)...)] { std::apply(kernel, copies); });
}

template <class... P> cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <class... P>
cudaError_t cudaOccupancyMaxActiveClusters(int* count, void (*kernel)(P...), const cudaLaunchConfig_t* config) {
  return cudaOccupancyMaxActiveClusters(count, reinterpret_cast<const void*>(kernel), config);
}

// CUDA C++ Programming Guide, "Intrinsic Functions".
inline float __expf(float x) { return ::expf(x); }
inline float __fdividef(float a, float b) {
  return std::fabs(b) > 0x1p126f && std::fabs(b) < INFINITY ? (std::isinf(a) ? NAN : 0.0f) : a / b;
}
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
