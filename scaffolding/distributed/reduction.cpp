#include "scaffolding/distributed/reduction.h"

#include <algorithm>
#include <cmath>
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

// f of the operation on two numbers. NaN is the least and the greatest of all numbers, as in torch.minimum.
template <class W, class F> void with_operation(ReduceOp op, F f) {
  switch (op) {
    case ReduceOp::MIN: return f([](W a, W b) { return a < b || a != a ? a : b; });
    case ReduceOp::MAX: return f([](W a, W b) { return a > b || a != a ? a : b; });
    default: break;
  }
  if constexpr (std::is_same_v<W, bool>) {
    if (op == ReduceOp::BXOR) return f([](W a, W b) { return a != b; });
    if (op == ReduceOp::PRODUCT || op == ReduceOp::BAND) return f([](W a, W b) { return a && b; });
    return f([](W a, W b) { return a || b; });
  } else {
    if constexpr (std::is_integral_v<W>) {
      using U = std::make_unsigned_t<W>;  // overflow wraps
      switch (op) {
        case ReduceOp::BAND: return f([](W a, W b) { return W(a & b); });
        case ReduceOp::BOR: return f([](W a, W b) { return W(a | b); });
        case ReduceOp::BXOR: return f([](W a, W b) { return W(a ^ b); });
        case ReduceOp::PRODUCT: return f([](W a, W b) { return W(uint64_t(U(a)) * uint64_t(U(b))); });
        default: return f([](W a, W b) { return W(U(U(a) + U(b))); });
      }
    } else {
      if (op == ReduceOp::PRODUCT) return f([](W a, W b) { return a * b; });
      return f([](W a, W b) { return a + b; });
    }
  }
}

// out = a op b, each of them numbers as they came or sums; out may be one of them.
template <class W, class A, class B> void combine(W* out, const A* a, const B* b, size_t n, ReduceOp op) {
  auto wide = [](auto x) {
    if constexpr (std::is_same_v<decltype(x), W>) return x;
    else return widened(x);
  };
  with_operation<W>(op, [&](auto f) {
#pragma omp simd  // out is often a: no more than their equal places overlap
    for (size_t i = 0; i < n; ++i) out[i] = W(f(wide(a[i]), wide(b[i])));
  });
}

// Each number is read once: two neighbours are added as they come, and what has as many addends is added as a counter
// in binary carries. Level k of `held` is the sum of 2^(k + 1) neighbours that waits for its other half.
template <class T>
void reduce_as(T* out, const std::vector<const void*>& in, size_t count, ReduceOp op, double divisor) {
  using W = Wide<T>;
  constexpr bool as_it_is = std::is_same_v<W, T>;
  size_t n = in.size();
  size_t levels = 1;
  while ((size_t(2) << levels) <= n) ++levels;
  std::unique_ptr<W[]> memory(new W[(levels + 1) * kBlock]);
  auto held = [&](size_t level) { return memory.get() + level * kBlock; };
  for (size_t at = 0; at < count; at += kBlock) {
    size_t m = std::min(kBlock, count - at);
    auto addend = [&](size_t r) { return static_cast<const T*>(in[r]) + at; };
    T* to = out + at;
    std::vector<bool> full(levels, false);
    W* sum = nullptr;
    if constexpr (as_it_is) {
      if (n == 2) combine(sum = to, addend(0), addend(1), m, op);
    }
    for (size_t r = 0; !sum && r + 1 < n; r += 2) {
      size_t level = 0;
      while (full[level]) ++level;
      // Below it all are full: their sums go up, the newest is the right one.
      W* pair = level == 0 ? held(0) : held(levels);
      combine(pair, addend(r), addend(r + 1), m, op);
      for (size_t k = 0; k < level; ++k) {
        combine(k + 1 == level ? held(level) : pair, held(k), pair, m, op);
        full[k] = false;
      }
      full[level] = true;
    }
    // What is left of a number of processes that is no power of two: the smaller sums come last.
    if (!sum) {
      if (n % 2) {
        sum = held(levels);
        for (size_t i = 0; i < m; ++i) sum[i] = widened(addend(n - 1)[i]);
      }
      for (size_t k = 0; k < levels; ++k) {
        if (!full[k]) continue;
        if (sum) combine(held(k), held(k), sum, m, op);
        sum = held(k);
      }
    }
    if constexpr (std::is_floating_point_v<W>) {
      if (op == ReduceOp::AVG) {
        // By a power of two the product has the bits of the quotient, and takes a fraction of the time.
        int exponent = 0;
        bool exact = std::frexp(divisor, &exponent) == 0.5;
        W by = exact ? W(1 / divisor) : W(divisor);
        if (exact)
          for (size_t i = 0; i < m; ++i) to[i] = rounded<T>(sum[i] * by);
        else
          for (size_t i = 0; i < m; ++i) to[i] = rounded<T>(sum[i] / by);
        continue;
      }
    }
    if constexpr (as_it_is) {
      if (sum == to) continue;
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
