// Accelerator: a backend whose devices have memory of their own, and what it tells about them. Thread-safe, as every Backend.
#pragma once
#include "scaffolding/backend/backend.h"
#include "scaffolding/core/error.h"

namespace sf {

struct DeviceProperties {
  std::string name;
  size_t total_memory = 0;   // bytes
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
};
// In bytes. Allocated: in tensors; reserved: also what is kept for the next ones. The largest are since reset_peak.
struct MemoryStatistics {
  size_t allocated = 0, max_allocated = 0, reserved = 0, max_reserved = 0;
  size_t free = 0, total = 0;  // of the device, whoever uses it
};

class Accelerator : public Backend {
 public:
  virtual DeviceProperties properties(int index) = 0;
  virtual MemoryStatistics memory(int index) = 0;
  virtual void reset_peak(int index) = 0;
  virtual void empty_cache(int index) = 0;  // waits for the device
};

// RuntimeError as backend(); ValueError for the CPU and its like.
inline Accelerator& accelerator(Device device) {
  SF_CHECK(device.is_cuda(), device, " has no memory of its own");
  return static_cast<Accelerator&>(backend(device));
}

}  // namespace sf
