#include "scaffolding/core/scratch.h"

#include <sys/mman.h>

#include <cstdlib>

#include "scaffolding/core/out_of_memory.h"

namespace sf {
namespace {

// A cache line and a 512-bit vector; blocks are rounded up to it, so a kernel may store whole vectors past the end of
// a row as long as it stays below its rounded size.
constexpr size_t kAlignment = 64;
// From here on in huge pages: walking through a packed matrix in pages of 4 KiB costs a product of 1024 rows 3 %.
constexpr size_t kHugePage = size_t(2) << 20;

// `bytes` is a multiple of kAlignment. A last part of a huge page stays in small ones,
// of which only those that are used count.
void* allocate(size_t bytes) {
  if (bytes < kHugePage) return std::aligned_alloc(kAlignment, bytes);
  void* p = nullptr;
  if (posix_memalign(&p, kHugePage, bytes) != 0) return nullptr;
  madvise(p, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // advice: without huge pages it is only slower
  return p;
}

struct Buffers {
  void* data[kScratchSlots] = {};
  size_t size[kScratchSlots] = {};

  size_t trim() {
    size_t freed = 0;
    for (int i = 0; i < kScratchSlots; ++i) {
      std::free(data[i]);
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
  std::free(b.data[slot]);
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
