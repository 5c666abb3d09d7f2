// Host memory, kept between steps: a fresh mmap of a large activation costs a page fault per 4 KiB, several times the
// memory traffic of the op that fills it. Freed blocks wait in lists by size class, at most SF_CPU_CACHE_MB of them.
// LeanMemory gives freed blocks back sooner. Under AddressSanitizer nothing is cached, so that use after free is seen.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "scaffolding/backend/backend.h"
#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/backend/free_memory.h"
#include "scaffolding/core/env.h"
#include "scaffolding/core/out_of_memory.h"

#if defined(__SANITIZE_ADDRESS__)
#define SF_NO_HOST_CACHE 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SF_NO_HOST_CACHE 1
#endif
#endif

namespace sf::cpu {

namespace {

constexpr size_t kSmall = 32 << 10;  // below: per-thread lists, no lock
constexpr size_t kHuge = 4 << 20;    // from here: 2 MiB aligned, transparent huge pages

// Four classes per power of two: at most 25 % of a block is unused.
size_t class_of(size_t bytes) {
  if (bytes <= 64) return 0;
  size_t top = std::bit_width(bytes - 1) - 1;                 // 2^top < bytes <= 2^(top+1)
  return 1 + (top - 6) * 4 + ((bytes - 1) >> (top - 2)) - 4;  // quarter of the interval
}
size_t class_bytes(size_t c) {
  if (c == 0) return 64;
  size_t top = (c - 1) / 4 + 6, quarter = (c - 1) % 4;
  return (size_t(1) << top) + ((quarter + 1) << (top - 2));
}
constexpr size_t kClasses = 4 * 58;

constexpr size_t kLeanSlack = 32 << 20, kLittle = 384 << 20;

std::atomic<size_t> g_cached{0}, g_used{0}, g_peak{0};

struct Shared {
  std::mutex lock;
  std::vector<void*> free[kClasses];
  uint64_t clock = 0, last_use[kClasses] = {};  // when a block of the class was last asked for
};
Shared& shared() {
  static Shared* s = new Shared;  // never destroyed: tensors in static storage may outlive main
  return *s;
}

constexpr size_t kPage = size_t(2) << 20;
size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Huge blocks are mapped: what malloc frees may stay with the process.
void* from_system(size_t bytes) {
  void* p = nullptr;
#ifndef SF_NO_HOST_CACHE
  if (bytes >= kHuge) {
    const size_t huge = bytes / kPage * kPage;  // the rest in small pages, of which only those that are used count
    bytes = whole_pages(bytes);
    char* mapped =
        static_cast<char*>(mmap(nullptr, bytes + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (mapped == MAP_FAILED) return nullptr;
    const size_t before = (kPage - reinterpret_cast<uintptr_t>(mapped) % kPage) % kPage;
    if (before > 0) munmap(mapped, before);
    munmap(mapped + before + bytes, kPage - before);
    madvise(mapped + before, huge, MADV_HUGEPAGE);
    return mapped + before;
  }
#endif
  return posix_memalign(&p, 64, bytes) == 0 ? p : nullptr;
}
void to_system(void* data, size_t bytes) {
#ifndef SF_NO_HOST_CACHE
  if (bytes >= kHuge) {
    munmap(data, whole_pages(bytes));
    return;
  }
#endif
  (void)bytes;
  std::free(data);
}

#ifndef SF_NO_HOST_CACHE
// An eighth of the free memory, asked for once and only by a process that has freed more than the fixed bound.
size_t eighth_of_free_memory() {
  static const size_t bytes = [] {
    try {
      return free_host_memory().free / 8;
    } catch (...) {  // no memory to read the system's tables: a release must not throw
      return size_t(0);
    }
  }();
  return bytes;
}

constexpr int kSmallClasses = 38;  // class_of(kSmall) + 1
constexpr int kPerThread = 32;
struct Local {
  void* blocks[kSmallClasses][kPerThread];
  int count[kSmallClasses] = {};
};
constinit thread_local bool t_gone = false;  // blocks freed while the thread ends go to the system
// On the heap: the library has initial-exec thread-locals, so all of its thread-local storage must fit in the few
// hundred bytes that the loader keeps free for libraries opened at run time, as a Python module is.
constinit thread_local Local* t_local = nullptr;
Local* make_local() {
  struct Owner {
    ~Owner() {
      t_gone = true;
      for (int c = 0; c < kSmallClasses; ++c)
        for (int i = 0; i < t_local->count[c]; ++i) std::free(t_local->blocks[c][i]);
      delete std::exchange(t_local, nullptr);
    }
  };
  t_local = new Local;
  static thread_local Owner owner;
  (void)&owner;
  return t_local;
}
Local& local() { return *(t_local ? t_local : make_local()); }
#endif

std::atomic<size_t>& limit_of_memory() {
  static std::atomic<size_t> limit{size_t(env::integer("SF_CPU_MEMORY_LIMIT_MB")) << 20};
  return limit;
}

void count_allocated(size_t bytes) {
  size_t now = g_used.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (now > g_peak.load(std::memory_order_relaxed)) g_peak.store(now, std::memory_order_relaxed);
}

#ifndef SF_NO_HOST_CACHE
// Gives back one block of the class that was not asked for longest. False: none is cached. The caller holds the lock.
bool drop_oldest(Shared& s) {
  size_t oldest = kClasses;
  for (size_t c = 0; c < kClasses; ++c)
    if (!s.free[c].empty() && (oldest == kClasses || s.last_use[c] < s.last_use[oldest])) oldest = c;
  if (oldest == kClasses) return false;
  to_system(s.free[oldest].back(), class_bytes(oldest));
  s.free[oldest].pop_back();
  g_cached -= class_bytes(oldest);
  return true;
}
// Before `size` bytes are asked of the system, as LeanMemory promises. The caller holds the lock.
void make_room(Shared& s, size_t size) {
  const size_t most = std::max(std::max(g_peak.load(), g_used + size) + kLeanSlack, kLittle);
  while (g_used + g_cached + size > most && drop_oldest(s)) {}
}
#endif

}  // namespace

void* allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  SF_CHECK_AS(OutOfMemory, bytes < (size_t(1) << 60), "cpu: out of memory: ", bytes, " bytes asked for");
  size_t c = class_of(bytes), size = class_bytes(c);
#ifdef SF_NO_HOST_CACHE
  size = bytes;  // so that a read past the end is seen
#else
  if (size <= kSmall && !t_gone) {
    if (Local& mine = local(); mine.count[c] > 0) {
      count_allocated(size);
      return mine.blocks[c][--mine.count[c]];
    }
  } else {
    Shared& s = shared();
    std::lock_guard guard(s.lock);
    s.last_use[c] = ++s.clock;
    if (!s.free[c].empty()) {
      void* p = s.free[c].back();
      s.free[c].pop_back();
      g_cached -= size;
      count_allocated(size);
      return p;
    }
    if (LeanMemory::active()) make_room(s, size);
  }
#endif
  if (size_t limit = limit_of_memory(); limit > 0 && g_used + g_cached + size > limit) {
    empty_cache();
    SF_CHECK_AS(OutOfMemory, g_used + size <= limit, "cpu: out of memory: ", size >> 20, " MiB asked for, ",
                g_used.load() >> 20, " MiB in use, the limit is ", limit >> 20, " MiB (SF_CPU_MEMORY_LIMIT_MB)");
  }
  void* p = from_system(size);
  if (!p) {
    empty_cache();
    p = from_system(size);
  }
  SF_CHECK_AS(OutOfMemory, p, "cpu: out of memory: ", size >> 20, " MiB asked for, ", g_used.load() >> 20,
              " MiB in use");
  count_allocated(size);
  return p;
}

// Where SF_CPU_CACHE_MB is not set, what a training step takes again and again may stay: the process then holds no more
// than it did at its peak with the fixed part, and beside that no more than an eighth of the free memory.
bool may_cache(size_t bytes) {
#ifdef SF_NO_HOST_CACHE
  return bytes == 0;
#else
  static const bool set = !env::text("SF_CPU_CACHE_MB").empty();
  static const size_t fixed = set ? size_t(env::integer("SF_CPU_CACHE_MB")) << 20 : size_t(1) << 30;
  if (bytes <= fixed || set) return bytes <= fixed;
  const size_t used = g_used, peak = g_peak;
  return bytes <= fixed + std::min(eighth_of_free_memory(), peak > used ? peak - used : 0);
#endif
}

void release(void* data, size_t bytes) {
  if (!data) return;
  size_t c = class_of(bytes), size = class_bytes(c);
#ifdef SF_NO_HOST_CACHE
  g_used -= bytes;
  (void)size;
#else
  g_used.fetch_sub(size, std::memory_order_relaxed);
  if (size <= kSmall) {
    if (Local* mine = t_gone ? nullptr : &local(); mine && mine->count[c] < kPerThread) {
      mine->blocks[c][mine->count[c]++] = data;
      return;
    }
  } else if (may_cache(size)) {
    Shared& s = shared();
    std::lock_guard guard(s.lock);
    // what a program no longer asks for gives way to what it does
    while (!may_cache(g_cached + size) && drop_oldest(s)) {}
    s.free[c].push_back(data);
    g_cached += size;
    return;
  }
#endif
  to_system(data, size);
}

void empty_cache() {
  Shared& s = shared();
  std::lock_guard guard(s.lock);
  for (size_t c = 0; c < kClasses; ++c) {
    for (void* p : s.free[c]) to_system(p, class_bytes(c));
    s.free[c].clear();
  }
  g_cached = 0;
}

size_t cached_bytes() { return g_cached; }
size_t allocated_bytes() { return g_used; }
size_t max_allocated_bytes() { return g_peak; }
void set_memory_limit(size_t bytes) { limit_of_memory() = bytes; }
size_t memory_limit() { return limit_of_memory(); }
void reset_peak() { g_peak = g_used.load(); }

}  // namespace sf::cpu
