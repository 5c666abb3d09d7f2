// Storage: a block of bytes on one device, shared by the tensors that view it.
// Owned by Ref; the last owner gives the bytes back to the allocator (or to whoever lent them).
// The version counts in-place writes, so that the tape can refuse stale saved tensors. Not locked:
// one writer at a time.
#pragma once
#include <functional>

#include "scaffolding/core/device.h"
#include "scaffolding/core/object_pool.h"
#include "scaffolding/core/ref.h"

namespace sf {

struct Storage : RefCounted, Pooled {
  void* data = nullptr;
  size_t bytes = 0;
  Device device;
  uint32_t version = 0;
  bool packed = false;                      // some kernel keeps a packed copy keyed by this address
  std::function<void()>* lender = nullptr;  // called instead of the allocator for borrowed bytes
  static constexpr size_t kInline = 64;
  alignas(16) char small[kInline];  // the bytes themselves, when they are few and in host memory

  static Ref<Storage> allocate(size_t bytes, Device device);
  static Ref<Storage> borrow(void* data, size_t bytes, Device device, std::function<void()> give_back);
  static void destroy(Storage* s);
};

}  // namespace sf
