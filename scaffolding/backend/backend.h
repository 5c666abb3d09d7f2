// Backend: what a device must offer at run time. The CPU's is linked in; CUDA's comes with libscaffolding_cuda.so,
// loaded on the first use of a cuda device. Backends are stateless singletons; their calls are thread-safe.
#pragma once
#include <cstddef>
#include <string>

#include "scaffolding/core/device.h"

namespace sf {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual void* allocate(size_t bytes, int index) = 0;  // RuntimeError when out of memory
  virtual void release(void* data, size_t bytes, int index) = 0;
  // Either side may be host memory. Blocks until the bytes have arrived when the destination is the host.
  virtual void copy(void* dst, Device dst_device, const void* src, Device src_device, size_t bytes) = 0;
  virtual void synchronize(int index) = 0;
  virtual int device_count() = 0;
};

// The backend of a device; RuntimeError that says which driver, library or GPU is missing.
Backend& backend(Device device);
void register_backend(DeviceType type, Backend& b);  // called by a backend's library while it loads
bool backend_available(DeviceType type, std::string* why_not = nullptr);

namespace cpu {
void* allocate(size_t bytes);            // 64-byte aligned, from the cache of freed blocks when one fits
void release(void* data, size_t bytes);  // bytes as given to allocate
void empty_cache();                      // gives cached blocks back to the system
size_t cached_bytes();
bool may_cache(size_t bytes);  // whether so much freed memory may be kept, as things are
size_t allocated_bytes();      // in use now
size_t max_allocated_bytes();  // since reset_peak
void reset_peak();
void set_memory_limit(size_t bytes);  // allocations beyond it are a RuntimeError; 0: no limit (SF_CPU_MEMORY_LIMIT_MB)
size_t memory_limit();
}  // namespace cpu

}  // namespace sf
