#include "scaffolding/core/parallel.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "scaffolding/core/alone_scope.h"
#include "scaffolding/core/cores.h"
#include "scaffolding/core/env.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/memory_room.h"
#include "scaffolding/core/parallel_guided.h"
#include "scaffolding/core/release_threads.h"

namespace sf {

// The host thread that has the pool; 0 when it is free. A nested scope on the same thread keeps it.
static std::atomic<int> g_busy{0};
static thread_local int t_depth = 0;        // nested ComputeScopes of this thread
static thread_local bool t_inside = false;  // running a piece of a parallel_for
static thread_local int t_index = 0;        // which
static thread_local int t_alone = 0;        // nested AloneScopes of this thread
static std::atomic<int> g_threads{0};       // 0: not asked yet

// libgomp ends the process where a thread cannot be started. So, where memory is limited, those that there is room for
// are started when they are first counted.
static int startable(int wanted) {
  if (wanted == 1 || !memory_is_limited() || omp_in_parallel()) return wanted;
  constexpr size_t kBesideStack = size_t(1) << 20;
  size_t stack = 0;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_getstacksize(&attributes, &stack);
  pthread_attr_destroy(&attributes);
  int n = wanted;
  while (n > 1 && !room_for(size_t(n - 1) * (stack + kBesideStack))) --n;
  std::atomic<int> started{0};
#pragma omp parallel num_threads(n)
  ++started;
  return started;
}

int num_threads() {
  int n = g_threads.load(std::memory_order_relaxed);
  if (n == 0) {
    int wanted = int(env::integer("SF_NUM_THREADS"));
    if (wanted <= 0) {
      wanted = omp_get_max_threads();  // OMP_NUM_THREADS, or all hardware threads
      if (!std::getenv("OMP_NUM_THREADS")) wanted = std::min(wanted, usable_cores());
    }
    n = startable(wanted);
    g_threads.store(n, std::memory_order_relaxed);
  }
  return n;
}

void set_num_threads(int n) {
  SF_CHECK(n >= 1 && n <= 4096, "set_num_threads: must be between 1 and 4096, got ", n);
  g_threads.store(n, std::memory_order_relaxed);
  omp_set_num_threads(n);
}

void release_threads() {
  if (!omp_in_parallel() && !t_inside) omp_pause_resource_all(omp_pause_soft);
}

int thread_index() { return t_inside ? t_index : 0; }

ComputeScope::ComputeScope() {
  int free = 0;
  alone = t_inside || t_alone > 0 || !(t_depth > 0 || g_busy.compare_exchange_strong(free, 1));
  if (!alone) ++t_depth;
  int want = alone ? 1 : num_threads();
  if (omp_get_max_threads() != want) {  // per host thread: libraries that use OpenMP follow it
    restore_ = omp_get_max_threads();
    omp_set_num_threads(want);
  }
}

ComputeScope::~ComputeScope() {
  if (restore_) omp_set_num_threads(restore_);
  if (!alone && --t_depth == 0) g_busy.store(0);
}

AloneScope::AloneScope() : restore_(omp_get_max_threads()) {
  ++t_alone;
  omp_set_num_threads(1);
}

AloneScope::~AloneScope() {
  omp_set_num_threads(restore_);
  --t_alone;
}

namespace {
// fork() must not happen while another thread computes: what that one has locked stays locked in the child.
// A child has the thread that forked and none of its team, for which the next region would wait for ever. So
// the team ends before the fork, and parent and child start one of their own when they next compute: oneDNN's regions,
// which are OpenMP's too, as well as ours.
void before_fork() { release_threads(); }
// Whatever other host threads were at, they are not in the child.
void in_child() { g_busy.store(t_depth > 0); }
[[maybe_unused]] const int registered = pthread_atfork(before_fork, nullptr, in_child);
}  // namespace

// work(i, count) for every i < count on a thread of its own; count is `wanted` or fewer.
template <class Work> static void run_team(int wanted, const Work& work) {
// which does not see the barriers of OpenMP's library and takes every region for a race
#if defined(__SANITIZE_THREAD__)
  std::vector<std::thread> team;
  for (int i = 1; i < wanted; ++i) team.emplace_back([&work, i, wanted] { work(i, wanted); });
  work(0, wanted);
  for (std::thread& t : team) t.join();
#else
  // The whole team comes each time: threads that a region leaves out end with it, and the next one starts them anew.
#pragma omp parallel num_threads(num_threads())
  if (const int i = omp_get_thread_num(), count = std::min(wanted, omp_get_num_threads()); i < count) work(i, count);
#endif
}

namespace {

// piece(i, count): all that thread i of count does.
template <class Piece> void run_pieces(int64_t pieces, const Piece& piece) {
  std::exception_ptr error;  // kernels do not throw, user code reached from one may: carried to the caller
  std::mutex error_lock;
  const auto work = [&](int64_t i, int64_t count) {
    t_inside = true;
    t_index = int(i);
    try {
      piece(i, count);
    } catch (...) {
      std::lock_guard guard(error_lock);
      error = std::current_exception();
    }
    t_inside = false;
  };
  run_team(int(pieces), work);
  if (error) std::rethrow_exception(error);
}

}  // namespace

void detail::parallel_for(int64_t n, int64_t grain, void (*f)(void*, int64_t, int64_t), void* ctx) {
  ComputeScope scope;
  int64_t pieces = std::min<int64_t>(num_threads(), (n + grain - 1) / std::max<int64_t>(grain, 1));
  if (scope.alone || pieces <= 1) return f(ctx, 0, n);
  run_pieces(pieces, [&](int64_t i, int64_t count) {
    int64_t per = (n + count - 1) / count, begin = std::min(n, i * per), end = std::min(n, begin + per);
    if (begin < end) f(ctx, begin, end);
  });
}

void detail::parallel_for_guided(int64_t n, void (*f)(void*, int64_t, int64_t), void* ctx) {
  ComputeScope scope;
  const int64_t threads = std::min<int64_t>(num_threads(), n);
  if (scope.alone || threads <= 1) return f(ctx, 0, n);
  std::atomic<int64_t> next{0};
  run_pieces(threads, [&](int64_t, int64_t count) {
    for (int64_t begin = next.load(std::memory_order_relaxed); begin < n;) {
      const int64_t end = begin + std::max<int64_t>(1, (n - begin) / (2 * count));
      if (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
      f(ctx, begin, end);
      begin = next.load(std::memory_order_relaxed);
    }
  });
}

}  // namespace sf
