#include "scaffolding/backend/cpu/sealed_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

#include "scaffolding/core/out_of_memory.h"
#include "scaffolding/core/tensor.h"

namespace sf::cpu {

namespace {
struct Seals {
  std::mutex lock;
  std::map<uintptr_t, uintptr_t> ranges;  // first byte, end
};
Seals& seals() {
  static auto* all = new Seals;  // never destroyed: files may be unmapped after main
  return *all;
}
std::atomic<size_t> g_count{0};
}  // namespace

void seal(const void* data, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  std::lock_guard guard(seals().lock);
  seals().ranges[begin] = begin + bytes;
  g_count = seals().ranges.size();
}

void forget_seal(const void* data) {
  std::lock_guard guard(seals().lock);
  seals().ranges.erase(reinterpret_cast<uintptr_t>(data));
  g_count = seals().ranges.size();
}

void will_write(const void* data, size_t bytes) {
  if (g_count.load(std::memory_order_relaxed) == 0 || !data || bytes == 0) return;
  static const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data);
  std::lock_guard guard(seals().lock);
  auto next = seals().ranges.upper_bound(begin);
  if (next == seals().ranges.begin() || begin >= std::prev(next)->second) return;
  const uintptr_t from = begin / page * page;
  if (mprotect(reinterpret_cast<void*>(from), begin + bytes - from, PROT_READ | PROT_WRITE) == 0) return;
  fail<OutOfMemory>("cpu: out of memory: ", bytes, " bytes of a mapped file are to be written, which takes memory of ",
                    "this process: ", std::strerror(errno), "; raise its limit (ulimit -d)");
}

void will_write(const Tensor& t) {
  if (g_count.load(std::memory_order_relaxed) == 0 || !t || !t.storage() || !t.device().is_cpu()) return;
  will_write(t.storage()->data, t.storage()->bytes);
}

}  // namespace sf::cpu
