// parallel_for: one pool of threads (OpenMP) for the whole process.
// Regions started while another host thread computes, or from inside a region, run on the calling thread alone:
// two Python threads never start four workers on two cores.
#pragma once
#include <cstdint>

#include "scaffolding/core/half.h"

namespace sf {

int num_threads();
void set_num_threads(int n);  // ValueError when n < 1

namespace detail {
// Calls f(ctx, begin, end) on pieces of [0, n) of at least `grain` items (the last may be shorter).
void parallel_for(int64_t n, int64_t grain, void (*f)(void*, int64_t, int64_t), void* ctx);
}  // namespace detail

// f(begin, end). Pieces are contiguous, one per thread, never smaller than grain: small loops stay on the caller.
template <class F> SF_INLINE void parallel_for(int64_t n, int64_t grain, const F& f) {
  if (n <= grain) {
    if (n > 0) f(int64_t(0), n);
    return;
  }
  detail::parallel_for(
      n, grain, [](void* ctx, int64_t b, int64_t e) { (*static_cast<const F*>(ctx))(b, e); }, const_cast<F*>(&f));
}
int thread_index();  // 0 <= index < num_threads(), inside parallel_for

// While alive, the caller owns the pool; `alone` says another host thread has it and this one must compute alone.
// Taken around library calls (oneDNN) that start their own OpenMP regions.
class ComputeScope {
 public:
  ComputeScope();
  ~ComputeScope();
  bool alone;

 private:
  int restore_ = 0;
};

}  // namespace sf
