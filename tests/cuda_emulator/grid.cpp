// Threads of a block as contexts of one processor thread. A context runs one emulated thread after the other until one
// has to wait; then another context goes on with the threads that have not started. Kernels without barriers never
// switch. A warp runs until all of its threads wait for the block: what other warps do meanwhile,
// they do before or after, never in step.
#include "grid.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cuda_runtime.h"
#include "races.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace cuda_emulator {

namespace {

// Where a context goes on. A ucontext starts it; from then on jumps, which make no system call.
struct Place {
  jmp_buf at;
};

constexpr unsigned kWarp = 32;
constexpr size_t kStack = 128 << 10, kPage = 4096;

// A copy to shared memory that the thread started and has not waited for. group: how many groups were closed before.
struct Copy {
  unsigned char* to;
  const void* from;
  int bytes, group;
};
enum class State { Ready, AtBarrier, AtExchange, Done };
struct Thread {
  State state = State::Ready;
  Place* place = nullptr;  // where it waits
  int rounds = 0;          // exchanges so far
  int barriers = 0;        // of the block that it has reached
  int warp_barriers = 0;
  std::vector<Copy> copies;
  int groups = 0;  // closed by commit
};
// What the lanes of a warp gave to the last two exchanges: a lane may be one ahead of the slowest.
struct Warp {
  Given values[2][kWarp] = {};
  unsigned given[2] = {};  // a bit per lane
};

std::vector<Thread> threads;
std::vector<Warp> warps;
std::vector<Place*> idle;  // contexts that wait for a thread to run
Place scheduler;
const std::function<void()>* body;
unsigned current, started, may_start, ended, at_barrier;
int barriers_opened;
bool backwards, trapped;
unsigned char* dynamic = nullptr;  // shared memory of the block, up to a closed page
size_t dynamic_bytes = 0;
int64_t bank_conflicts = 0;

unsigned nth(unsigned i) { return backwards ? unsigned(threads.size()) - 1 - i : i; }

void enter(unsigned t) {
  current = t;
  races::now.thread = uint16_t(t), races::now.barriers = uint32_t(threads[t].barriers),
  races::now.warp_barriers = uint16_t(threads[t].warp_barriers);
  threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
}

void back_to_scheduler(Place& self) {
  if (_setjmp(self.at) == 0) _longjmp(scheduler.at, 1);
}

void run_threads() {
  for (;;) {
    while (started < may_start) {
      enter(nth(started++));
      races::inside = true;
      (*body)();
      races::inside = false;
      threads[current].state = State::Done;
      if (!threads[current].copies.empty())
        stop("a thread ended with copies to shared memory that it never waited for");
      ++ended;
    }
    Place self;
    idle.push_back(&self);
    back_to_scheduler(self);
  }
}

void resume(Place* place) {
  if (_setjmp(scheduler.at) == 0) _longjmp(place->at, 1);
}

// A context for threads that have not started.
void start_some() {
  if (!idle.empty()) {
    Place* place = idle.back();
    idle.pop_back();
    return resume(place);
  }
  ucontext_t context;
  getcontext(&context);
  // Kept for as long as the process: the next block uses it again.
  void* stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) stop("no memory for the stack of a thread");
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = kStack;
  context.uc_link = nullptr;
  makecontext(&context, run_threads, 0);
  if (_setjmp(scheduler.at) == 0) setcontext(&context);
}

void wait_as(State state) {
  Thread& me = threads[current];
  unsigned t = current;
  Place self;
  me.state = state;
  me.place = &self;
  back_to_scheduler(self);
  threads[t].state = State::Ready;
  enter(t);
}

unsigned alive_in_warp(unsigned w) {
  unsigned mask = 0;
  for (unsigned l = 0; l < kWarp && w * kWarp + l < threads.size(); ++l)
    if (threads[w * kWarp + l].state != State::Done) mask |= 1u << l;
  return mask;
}

bool may_go_on(unsigned t) {
  const Thread& thread = threads[t];
  if (thread.state == State::AtBarrier) return barriers_opened >= thread.barriers;
  if (thread.state != State::AtExchange) return false;
  unsigned alive = alive_in_warp(t / kWarp);
  return (warps[t / kWarp].given[(thread.rounds - 1) % 2] & alive) == alive;
}

void run_block(unsigned count) {
  threads.assign(count, Thread());
  warps.assign((count + kWarp - 1) / kWarp, Warp());
  started = may_start = ended = at_barrier = 0;
  barriers_opened = 0;
  while (ended < count) {
    bool moved = false;
    for (unsigned begin = 0, end; begin < count; begin = end) {  // a warp, as far as it gets alone
      end = begin + 1;
      while (end < count && nth(end) / kWarp == nth(begin) / kWarp) ++end;
      may_start = std::max(may_start, end);
      while (started < may_start) {
        start_some(), moved = true;
        if (trapped) return;
      }
      for (bool more = true; more;) {
        more = false;
        for (unsigned i = begin; i < end; ++i) {
          if (!may_go_on(nth(i))) continue;
          moved = more = true;
          resume(threads[nth(i)].place);
          if (trapped) return;
        }
      }
    }
    // everybody who has not ended is there
    if (at_barrier == count - ended) at_barrier = 0, ++barriers_opened, races::open_barrier(count);
    else if (!moved)
      stop("deadlock: threads of a block wait for each other at different barriers, shuffles or ballots");
  }
}

constexpr size_t kOpen = (kMostShared + kPage - 1) / kPage * kPage;
unsigned char* shared_end = nullptr;

// Shared memory of this many bytes that ends at a closed page.
void provide_shared(size_t bytes) {
  if (!shared_end) {
    void* m = mmap(nullptr, kOpen + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) stop("no memory for a block");
    shared_end = static_cast<unsigned char*>(m) + kOpen;
    if (mprotect(shared_end, kPage, PROT_NONE) != 0) stop("mprotect failed");
  }
  dynamic_bytes = bytes;
  dynamic = shared_end - (bytes + 15) / 16 * 16;
}

// All lanes that have not ended must take part; the slots of a round are free again two rounds later.
const Warp& take_part(unsigned mask, const Given& value) {
  if (mask != ~0u) stop("a mask that leaves out lanes is not emulated");
  Warp& warp = warps[current / kWarp];
  int slot = threads[current].rounds++ % 2;
  unsigned bit = 1u << lane();
  if (warp.given[slot] & bit) warp.given[slot] = 0;  // what was given two rounds ago
  warp.values[slot][lane()] = value;
  warp.given[slot] |= bit;
  wait_as(State::AtExchange);
  return warp;
}

}  // namespace

void stop(const char* why) {
  std::fprintf(stderr, "CUDA emulator: %s (block %u of %u, thread %u of %u)\n", why, blockIdx.x, gridDim.x, threadIdx.x,
               blockDim.x);
  std::abort();
}

// The contexts of threads that have not ended are left as they are: nobody goes on with them.
void trap() {
  races::inside = false;
  trapped = true;
  _longjmp(scheduler.at, 1);
}

unsigned lane() { return current % kWarp; }

bool is_dynamic_shared(const void* p) { return shared_end && p >= shared_end - kOpen && p < shared_end; }

void block_barrier() {
  races::Outside not_a_kernels;
  ++at_barrier;
  ++threads[current].barriers;
  wait_as(State::AtBarrier);
}

void warp_barrier(unsigned mask) {
  races::Outside not_a_kernels;
  take_part(mask, {});
  races::now.warp_barriers = uint16_t(++threads[current].warp_barriers);
}

uint64_t exchange(unsigned mask, uint64_t value, unsigned from) {
  races::Outside not_a_kernels;
  const Warp& warp = take_part(mask, {{value}});
  int slot = (threads[current].rounds - 1) % 2;
  return from < kWarp && (warp.given[slot] >> from & 1) ? warp.values[slot][from].words[0] : value;
}

const Given* gather(const Given& value) {
  races::Outside not_a_kernels;
  const Warp& warp = take_part(~0u, value);
  int slot = (threads[current].rounds - 1) % 2;
  if (warp.given[slot] != ~0u) stop("an instruction of the whole warp without all of its 32 threads");
  return warp.values[slot];
}

unsigned char* dynamic_shared() { return dynamic; }
size_t dynamic_shared_bytes() { return dynamic_bytes; }

unsigned ballot(unsigned mask, bool value) {
  races::Outside not_a_kernels;
  const Warp& warp = take_part(mask, {{uint64_t(value)}});
  int slot = (threads[current].rounds - 1) % 2;
  unsigned votes = 0;
  for (unsigned l = 0; l < kWarp; ++l)
    if (warp.given[slot] >> l & 1) votes |= unsigned(warp.values[slot][l].words[0] & 1) << l;
  return votes;
}

void count_bank_conflicts(bool conflict) { bank_conflicts += conflict; }

void copy_async(unsigned char* to, const void* from, int bytes, int read) {
  races::Outside not_a_kernels;
  races::touch(to, size_t(bytes), true);
  if (read > 0) races::touch(from, size_t(read), false);
  std::memset(to, 0xff, size_t(bytes));  // it may begin at once
  Thread& me = threads[current];
  me.copies.push_back({to, from, read, me.groups});
  if (read < bytes) me.copies.push_back({to + read, nullptr, bytes - read, me.groups});
}
void commit_copies() {
  races::Outside not_a_kernels;
  ++threads[current].groups;
}
void wait_for_copies(int all_but) {
  races::Outside not_a_kernels;
  Thread& me = threads[current];
  size_t left = 0;
  for (const Copy& c : me.copies) {
    if (c.group >= me.groups - all_but) {
      me.copies[left++] = c;  // it may take until a later wait
      continue;
    }
    races::touch(c.to, size_t(c.bytes), true);
    if (c.from) std::memcpy(c.to, c.from, size_t(c.bytes));
    else std::memset(c.to, 0, size_t(c.bytes));
  }
  me.copies.resize(left);
}

bool only_ends() {
  static const char* which = std::getenv("SF_CUDA_EMULATOR_BLOCKS");
  return which && std::strcmp(which, "ends") == 0;
}

bool run_grid(const dim3& grid, const dim3& block, size_t shared, const std::function<void()>& kernel, bool reverse) {
  body = &kernel;
  trapped = false;
  dynamic_bytes = 0;
  if (shared > 0) provide_shared(shared);
  backwards = reverse;
  gridDim = grid;
  blockDim = block;
  races::begin_work();
  uint64_t blocks = uint64_t(grid.x) * grid.y * grid.z;
  constexpr uint64_t kEnd = 2;
  for (uint64_t i = 0; i < blocks; ++i) {
    if (only_ends() && blocks > 2 * kEnd && i == kEnd) i = blocks - kEnd;
    uint64_t b = reverse ? blocks - 1 - i : i;
    if (shared) std::memset(dynamic, 0xff, shared);  // NaNs
    blockIdx = {unsigned(b % grid.x), unsigned(b / grid.x % grid.y), unsigned(b / (uint64_t(grid.x) * grid.y))};
    races::now.block = uint32_t(b);
    run_block(block.x * block.y * block.z);
    if (trapped) return false;
  }
  return true;
}

}  // namespace cuda_emulator

extern "C" __attribute__((visibility("default"))) int64_t sf_cuda_emulator_bank_conflicts() {
  return cuda_emulator::bank_conflicts;
}
