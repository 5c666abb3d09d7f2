// The kernels of a binary that nvrtc.cpp made: what the driver learns from a cubin. The generated text includes it too,
// so that it includes nothing of the host's.
#pragma once
#include "device.h"

namespace cuda_emulator {

struct ModuleKernel {
  const char* name;                         // lowered
  const unsigned* parameter_bytes;          // of each parameter
  unsigned parameters;                      // how many
  void (*call)(const void* const* values);  // the kernel, for one thread
};

template <auto kernel> struct KernelOf;
template <class... P, void (*kernel)(P...)> struct KernelOf<kernel> {
  static_assert((sizeof(P) + ... + 0) <= 4096, "arguments of more than 4 KiB");
  static_assert((__is_trivially_copyable(P) && ...), "arguments are copied to the device byte by byte");
  static constexpr unsigned kBytes[] = {sizeof(P)..., 0};
  template <unsigned i, class First, class... Rest> struct Nth { using type = typename Nth<i - 1, Rest...>::type; };
  template <class First, class... Rest> struct Nth<0, First, Rest...> { using type = First; };
  template <class... Got> static void call_with(const void* const* values, Got... got) {
    if constexpr (sizeof...(Got) == sizeof...(P)) {
      kernel(got...);
    } else {
      using Next = typename Nth<sizeof...(Got), P...>::type;
      call_with<Got..., Next>(values, got..., *static_cast<const Next*>(values[sizeof...(Got)]));
    }
  }
  static void call(const void* const* values) { call_with<>(values); }
  static constexpr ModuleKernel as(const char* name) { return {name, kBytes, sizeof...(P), call}; }
};

// extern __shared__ T name[]: the block's dynamic shared memory.
template <class T> struct DynamicShared {
  operator T*() const { return reinterpret_cast<T*>(dynamic_shared()); }
};

}  // namespace cuda_emulator
