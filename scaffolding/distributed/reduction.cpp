#include "scaffolding/distributed/reduction.h"

#include <algorithm>
#include <memory>
#include <type_traits>

#include "scaffolding/core/error.h"

namespace sf::distributed {

namespace {

constexpr size_t kBlock = 2048;  // numbers at a time: a level of the tree stays in the cache

template <class T>
using Wide = std::conditional_t<(std::is_same_v<T, Half> || std::is_same_v<T, BFloat16> ||
                                 std::is_same_v<T, Float8E4M3> || std::is_same_v<T, Float8E5M2>),
                                float, T>;

template <class T> Wide<T> widened(T x) {
  if constexpr (std::is_same_v<Wide<T>, T>) return x;
  else return to_float(x);
}
template <class T> T rounded(Wide<T> x) {
  if constexpr (std::is_same_v<Wide<T>, T>) return x;
  else return from_float<T>(x);
}

template <class W, class F> void each(W* into, const W* from, size_t n, F f) {
  for (size_t i = 0; i < n; ++i) into[i] = W(f(into[i], from[i]));
}

// into = into op from. NaN is the least and the greatest of all numbers, as in torch.minimum.
template <class W> void combine(W* into, const W* from, size_t n, ReduceOp op) {
  switch (op) {
    case ReduceOp::MIN: return each(into, from, n, [](W a, W b) { return a < b || a != a ? a : b; });
    case ReduceOp::MAX: return each(into, from, n, [](W a, W b) { return a > b || a != a ? a : b; });
    default: break;
  }
  if constexpr (std::is_same_v<W, bool>) {
    if (op == ReduceOp::BXOR) return each(into, from, n, [](W a, W b) { return a != b; });
    if (op == ReduceOp::PRODUCT || op == ReduceOp::BAND) return each(into, from, n, [](W a, W b) { return a && b; });
    return each(into, from, n, [](W a, W b) { return a || b; });
  } else {
    if constexpr (std::is_integral_v<W>) {
      using U = std::make_unsigned_t<W>;  // overflow wraps
      switch (op) {
        case ReduceOp::BAND: return each(into, from, n, [](W a, W b) { return W(a & b); });
        case ReduceOp::BOR: return each(into, from, n, [](W a, W b) { return W(a | b); });
        case ReduceOp::BXOR: return each(into, from, n, [](W a, W b) { return W(a ^ b); });
        case ReduceOp::PRODUCT: return each(into, from, n, [](W a, W b) { return W(uint64_t(U(a)) * uint64_t(U(b))); });
        default: return each(into, from, n, [](W a, W b) { return W(U(U(a) + U(b))); });
      }
    } else {
      if (op == ReduceOp::PRODUCT) return each(into, from, n, [](W a, W b) { return a * b; });
      return each(into, from, n, [](W a, W b) { return a + b; });
    }
  }
}

template <class T>
void reduce_as(T* out, const std::vector<const void*>& in, size_t count, ReduceOp op, double divisor) {
  using W = Wide<T>;
  size_t n = in.size();
  // A level for each step of the tree: level k holds the sum of 2^k neighbours that waits for its other half.
  size_t levels = 1;
  while ((size_t(1) << (levels - 1)) < n) ++levels;
  std::unique_ptr<W[]> held(new W[levels * kBlock]);
  for (size_t at = 0; at < count; at += kBlock) {
    size_t m = std::min(kBlock, count - at);
    std::vector<bool> full(levels, false);
    W* sum = nullptr;
    for (size_t r = 0; r < n; ++r) {
      size_t level = 0;
      while (full[level]) ++level;
      // The lowest level that is held waits for this addend: carry as a counter in binary does.
      W* here = held.get() + level * kBlock;
      const T* from = static_cast<const T*>(in[r]) + at;
      if (level == 0) {
        for (size_t i = 0; i < m; ++i) here[i] = widened(from[i]);
        full[0] = true;
      } else {
        W addend[kBlock];
        for (size_t i = 0; i < m; ++i) addend[i] = widened(from[i]);
        combine(held.get(), addend, m, op);
        for (size_t k = 1; k < level; ++k) {
          combine(held.get() + k * kBlock, held.get() + (k - 1) * kBlock, m, op);
          full[k - 1] = false;
        }
        std::copy(held.get() + (level - 1) * kBlock, held.get() + (level - 1) * kBlock + m, here);
        full[level - 1] = false;
        full[level] = true;
      }
    }
    // What is left of a number of processes that is no power of two: the smaller sums come last.
    for (size_t k = 0; k < levels; ++k) {
      if (!full[k]) continue;
      W* here = held.get() + k * kBlock;
      if (sum) combine(here, sum, m, op);
      sum = here;
    }
    T* to = out + at;
    if constexpr (std::is_floating_point_v<W>) {
      if (op == ReduceOp::AVG) {
        for (size_t i = 0; i < m; ++i) to[i] = rounded<T>(sum[i] / W(divisor));
        continue;
      }
    }
    for (size_t i = 0; i < m; ++i) to[i] = rounded<T>(sum[i]);
  }
}

}  // namespace

const char* name(ReduceOp op) {
  constexpr const char* names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"};
  return names[int(op)];
}

void check_reduction(const char* who, ReduceOp op, DType dtype) {
  SF_CHECK_AS(TypeError, op != ReduceOp::AVG || is_floating(dtype), who, ": ReduceOp.AVG needs floating tensors, got ",
              dtype);
  SF_CHECK_AS(TypeError, op < ReduceOp::BAND || !is_floating(dtype), who, ": ReduceOp.", name(op),
              " needs integers or bool, got ", dtype);
}

void reduce(void* out, const std::vector<const void*>& in, size_t count, DType dtype, ReduceOp op, double divisor) {
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    reduce_as(static_cast<T*>(out), in, count, op, divisor);
  });
}

}  // namespace sf::distributed
