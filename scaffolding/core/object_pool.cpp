#include "scaffolding/core/object_pool.h"

#include <cstdlib>

#include "scaffolding/core/out_of_memory.h"

namespace sf {

thread_local constinit ObjectPool::List ObjectPool::t_lists[kClasses] __attribute__((tls_model("initial-exec"))) = {};

// Gives the thread's lists back when it ends; objects freed later go to the system.
struct ObjectPool::Cleanup {
  Cleanup() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    for (auto& l : t_lists) l.limit = 128;
#endif
  }
  ~Cleanup() {
    for (auto& l : t_lists) {
      l.limit = 0;
      while (l.head) {
        void* next = *static_cast<void**>(l.head);
        std::free(l.head);
        l.head = next;
      }
      l.count = 0;
    }
  }
};

void* ObjectPool::take_slow(size_t bytes) {
  static thread_local Cleanup cleanup;
  (void)&cleanup;
  void* p = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  SF_CHECK_AS(OutOfMemory, p, "cpu: out of memory: ", bytes, " bytes asked for");
  return p;
}

void ObjectPool::give_slow(void* p) { std::free(p); }

}  // namespace sf
