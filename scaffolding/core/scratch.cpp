#include "scaffolding/core/scratch.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "scaffolding/core/out_of_memory.h"

namespace sf {
namespace {

// A cache line and a 512-bit vector; blocks are rounded up to it, so a kernel may store whole vectors past the end of
// a row as long as it stays below its rounded size.
constexpr size_t kAlignment = 64;
// From here on in huge pages: walking through a packed matrix in pages of 4 KiB costs a product of 1024 rows 3 %.
constexpr size_t kHugePage = size_t(2) << 20;

// `bytes` is a multiple of kAlignment. Large buffers are mapped: what malloc frees when they grow may stay with the
// process. A last part of a huge page stays in small ones, of which only those that are used count.
void* allocate(size_t bytes) {
  if (bytes < kHugePage) return std::aligned_alloc(kAlignment, bytes);
  char* mapped =
      static_cast<char*>(mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (mapped == MAP_FAILED) return nullptr;
  const size_t page = size_t(sysconf(_SC_PAGESIZE)), whole = (bytes + page - 1) / page * page,
               before = (kHugePage - reinterpret_cast<uintptr_t>(mapped) % kHugePage) % kHugePage;
  if (before > 0) munmap(mapped, before);
  if (bytes + kHugePage > before + whole) munmap(mapped + before + whole, bytes + kHugePage - before - whole);
  madvise(mapped + before, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // advice: without it is only slower
  return mapped + before;
}

void release(void* data, size_t bytes) {
  if (bytes < kHugePage) std::free(data);
  else munmap(data, bytes);
}

struct Buffers {
  void* data[kScratchSlots] = {};
  size_t size[kScratchSlots] = {};

  size_t trim() {
    size_t freed = 0;
    for (int i = 0; i < kScratchSlots; ++i) {
      if (data[i]) release(data[i], size[i]);
      freed += size[i];
      data[i] = nullptr;
      size[i] = 0;
    }
    return freed;
  }
  ~Buffers() { trim(); }
};

thread_local Buffers buffers;

}  // namespace

void* scratch(size_t bytes, int slot) {
  SF_ASSERT(slot >= 0 && slot < kScratchSlots);
  Buffers& b = buffers;
  if (b.data[slot] && bytes <= b.size[slot]) return b.data[slot];
  // Free first: contents need not survive, and the peak stays one buffer instead of two.
  if (b.data[slot]) release(b.data[slot], b.size[slot]);
  b.data[slot] = nullptr;
  b.size[slot] = 0;
  size_t rounded = bytes < kAlignment ? kAlignment : (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* p = rounded < bytes ? nullptr : allocate(rounded);
  SF_CHECK_AS(OutOfMemory, p, "scratch: no memory for a kernel's working buffer of ", (unsigned long)bytes,
              " bytes; free tensors or use fewer threads");
  b.data[slot] = p;
  b.size[slot] = rounded;
  return p;
}

size_t trim_scratch() { return buffers.trim(); }

}  // namespace sf
