// Threads of a block as contexts of one processor thread. A context runs one emulated thread after the other until one has to
// wait; then another context goes on with the threads that have not started. Kernels without barriers never switch.
#include "grid.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cuda_runtime.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace cuda_emulator {

namespace {

// Where a context goes on. A ucontext starts it; from then on jumps, which make no system call.
struct Place {
  jmp_buf at;
};

constexpr unsigned kWarp = 32;
constexpr size_t kStack = 128 << 10;

enum class State { Ready, AtBarrier, AtExchange, Done };
struct Thread {
  State state = State::Ready;
  Place* place = nullptr;  // where it waits
  int rounds = 0;          // exchanges so far
  int barriers = 0;        // of the block that it has reached
};
// What the lanes of a warp gave to the last two exchanges: a lane may be one ahead of the slowest.
struct Warp {
  uint64_t values[2][kWarp] = {};
  unsigned given[2] = {};  // a bit per lane
};

std::vector<Thread> threads;
std::vector<Warp> warps;
std::vector<Place*> idle;  // contexts that wait for a thread to run
Place scheduler;
const std::function<void()>* body;
unsigned current, started, ended, at_barrier;
int barriers_opened;
bool backwards;

unsigned nth(unsigned i) { return backwards ? unsigned(threads.size()) - 1 - i : i; }

void enter(unsigned t) {
  current = t;
  threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
}

void back_to_scheduler(Place& self) {
  if (_setjmp(self.at) == 0) _longjmp(scheduler.at, 1);
}

void run_threads() {
  for (;;) {
    while (started < threads.size()) {
      enter(nth(started++));
      (*body)();
      threads[current].state = State::Done;
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
  started = ended = at_barrier = 0;
  barriers_opened = 0;
  while (ended < count) {
    if (started < count) {
      start_some();
      continue;
    }
    bool moved = false;
    if (at_barrier == count - ended) at_barrier = 0, ++barriers_opened;  // everybody who has not ended is there
    for (unsigned i = 0; i < count; ++i) {
      unsigned t = nth(i);
      if (!may_go_on(t)) continue;
      moved = true;
      resume(threads[t].place);
    }
    if (!moved) stop("deadlock: threads of a block wait for each other at different barriers, shuffles or ballots");
  }
}

// All lanes that have not ended must take part; the slots of a round are free again two rounds later.
const Warp& take_part(unsigned mask, uint64_t value) {
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
  std::fprintf(stderr, "CUDA emulator: %s (block %u of %u, thread %u of %u)\n", why, blockIdx.x, gridDim.x, threadIdx.x, blockDim.x);
  std::abort();
}

unsigned lane() { return current % kWarp; }

void block_barrier() {
  ++at_barrier;
  ++threads[current].barriers;
  wait_as(State::AtBarrier);
}

uint64_t exchange(unsigned mask, uint64_t value, unsigned from) {
  const Warp& warp = take_part(mask, value);
  int slot = (threads[current].rounds - 1) % 2;
  return from < kWarp && (warp.given[slot] >> from & 1) ? warp.values[slot][from] : value;
}

unsigned ballot(unsigned mask, bool value) {
  const Warp& warp = take_part(mask, value);
  int slot = (threads[current].rounds - 1) % 2;
  unsigned votes = 0;
  for (unsigned l = 0; l < kWarp; ++l)
    if (warp.given[slot] >> l & 1) votes |= unsigned(warp.values[slot][l] & 1) << l;
  return votes;
}

void run_grid(const dim3& grid, const dim3& block, const std::function<void()>& kernel, bool reverse) {
  body = &kernel;
  backwards = reverse;
  gridDim = grid;
  blockDim = block;
  uint64_t blocks = uint64_t(grid.x) * grid.y * grid.z;
  for (uint64_t i = 0; i < blocks; ++i) {
    uint64_t b = reverse ? blocks - 1 - i : i;
    blockIdx = {unsigned(b % grid.x), unsigned(b / grid.x % grid.y), unsigned(b / (uint64_t(grid.x) * grid.y))};
    run_block(block.x * block.y * block.z);
  }
}

}  // namespace cuda_emulator
