#include "scaffolding/backend/cpu/packed_weights.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>
#include <new>
#include <unordered_map>

#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/core/env.h"

namespace sf::cpu {

// One reference for the table and one per user.
struct PackedEntry {
  PackedKey key;
  size_t bytes = 0;
  void* data = nullptr;
  std::atomic<int> users{1};
  uint64_t used = 0;  // when, by the table's clock
  std::once_flag filled;
  std::list<PackedEntry*>::iterator place;  // in the table's order of use
};

namespace {

constexpr size_t kMostMissed = 1 << 14;  // keys that are remembered

struct Table {
  std::mutex lock;
  std::list<PackedEntry*> order;  // most recently used first
  std::unordered_multimap<const void*, PackedEntry*> by_address;
  std::unordered_map<uint64_t, uint64_t> missed;  // keys that were not there: their hash, and when
  uint64_t clock = 0;                             // calls
  size_t total = 0, limit = size_t(std::max<int64_t>(env::integer("SF_PACKED_WEIGHTS_MB"), 0)) << 20;
};
Table& table() {
  static Table* t = new Table;  // never destroyed: storage may outlive static objects
  return *t;
}

void unref(PackedEntry* e) {
  if (e->users.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  std::free(e->data);
  delete e;
}

// Takes the entry out of the table. The caller holds the lock.
void remove(Table& t, PackedEntry* e) {
  auto [at, end] = t.by_address.equal_range(e->key.data);
  for (; at != end; ++at)
    if (at->second == e) {
      t.by_address.erase(at);
      break;
    }
  t.order.erase(e->place);
  t.total -= e->bytes;
  unref(e);
}

bool same_layout(const PackedKey& a, const PackedKey& b) {
  return a.format == b.format && a.unit == b.unit && std::memcmp(a.layout, b.layout, sizeof a.layout) == 0;
}

uint64_t hash_of(const PackedKey& key) {
  uint64_t h = reinterpret_cast<uintptr_t>(key.data) ^ key.format ^ key.unit << 16;
  for (int64_t l : key.layout) h = (h ^ uint64_t(l)) * 0x9e3779b97f4a7c15 + (h >> 29);
  return h;
}

// Room for `bytes` more, for a key that was last asked for `ago` calls before; 0: never. Of entries that are used as
// often, none goes.
bool make_room(Table& t, size_t bytes, uint64_t ago) {
  while (t.total + bytes > t.limit) {
    if (t.order.empty() || ago == 0 || t.clock - t.order.back()->used <= ago) return false;
    remove(t, t.order.back());
  }
  return true;
}

PackedEntry* find_or_add(const PackedKey& key, size_t bytes) {
  Table& t = table();
  std::lock_guard guard(t.lock);
  ++t.clock;
  auto [at, end] = t.by_address.equal_range(key.data);
  for (; at != end; ++at) {
    PackedEntry* e = at->second;
    if (!same_layout(e->key, key)) continue;
    if (e->key.version == key.version) {
      t.order.splice(t.order.begin(), t.order, e->place);
      e->used = t.clock;
      e->users.fetch_add(1, std::memory_order_relaxed);
      return e;
    }
    remove(t, e);
    break;
  }
  if (bytes > t.limit || (LeanMemory::active() && t.total + bytes > LeanMemory::most_packed())) return nullptr;
  if (t.total + bytes > t.limit) {
    if (t.missed.size() >= kMostMissed) t.missed.clear();
    uint64_t& last = t.missed[hash_of(key)];
    const uint64_t ago = last ? t.clock - last : 0;
    last = t.clock;
    if (!make_room(t, bytes, ago)) return nullptr;
  }
  void* data = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (!data) return nullptr;
  PackedEntry* e = new PackedEntry;
  e->key = key;
  e->bytes = bytes;
  e->data = data;
  e->users = 2;
  e->used = t.clock;
  t.order.push_front(e);
  e->place = t.order.begin();
  t.by_address.emplace(key.data, e);
  t.total += bytes;
  return e;
}

}  // namespace

PackedEntry* acquire_packed(const PackedKey& key, size_t bytes, void (*fill)(void* ctx, void* packed), void* ctx) {
  PackedEntry* e = find_or_add(key, bytes);
  if (e) std::call_once(e->filled, [&] { fill(ctx, e->data); });  // outside the lock: packing uses all threads
  return e;
}
void release_packed(PackedEntry* e) { unref(e); }
void* packed_bytes(PackedEntry* e) { return e->data; }

void forget_packed(const void* data, size_t bytes) {
  Table& t = table();
  std::lock_guard guard(t.lock);
  const auto begin = reinterpret_cast<uintptr_t>(data);
  for (auto at = t.order.begin(); at != t.order.end();) {  // views of the storage start anywhere in it
    PackedEntry* e = *at++;
    const auto p = reinterpret_cast<uintptr_t>(e->key.data);
    if (p >= begin && p - begin < bytes) remove(t, e);
  }
}

void set_packed_limit(size_t bytes) {
  Table& t = table();
  std::lock_guard guard(t.lock);
  t.limit = bytes;
  while (t.total > t.limit && !t.order.empty()) remove(t, t.order.back());
}

size_t packed_total() {
  Table& t = table();
  std::lock_guard guard(t.lock);
  return t.total;
}

}  // namespace sf::cpu
