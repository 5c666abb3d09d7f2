// Packed copies of weights, kept between calls because a weight is read thousands of times for every write.
// An entry belongs to the bytes it was made from: (address, version, layout). A call with a newer version replaces it,
// and forget_packed() drops what was made from storage that goes away. At the byte limit, entries give way to one that
// is asked for again sooner than they were: a model that is larger than the limit keeps a part of its weights, instead
// of packing all of them at every pass. Thread-safe; an entry in use stays alive until its last user is done, whatever
// happens to the table.
#pragma once
#include <cstddef>
#include <cstdint>

#include "scaffolding/core/half.h"

namespace sf::cpu {

struct PackedKey {
  const void* data = nullptr;
  uint64_t version = 0;     // 0 is not cached: callers do not ask then
  uint32_t format = 0;      // who packed it, for which instruction set: kernels with equal layouts share a number
  int64_t layout[10] = {};  // sizes and strides of the source, and whatever else the layout depends on
  size_t unit = 0;          // bytes of one unit, where the arithmetic decides what that is
};

struct PackedEntry;
// The entry of `key`, holding `bytes` 64-byte aligned bytes filled by fill(ctx, bytes), which runs once. Null when one
// entry would exceed the limit: pack into scratch then.
PackedEntry* acquire_packed(const PackedKey& key, size_t bytes, void (*fill)(void* ctx, void* packed), void* ctx);
void release_packed(PackedEntry* entry);
void* packed_bytes(PackedEntry* entry);

// the storage destructor calls this: whatever was packed from its bytes goes
void forget_packed(const void* data, size_t bytes);
void set_packed_limit(size_t bytes);  // SF_PACKED_WEIGHTS_MB unless set; 0 turns the cache off
size_t packed_total();                // bytes kept now

// Owner of one use of an entry. Everything inlines: files compiled for an instruction set include this header.
class PackedWeight {
 public:
  template <class F>
  SF_INLINE PackedWeight(const PackedKey& key, size_t bytes, const F& fill)
      : entry_(key.version ? acquire_packed(
                                 key, bytes, [](void* ctx, void* p) { (*static_cast<const F*>(ctx))(p); },
                                 const_cast<F*>(&fill))
                           : nullptr) {}
  SF_INLINE ~PackedWeight() {
    if (entry_) release_packed(entry_);
  }
  PackedWeight(const PackedWeight&) = delete;
  SF_INLINE void* get() const { return entry_ ? packed_bytes(entry_) : nullptr; }

 private:
  PackedEntry* entry_;
};

}  // namespace sf::cpu
