// ObjectPool: per-thread lists of freed small objects (tensor headers, storages, tape nodes), 64-byte aligned.
// An eager op makes four of them; taking them from a list costs two nanoseconds each, from malloc twenty.
// Objects may be freed on another thread than the one that made them. Under AddressSanitizer nothing is kept.
#pragma once
#include <cstddef>
#include <cstdint>

#include "scaffolding/core/half.h"

namespace sf {

class ObjectPool {
 public:
  SF_INLINE static void* take(size_t bytes) {
    size_t c = (bytes + 63) / 64;
    if (c < kClasses && t_lists[c].head) {
      void* p = t_lists[c].head;
      t_lists[c].head = *static_cast<void**>(p);
      --t_lists[c].count;
      return p;
    }
    return take_slow(bytes);
  }
  SF_INLINE static void give(void* p, size_t bytes) {
    size_t c = (bytes + 63) / 64;
    if (c < kClasses && t_lists[c].count < t_lists[c].limit) {
      *static_cast<void**>(p) = t_lists[c].head;
      t_lists[c].head = p;
      ++t_lists[c].count;
      return;
    }
    give_slow(p);
  }

 private:
  static constexpr size_t kClasses = 13;  // up to 768 bytes
  struct List {
    void* head;
    uint32_t count, limit;  // limit is 0 until the thread has registered its clean-up, and after it
  };
  static void* take_slow(size_t bytes);
  static void give_slow(void* p);
  struct Cleanup;
  static thread_local constinit List t_lists[kClasses] __attribute__((tls_model("initial-exec")));
};

// Base for classes that live in the pool.
struct Pooled {
  static void* operator new(size_t bytes) { return ObjectPool::take(bytes); }
  static void operator delete(void* p, size_t bytes) { ObjectPool::give(p, bytes); }
};

}  // namespace sf
