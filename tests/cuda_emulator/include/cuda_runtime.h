// What nvcc knows of device code, for a C++ compiler: qualifiers, threadIdx, barriers, warp shuffles, atomics, intrinsics.
// A kernel is an ordinary function that grid.cpp calls once per thread of the grid. Only what the sources use is here.
#pragma once
#include <math.h>

#include <bit>
#include <cmath>
#include <functional>
#include <tuple>
#include <type_traits>

#include "cuda_runtime_api.h"

#define __global__
#define __device__
#define __host__
#define __shared__ static  // one block runs at a time
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

namespace cuda_emulator {
// Appends kernel's run over a grid to a stream. function: by which its attributes were set.
cudaError_t launch(const cudaLaunchConfig_t& config, const void* function, std::function<void()> kernel);
void block_barrier();
// Gives the calling thread's value to its warp and returns that of lane `from` (its own where there is no such thread).
uint64_t exchange(unsigned mask, uint64_t value, unsigned from);
unsigned ballot(unsigned mask, bool value);
// Gives up to 32 bytes to the warp and returns what its 32 lanes gave. Theirs until the lane's next but one exchange.
struct Given {
  uint64_t words[4];
};
const Given* gather(const Given& value);
unsigned char* dynamic_shared();
size_t dynamic_shared_bytes();
void count_bank_conflicts(bool conflict);  // adds one to what sf_cuda_emulator_bank_conflicts() returns
// cp.async: `read` of the bytes come from `from`, the rest are zeros. What lies at `to` is lost at once; the new bytes are there no earlier
// than at the wait that covers their group.
void copy_async(unsigned char* to, const void* from, int bytes, int read);
void commit_copies();
void wait_for_copies(int all_but);
unsigned lane();
[[noreturn]] void stop(const char* why);  // says which block and thread, and aborts

// Kernels take at most this much: CUDA C++ Programming Guide, "__global__ function parameters", 4 KiB before 12.1.
inline constexpr size_t kParameterBytes = 4096;

template <class T> T exchanged(unsigned mask, T value, unsigned from) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8);
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  bits = exchange(mask, bits, from);
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
}  // namespace cuda_emulator

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

template <class... P, class... A> cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... args) {
  static_assert((sizeof(P) + ... + 0) <= cuda_emulator::kParameterBytes);
  static_assert((std::is_trivially_copyable_v<P> && ...), "arguments are copied to the device byte by byte");
  return cuda_emulator::launch(*config, reinterpret_cast<const void*>(kernel),
                               [kernel, copies = std::tuple<P...>(static_cast<A&&>(args)...)] { std::apply(kernel, copies); });
}

template <class... P> cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

inline void __syncthreads() { cuda_emulator::block_barrier(); }
inline void __syncwarp(unsigned mask = ~0u) { cuda_emulator::exchange(mask, 0, 0); }
// Rounded, never contracted to a fused multiply-add.
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
template <class T> T __shfl_sync(unsigned mask, T x, int from) { return cuda_emulator::exchanged(mask, x, unsigned(from) % 32); }
template <class T> T __shfl_xor_sync(unsigned mask, T x, int with) { return cuda_emulator::exchanged(mask, x, cuda_emulator::lane() ^ unsigned(with)); }
template <class T> T __shfl_down_sync(unsigned mask, T x, unsigned by) { return cuda_emulator::exchanged(mask, x, cuda_emulator::lane() + by); }
template <class T> T __shfl_up_sync(unsigned mask, T x, unsigned by) { return cuda_emulator::exchanged(mask, x, cuda_emulator::lane() - by); }
inline unsigned __ballot_sync(unsigned mask, int x) { return cuda_emulator::ballot(mask, x != 0); }
inline int __any_sync(unsigned mask, int x) { return __ballot_sync(mask, x) != 0; }

// Threads take turns, so that nothing comes between the reading and the writing.
template <class T> T atomicAdd(T* at, T x) {
  T old = *at;
  *at = T(old + x);
  return old;
}
template <class T> T atomicCAS(T* at, T expected, T x) {
  T old = *at;
  if (old == expected) *at = x;
  return old;
}

inline void __trap() { cuda_emulator::stop("a kernel trapped"); }
// CUDA C++ Programming Guide, "Intrinsic Functions".
inline float __expf(float x) { return ::expf(x); }
inline float __fdividef(float a, float b) { return std::fabs(b) > 0x1p126f && std::fabs(b) < INFINITY ? (std::isinf(a) ? NAN : 0.0f) : a / b; }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
