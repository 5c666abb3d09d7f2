// The functions that -fsanitize=thread and -fsanitize=alignment call, and what they remember of each byte: who wrote it
// last and who has read it since.
#include "races.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include "cuda_runtime.h"
#include "grid.h"

namespace cuda_emulator::races {

Actor now;
bool inside = false, is_early = false;

namespace {

enum Who : uint16_t { kThread, kWarpOf, kBlockOf, kSeveral };  // kSeveral: block is an index of `readers`
struct Stamp {
  Actor by;
  Who who = kThread;
  bool atomic = false;
  explicit operator bool() const { return by.work != 0; }
};
struct Byte {
  Stamp write, read;
};
constexpr size_t kPage = 4096;
struct Page {
  bool is_shared = false;  // of a block: nothing of another block is remembered
  Byte bytes[kPage];
};

std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;  // null: memory that is nobody's business
std::vector<std::vector<Stamp>> readers;                     // of several blocks or works
std::vector<uint32_t> free_readers;                          // indices of it
bool busy = false;
int64_t found = 0;
std::set<std::pair<uintptr_t, uint32_t>> reported;

// ---- order between pieces of work

struct Stream {
  Clock clock;
  uint64_t count = 0;              // works begun
  std::vector<uint64_t> at_place;  // works by place in the queue
  std::vector<Clock> clock_at;     // beside it
};
std::vector<Stream>& streams() {
  static std::vector<Stream> all;
  return all;
}
struct Work {
  int stream;
  uint64_t number;
};
std::vector<Work> works(1);  // work 0 is none
int selected = 0;
Clock host;

void raise(Clock& c, size_t i, uint64_t to) {
  if (c.size() <= i) c.resize(i + 1);
  c[i] = std::max(c[i], to);
}
void raise(Clock& c, const Clock& by) {
  for (size_t i = 0; i < by.size(); ++i) raise(c, i, by[i]);
}
Clock clock_of(int stream, uint64_t place) {
  Stream& s = streams()[size_t(stream)];
  if (place == 0 || place > s.at_place.size()) return {};
  Clock c = s.clock_at[place - 1];
  raise(c, size_t(stream), s.at_place[place - 1]);
  return c;
}

bool work_before(uint32_t work) {
  const Work& w = works[work];
  const Stream& s = streams()[size_t(selected)];
  return w.stream == selected || (size_t(w.stream) < s.clock.size() && s.clock[size_t(w.stream)] >= w.number);
}

// ---- order inside of a grid by fences and atomics: what a thread knows of others

struct Known {
  uint32_t barriers = 0;  // of all threads of a block: what came before its barriers-th
  // of one thread: what came before these numbers of barriers, and at them
  std::map<uint16_t, std::pair<uint32_t, uint16_t>> of_thread;
};
using Knowledge = std::map<uint32_t, Known>;  // by block
void learn(Knowledge& to, const Knowledge& from) {
  for (auto& [block, known] : from) {
    Known& k = to[block];
    k.barriers = std::max(k.barriers, known.barriers);
    for (auto& [thread, at] : known.of_thread) k.of_thread[thread] = std::max(k.of_thread[thread], at);
  }
}
struct ThreadState {
  Knowledge acquired, pending, at_fence;
  bool has_fenced = false;
};
std::map<uint32_t, ThreadState> thread_states;  // of the running block
std::map<const void*, Knowledge> released;      // by the word of the atomic, in this grid
uint32_t state_block = 0, state_work = 0;

void states_of_now() {
  if (state_work != now.work) released.clear();
  if (state_work != now.work || state_block != now.block) thread_states.clear();
  state_work = now.work, state_block = now.block;
}
bool knows(const Stamp& s) {
  if (thread_states.empty() || state_work != now.work || state_block != now.block || s.who > kWarpOf) return false;
  auto me = thread_states.find(now.thread);
  if (me == thread_states.end()) return false;
  auto block = me->second.acquired.find(s.by.block);
  if (block == me->second.acquired.end()) return false;
  if (s.by.barriers < block->second.barriers) return true;
  auto thread = block->second.of_thread.find(s.by.thread);
  return thread != block->second.of_thread.end() && std::pair(s.by.barriers, s.by.warp_barriers) <= thread->second;
}

bool before(const Stamp& s) {
  if (s.who == kSeveral) {
    for (const Stamp& one : readers[s.by.block])
      if (!before(one)) return false;
    return true;
  }
  if (s.by.work != now.work) return work_before(s.by.work);
  if (s.by.block == now.block) {
    if (s.by.barriers < now.barriers) return true;
    if (s.who == kThread && s.by.thread == now.thread) return true;
    if (s.who != kBlockOf && s.by.thread / 32 == now.thread / 32 && s.by.warp_barriers < now.warp_barriers) return true;
  }
  return knows(s);
}

// ---- memory

struct Segment {
  uintptr_t begin, end;
};
// Where static shared memory lies: data of this library and of kernels from source.
std::vector<Segment> segments() {
  std::vector<Segment> all;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        bool ours =
            std::strstr(info->dlpi_name, "libscaffolding_cuda.so") || std::strstr(info->dlpi_name, "/proc/self/fd/");
        for (int i = 0; ours && i < info->dlpi_phnum; ++i)
          if (auto& p = info->dlpi_phdr[i]; p.p_type == PT_LOAD && p.p_flags & PF_W)
            static_cast<std::vector<Segment>*>(to)->push_back(
                {info->dlpi_addr + p.p_vaddr, info->dlpi_addr + p.p_vaddr + p.p_memsz});
        return 0;
      },
      &all);
  return all;
}

// The pages that were asked for last, by the low bits of their numbers.
struct Recent {
  uintptr_t number = 0;
  Page* page = nullptr;
} recent[256];

Page* page_of(uintptr_t at) {
  uintptr_t number = at / kPage;
  Recent& r = recent[number % 256];
  if (r.number == number) return r.page;
  auto at_page = pages.find(number);
  if (at_page == pages.end()) {
    bool shared = is_dynamic_shared(reinterpret_cast<const void*>(at));
    if (!shared)
      for (auto& s : segments()) shared = shared || (number >= s.begin / kPage && number <= (s.end - 1) / kPage);
    at_page = pages.emplace(number, nullptr).first;
    if (shared || is_device_memory(number * kPage, kPage))
      at_page->second = std::make_unique<Page>(), at_page->second->is_shared = shared;
  }
  r = {number, at_page->second.get()};
  return r.page;
}

const char* name_of(Who w) { return w == kThread ? "thread" : w == kWarpOf ? "warp of thread" : "block of thread"; }

// Counts what was found at a place; whether it is to be told, with where: of each place and kind once.
bool is_new(const void* pc, uint32_t kind) {
  ++found;
  return reported.insert({reinterpret_cast<uintptr_t>(pc), kind}).second;
}
void tell_place(const void* pc) {
  Dl_info place{};
  dladdr(pc, &place);
  std::fprintf(stderr, "  in work %u of stream %d; %s+%#zx (addr2line -Cfie)\n", now.work, selected,
               place.dli_fname ? place.dli_fname : "?",
               size_t(static_cast<const char*>(pc) - static_cast<const char*>(place.dli_fbase)));
  const char* how = std::getenv("SF_CUDA_EMULATOR_RACES");
  if (!how || std::strcmp(how, "count") != 0) std::abort();
}

void report(const Stamp& s, uintptr_t at, size_t bytes, bool write, bool was_write, const void* pc) {
  if (!is_new(pc, was_write)) return;
  Stamp other = s.who == kSeveral ? readers[s.by.block].back() : s;
  std::fprintf(stderr,
               "CUDA emulator: race: thread %u of block %u %s %zu bytes at %#zx that %s %u of block %u%s %s, and "
               "nothing orders the two\n",
               now.thread, now.block, write ? "writes" : "reads", bytes, size_t(at), name_of(other.who),
               other.by.thread, other.by.block, other.by.work == now.work ? "" : " of other work",
               was_write ? "wrote" : "read");
  tell_place(pc);
}
void report_early(uintptr_t at, size_t bytes, bool write, const void* pc) {
  if (!is_new(pc, 2)) return;
  std::fprintf(stderr,
               "CUDA emulator: race: thread %u of block %u %s %zu bytes at %#zx before it waited for the grid before\n",
               now.thread, now.block, write ? "writes" : "reads", bytes, size_t(at));
  tell_place(pc);
}

void replace(Stamp& s, const Stamp& by) {
  if (s && s.who == kSeveral) {
    readers[s.by.block].clear();
    free_readers.push_back(s.by.block);
  }
  s = by;
}

void add_reader(Stamp& r, bool atomic) {
  Stamp mine{now, kThread, atomic};
  if (!r || before(r)) return replace(r, mine);
  auto widen = [&](Stamp& s) {
    if (s.by.work != now.work || s.by.block != now.block || s.atomic != atomic) return false;
    if (s.who == kThread && s.by.thread == now.thread) return s = mine, true;
    bool one_warp = s.who != kBlockOf && s.by.thread / 32 == now.thread / 32 &&
                    s.by.warp_barriers == now.warp_barriers && s.by.barriers == now.barriers;
    s.who = one_warp ? kWarpOf : kBlockOf;
    s.by.barriers = std::max(s.by.barriers, now.barriers);
    return true;
  };
  if (r.who != kSeveral) {
    if (widen(r)) return;
    if (free_readers.empty()) free_readers.push_back(uint32_t(readers.size())), readers.emplace_back();
    readers[free_readers.back()].push_back(r);
    r.who = kSeveral, r.by.block = free_readers.back();
    free_readers.pop_back();
  }
  auto& all = readers[r.by.block];
  if (!widen(all.back())) all.push_back(mine);
}

void touched(uintptr_t at, size_t bytes, bool write, bool atomic, const void* pc) {
  if (busy) return;
  busy = true;
  for (uintptr_t a = at; a < at + bytes; ++a) {
    Page* page = page_of(a);
    if (!page) {
      a = (a / kPage + 1) * kPage - 1;
      continue;
    }
    Byte& b = page->bytes[a % kPage];
    if (is_early && !page->is_shared && a == at) report_early(at, bytes, write, pc);
    if (page->is_shared) {
      auto of_others = [](const Stamp& s) {
        const Actor& a = s.who == kSeveral ? readers[s.by.block].back().by : s.by;
        return s && (a.work != now.work || a.block != now.block);
      };
      if (of_others(b.write)) b.write = {};
      if (of_others(b.read)) replace(b.read, {});
    }
    if (b.write && !(atomic && b.write.atomic) && !before(b.write))
      report(b.write, at, bytes, write, true, pc), b.write = {};
    if (write) {
      if (b.read && !(atomic && b.read.atomic) && !before(b.read)) report(b.read, at, bytes, write, false, pc);
      replace(b.read, {});
      b.write = {now, kThread, atomic};
    } else {
      add_reader(b.read, atomic);
    }
  }
  busy = false;
}

}  // namespace

int add_stream() {
  streams().emplace_back();
  return int(streams().size()) - 1;
}
int select(int stream) { return std::exchange(selected, stream); }
void begin_work() {
  works.push_back({selected, ++streams()[size_t(selected)].count});
  now = {};
  now.work = uint32_t(works.size() - 1);
}
void end_piece(int stream, uint64_t place) {
  Stream& s = streams()[size_t(stream)];
  s.at_place.resize(std::max<size_t>(s.at_place.size(), place), s.count), s.clock_at.resize(s.at_place.size(), s.clock);
  s.at_place[place - 1] = s.count, s.clock_at[place - 1] = s.clock;
}
void join(int stream, int other, uint64_t place) { raise(streams()[size_t(stream)].clock, clock_of(other, place)); }
void host_waited(int other, uint64_t place) { raise(host, clock_of(other, place)); }
Clock host_clock() { return host; }
void join(int stream, const Clock& c) { raise(streams()[size_t(stream)].clock, c); }
void touch(const void* at, size_t bytes, bool write) {
  touched(reinterpret_cast<uintptr_t>(at), bytes, write, false, __builtin_return_address(0));
}
void forget(const void* at, size_t bytes) {
  for (uintptr_t p = reinterpret_cast<uintptr_t>(at) / kPage; p <= (reinterpret_cast<uintptr_t>(at) + bytes) / kPage;
       ++p)
    pages.erase(p);
  std::fill(std::begin(recent), std::end(recent), Recent());
}

// All threads of the block have come: each knows what one of them knew.
void open_barrier(unsigned) {
  if (thread_states.empty()) return;
  states_of_now();
  Knowledge all;
  for (auto& [t, s] : thread_states) learn(all, s.acquired);
  if (all.empty()) return;
  for (unsigned t = 0; t < 1024; ++t) learn(thread_states[t].acquired, all);
}

}  // namespace cuda_emulator::races

namespace cuda_emulator {

using namespace races;

void fence() {
  Outside not_a_kernels;
  states_of_now();
  ThreadState& me = thread_states[now.thread];
  learn(me.acquired, me.pending);
  me.at_fence = me.acquired;
  Known& own = me.at_fence[now.block];
  own.barriers = std::max(own.barriers, now.barriers);
  own.of_thread[now.thread] = {now.barriers, now.warp_barriers};
  me.has_fenced = true;
}

Atomic::Atomic(const void* at, unsigned long bytes) {
  inside = false;
  touched(reinterpret_cast<uintptr_t>(at), bytes, true, true, __builtin_return_address(0));
  states_of_now();
  ThreadState& me = thread_states[now.thread];
  learn(me.pending, released[at]);
  if (me.has_fenced) learn(released[at], me.at_fence);
}
Atomic::~Atomic() { inside = true; }

}  // namespace cuda_emulator

using cuda_emulator::races::inside;
using cuda_emulator::races::touched;

// The number of races that were found, with SF_CUDA_EMULATOR_RACES=count; without, the first one ends the program.
extern "C" __attribute__((visibility("default"))) int64_t sf_cuda_emulator_races() {
  return cuda_emulator::races::found;
}

#define SF_CALLED extern "C" __attribute__((visibility("default")))
#define SF_ACCESS(name, bytes, write)                                                                       \
  SF_CALLED void __tsan_##name(void* at) {                                                                  \
    if (inside) touched(reinterpret_cast<uintptr_t>(at), bytes, write, false, __builtin_return_address(0)); \
  }
#define SF_SIZES(bytes)                         \
  SF_ACCESS(read##bytes, bytes, false)          \
  SF_ACCESS(write##bytes, bytes, true)          \
  SF_ACCESS(volatile_read##bytes, bytes, false) \
  SF_ACCESS(volatile_write##bytes, bytes, true)
SF_SIZES(1)
SF_SIZES(2)
SF_SIZES(4)
SF_SIZES(8)
SF_SIZES(16)
SF_ACCESS(unaligned_read2, 2, false)
SF_ACCESS(unaligned_read4, 4, false)
SF_ACCESS(unaligned_read8, 8, false)
SF_ACCESS(unaligned_read16, 16, false)
SF_ACCESS(unaligned_write2, 2, true)
SF_ACCESS(unaligned_write4, 4, true)
SF_ACCESS(unaligned_write8, 8, true)
SF_ACCESS(unaligned_write16, 16, true)
SF_CALLED void __tsan_read_range(void* at, size_t bytes) {
  if (inside) touched(reinterpret_cast<uintptr_t>(at), bytes, false, false, __builtin_return_address(0));
}
SF_CALLED void __tsan_write_range(void* at, size_t bytes) {
  if (inside) touched(reinterpret_cast<uintptr_t>(at), bytes, true, false, __builtin_return_address(0));
}
SF_CALLED void __tsan_init() {}
SF_CALLED void __tsan_func_entry(void*) {}
SF_CALLED void __tsan_func_exit() {}
SF_CALLED void __tsan_vptr_read(void*) {}
SF_CALLED void __tsan_vptr_update(void*, void*) {}

// Atomics of the host's code in these files.
#define SF_HOST_ATOMICS(bits)                                                                                   \
  SF_CALLED uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t* a, int) {                  \
    return __atomic_load_n(a, __ATOMIC_SEQ_CST);                                                                \
  }                                                                                                             \
  SF_CALLED void __tsan_atomic##bits##_store(volatile uint##bits##_t* a, uint##bits##_t v, int) {               \
    __atomic_store_n(a, v, __ATOMIC_SEQ_CST);                                                                   \
  }                                                                                                             \
  SF_CALLED uint##bits##_t __tsan_atomic##bits##_exchange(volatile uint##bits##_t* a, uint##bits##_t v, int) {  \
    return __atomic_exchange_n(a, v, __ATOMIC_SEQ_CST);                                                         \
  }                                                                                                             \
  SF_CALLED uint##bits##_t __tsan_atomic##bits##_fetch_add(volatile uint##bits##_t* a, uint##bits##_t v, int) { \
    return __atomic_fetch_add(a, v, __ATOMIC_SEQ_CST);                                                          \
  }                                                                                                             \
  SF_CALLED uint##bits##_t __tsan_atomic##bits##_fetch_sub(volatile uint##bits##_t* a, uint##bits##_t v, int) { \
    return __atomic_fetch_sub(a, v, __ATOMIC_SEQ_CST);                                                          \
  }                                                                                                             \
  SF_CALLED bool __tsan_atomic##bits##_compare_exchange_strong(volatile uint##bits##_t* a, uint##bits##_t* c,   \
                                                               uint##bits##_t v, int, int) {                    \
    return __atomic_compare_exchange_n(a, c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                     \
  }                                                                                                             \
  SF_CALLED bool __tsan_atomic##bits##_compare_exchange_weak(volatile uint##bits##_t* a, uint##bits##_t* c,     \
                                                             uint##bits##_t v, int, int) {                      \
    return __atomic_compare_exchange_n(a, c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                     \
  }
SF_HOST_ATOMICS(8)
SF_HOST_ATOMICS(16)
SF_HOST_ATOMICS(32)
SF_HOST_ATOMICS(64)
SF_CALLED void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
SF_CALLED void __tsan_atomic_signal_fence(int) {}

// -fsanitize=alignment: a load or store through a pointer that is not aligned for its type.
// As UBSan's runtime declares it.
struct SourceLocation {
  const char* file;
  uint32_t line, column;
};
struct TypeMismatch {
  SourceLocation where;
  const void* type;
  unsigned char log_alignment, kind;
};
SF_CALLED void __ubsan_handle_type_mismatch_v1_abort(TypeMismatch* m, uintptr_t at) {
  std::fprintf(stderr, "CUDA emulator: %s:%u:%u: an address %#zx that is not aligned to %u bytes\n", m->where.file,
               m->where.line, m->where.column, size_t(at), 1u << m->log_alignment);
  cuda_emulator::stop("misaligned address");
}
