// One parallel loop over all elements of many tensors: threads get equal shares of elements, not of tensors.
// Included only by *.cpu.cpp files.
#pragma once
#include "scaffolding/backend/cpu/simd_rows.h"

namespace sf {
namespace SF_ISA {

// f(tensor, begin, count) for each piece; pieces begin at multiples of `unit` elements of their tensor.
template <class T, class F> static void each_piece(const T* tensors, int64_t count, int64_t unit, F f) {
  int64_t total = 0;  // units
  for (int64_t i = 0; i < count; ++i) total += (tensors[i].numel + unit - 1) / unit;
  parallel_for(total, 8192 / unit, [&](int64_t begin, int64_t end) {
    int64_t first = 0;  // of tensor i, counting through all
    for (int64_t i = 0; i < count && first < end; ++i) {
      int64_t units = (tensors[i].numel + unit - 1) / unit;
      int64_t from = (begin > first ? begin - first : 0) * unit,
              to = (end - first < units ? end - first : units) * unit;
      if (to > tensors[i].numel) to = tensors[i].numel;
      if (from < to) f(tensors[i], from, to - from);
      first += units;
    }
  });
}

// Calls f(type_tag<P>, type_tag<G>) for a param and a second operand: both float64, or any two narrower ones.
template <class F> SF_INLINE void visit_pair(DType param, DType grad, F f) {
  auto with_grad = [&](auto p) __attribute__((always_inline)) {
    switch (grad) {
      case kFloat32: return f(p, type_tag<float>{});
      case kBFloat16: return f(p, type_tag<BFloat16>{});
      default: return f(p, type_tag<Half>{});
    }
  };
  switch (param) {
    case kFloat32: return with_grad(type_tag<float>{});
    case kBFloat16: return with_grad(type_tag<BFloat16>{});
    case kFloat16: return with_grad(type_tag<Half>{});
    default: return f(type_tag<double>{}, type_tag<double>{});
  }
}
SF_INLINE bool is_pair(DType a, DType b) { return computes(a) && computes(b) && (a == kFloat64) == (b == kFloat64); }

}  // namespace SF_ISA
}  // namespace sf
