// Threads of a block as contexts of one processor thread. A context runs one emulated thread after the other until one
// has to wait; then another context goes on with the threads that have not started. Kernels without barriers never
// switch. A warp runs until all of its threads wait for the block: what other warps do meanwhile,
// they do before or after, never in step. The blocks of a cluster are run as one, with barriers of their own.
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
#include "cuda_warpgroups.h"
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
enum class State { Ready, AtBarrier, AtExchange, AtCondition, Done };
struct Thread {
  State state = State::Ready;
  Place* place = nullptr;  // where it waits
  int rounds = 0;          // exchanges so far
  int barriers = 0;        // of the block that it has reached
  int warp_barriers = 0;
  const std::function<bool()>* condition = nullptr;  // that it waits for
  std::vector<Copy> copies;
  int groups = 0;           // closed by commit
  bool has_waited = false;  // for the grid before
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
unsigned current, started, may_start, ended, at_cluster_barrier;
struct Block {  // of the cluster
  unsigned ended = 0, at_barrier = 0;
  int barriers_opened = 0;  // those of the cluster too
};
std::vector<Block> blocks_of_cluster;
unsigned threads_of_block;
uint64_t first_block;      // of the cluster
size_t dynamic_bytes = 0;  // shared memory of a block, up to a closed page
bool backwards, trapped, dependent;
int64_t bank_conflicts = 0;
uint64_t rounds = 0;  // in which each warp went on as far as it got

Block& block_of(unsigned t) { return blocks_of_cluster[t / threads_of_block]; }
unsigned nth(unsigned i) { return backwards ? unsigned(threads.size()) - 1 - i : i; }

void enter(unsigned t) {
  current = t;
  const uint64_t b = first_block + t / threads_of_block;
  blockIdx = {unsigned(b % gridDim.x), unsigned(b / gridDim.x % gridDim.y),
              unsigned(b / (uint64_t(gridDim.x) * gridDim.y))};
  races::now.thread = uint16_t(t), races::now.barriers = uint32_t(threads[t].barriers),
  races::now.warp_barriers = uint16_t(threads[t].warp_barriers);
  races::is_early = dependent && !threads[t].has_waited;
  const unsigned in_block = t % threads_of_block;
  threadIdx = {in_block % blockDim.x, in_block / blockDim.x % blockDim.y, in_block / (blockDim.x * blockDim.y)};
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
      if (dependent && !threads[current].has_waited)
        stop("a thread of a grid that may start early ended and never waited for the grid before");
      warpgroups::end_thread();
      ++ended;
      ++block_of(current).ended;
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
  if (thread.state == State::AtBarrier) return block_of(t).barriers_opened >= thread.barriers;
  if (thread.state == State::AtCondition) return (*thread.condition)();
  if (thread.state != State::AtExchange) return false;
  unsigned alive = alive_in_warp(t / kWarp);
  return (warps[t / kWarp].given[(thread.rounds - 1) % 2] & alive) == alive;
}

// Where everybody who has not ended is there; whether one did.
bool open_barriers(unsigned count) {
  bool opened = false;
  for (Block& b : blocks_of_cluster)
    if (b.at_barrier > 0 && b.at_barrier == threads_of_block - b.ended)
      b.at_barrier = 0, ++b.barriers_opened, opened = true;
  if (at_cluster_barrier > 0 && at_cluster_barrier == count - ended) {
    at_cluster_barrier = 0, opened = true;
    for (Block& b : blocks_of_cluster) ++b.barriers_opened;
  }
  if (opened) races::open_barrier(count);
  return opened;
}

void run_cluster(unsigned blocks) {
  const unsigned count = blocks * threads_of_block;
  if (blocks > 1 && threads_of_block % kWarp != 0) stop("a cluster of blocks that have no whole warps is not emulated");
  threads.assign(count, Thread());
  warps.assign((count + kWarp - 1) / kWarp, Warp());
  blocks_of_cluster.assign(blocks, Block());
  started = may_start = ended = at_cluster_barrier = 0;
  warpgroups::begin_cluster(count);
  while (ended < count) {
    bool moved = false;
    ++rounds;
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
    if (!open_barriers(count) && !moved)
      stop("deadlock: threads of a block wait for each other at different barriers, shuffles or ballots");
  }
  warpgroups::end_cluster();
}

constexpr size_t kOpen = (kMostShared + kPage - 1) / kPage * kPage, kStretch = kOpen + kPage;
unsigned char* shared_begin = nullptr;

// Shared memory of this many bytes for each block of a cluster, that ends at a closed page.
void provide_shared(size_t bytes) {
  if (!shared_begin) {
    constexpr size_t kAll = kMostOfCluster * kStretch;
    void* m = mmap(nullptr, kAll, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED) stop("no memory for a block");
    shared_begin = static_cast<unsigned char*>(m);
    for (unsigned b = 0; b < kMostOfCluster; ++b)
      if (mprotect(shared_begin + b * kStretch + kOpen, kPage, PROT_NONE) != 0) stop("mprotect failed");
  }
  dynamic_bytes = bytes;
}
unsigned char* dynamic_of(unsigned block) {
  return shared_begin + block * kStretch + kOpen - (dynamic_bytes + 15) / 16 * 16;
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

bool is_dynamic_shared(const void* p) {
  return shared_begin && p >= shared_begin && p < shared_begin + kMostOfCluster * kStretch;
}

void block_barrier() {
  races::Outside not_a_kernels;
  ++block_of(current).at_barrier;
  ++threads[current].barriers;
  wait_as(State::AtBarrier);
}
void cluster_barrier() {
  races::Outside not_a_kernels;
  ++at_cluster_barrier;
  ++threads[current].barriers;
  wait_as(State::AtBarrier);
}
void wait_for_previous_grid() { threads[current].has_waited = true, races::is_early = false; }
void refuse_before_wait() {
  if (dependent && !threads[current].has_waited)
    stop("a copy from device memory by a thread that has not waited for the grid before");
}
unsigned cluster_rank() { return current / threads_of_block; }
unsigned thread_in_cluster() { return current; }
bool block_has_ended(unsigned rank) {
  if (rank >= blocks_of_cluster.size()) stop("a cluster has no block of that rank");
  return blocks_of_cluster[rank].ended == threads_of_block;
}

void park_until(const std::function<bool()>& condition) {
  if (condition()) return;
  threads[current].condition = &condition;
  wait_as(State::AtCondition);
}
void let_others_run() {
  const uint64_t now = rounds;
  park_until([now] { return rounds > now; });
}
const void* in_cluster(const void* p, unsigned rank) {
  const auto* own = static_cast<const unsigned char*>(p);
  if (rank >= blocks_of_cluster.size()) stop("a cluster has no block of that rank");
  if (own < dynamic_shared() || own >= dynamic_shared() + dynamic_bytes)
    stop("what another block of the cluster has is not in dynamic shared memory");
  return dynamic_of(rank) + (own - dynamic_shared());
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

unsigned char* dynamic_shared() { return dynamic_of(cluster_rank()); }
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
  refuse_before_wait();
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

bool run_grid(const Grid& grid, const std::function<void()>& kernel, bool reverse) {
  body = &kernel;
  trapped = false;
  dependent = grid.dependent;
  dynamic_bytes = 0;
  if (grid.shared > 0) provide_shared(grid.shared);
  backwards = reverse;
  gridDim = grid.blocks;
  blockDim = grid.threads;
  threads_of_block = blockDim.x * blockDim.y * blockDim.z;
  races::begin_work();
  const uint64_t clusters = uint64_t(gridDim.x) * gridDim.y * gridDim.z / grid.cluster;
  constexpr uint64_t kEnd = 2;
  for (uint64_t i = 0; i < clusters; ++i) {
    if (only_ends() && clusters > 2 * kEnd && i == kEnd) i = clusters - kEnd;
    uint64_t b = reverse ? clusters - 1 - i : i;
    for (unsigned k = 0; grid.shared && k < grid.cluster; ++k) std::memset(dynamic_of(k), 0xff, grid.shared);  // NaNs
    first_block = b * grid.cluster;
    races::now.block = uint32_t(b);
    run_cluster(grid.cluster);
    if (trapped) break;
  }
  races::is_early = false;
  return !trapped;
}

}  // namespace cuda_emulator

extern "C" __attribute__((visibility("default"))) int64_t sf_cuda_emulator_bank_conflicts() {
  return cuda_emulator::bank_conflicts;
}
