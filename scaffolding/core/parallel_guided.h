// parallel_for_guided: work of long items, dealt to threads as they become free.
#pragma once
#include "scaffolding/core/parallel.h"

namespace sf {

namespace detail {
void parallel_for_guided(int64_t n, void (*f)(void*, int64_t, int64_t), void* ctx);
}  // namespace detail

// f(begin, end) for items that take long, each worth far more than the taking of a piece. A thread that is done takes
// half of its share of what is left, and one item at last: cores that are slower than others, or busy with something
// else, do less. OpenMP calls it guided. A thread may have several pieces, or none.
template <class F> SF_INLINE void parallel_for_guided(int64_t n, const F& f) {
  if (n <= 1) {
    if (n > 0) f(int64_t(0), n);
    return;
  }
  detail::parallel_for_guided(
      n, [](void* ctx, int64_t b, int64_t e) { (*static_cast<const F*>(ctx))(b, e); }, const_cast<F*>(&f));
}

}  // namespace sf
