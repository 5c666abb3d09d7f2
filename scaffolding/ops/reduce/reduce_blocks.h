// The inner loops of reductions: a row of elements into one accumulator, or rows into a row of accumulators.
// Accumulators are doubles for floats and int64 for integers. Floats are added in float32 vectors for at most 32 terms
// per lane before the partial sums go into a double: as fast as float32 sums, and accurate to their last bit or so.
// Included only by reduce.cpu.cpp.
#pragma once
#include "scaffolding/backend/cpu/simd_rows.h"
#include "scaffolding/ops/reduce/kernel.h"

namespace sf {
namespace SF_ISA {
namespace {

// What the driver needs to know of one reduction of one dtype. acc: n accumulators of 8 bytes.
struct Blocks {
  void (*start)(void* acc, int64_t n);
  void (*row)(const void* x, int64_t n, void* acc, double center, double p);
  void (*columns)(const char* x, int64_t row_bytes, int64_t rows, int64_t n, void* acc, const double* center, double p);
  void (*merge)(void* acc, const void* other, int64_t n);
  void (*finish)(const void* acc, int64_t n, void* out, int64_t out_step, DType out_dtype, double divisor);
};

constexpr int64_t kTerms = 32;  // float32 additions in a row before a double takes the sum

// ---- floats: map an element, fold it into the accumulator. `absent` maps to the fold's neutral element.
struct Adds {
  static constexpr bool kWide = false;
  static constexpr double kStart = 0;
  template <class V> SF_INLINE static V fold(V a, V b) { return a + b; }
};
struct TakesMax {
  static constexpr bool kWide = false;
  static constexpr double kStart = -__builtin_inf();
  template <class V> SF_INLINE static V fold(V a, V b) { return maximum(a, b); }
};
struct TakesMin {
  static constexpr bool kWide = false;
  static constexpr double kStart = __builtin_inf();
  template <class V> SF_INLINE static V fold(V a, V b) { return minimum(a, b); }
};
struct SumOf : Adds {
  template <class V> SF_INLINE static V map(V x, V, V) { return x; }
  SF_INLINE static double absent(double, double) { return 0; }
};
struct AbsSumOf : SumOf {
  template <class V> SF_INLINE static V map(V x, V, V) { return abs(x); }
};
struct SquareSumOf : SumOf {
  template <class V> SF_INLINE static V map(V x, V, V) { return x * x; }
};
struct PowerSumOf : Adds {
  template <class V> SF_INLINE static V map(V x, V, V p) { return pow(abs(x), p); }
  SF_INLINE static double absent(double, double p) { return p > 0 ? 0 : __builtin_inf(); }
};
struct NonzeroSumOf : SumOf {
  template <class V> SF_INLINE static V map(V x, V, V) { return select(x != V(0), V(1), V(0)); }
};
struct SquareDeviationOf : Adds {
  template <class V> SF_INLINE static V map(V x, V c, V) { return (x - c) * (x - c); }
  SF_INLINE static double absent(double c, double) { return c; }
};
struct ExpDeviationOf : Adds {
  template <class V> SF_INLINE static V map(V x, V c, V) { return exp(x - c); }
  SF_INLINE static double absent(double, double) { return -__builtin_inf(); }
};
struct MaxOf : TakesMax {
  template <class V> SF_INLINE static V map(V x, V, V) { return x; }
  SF_INLINE static double absent(double, double) { return -__builtin_inf(); }
};
struct MinOf : TakesMin {
  template <class V> SF_INLINE static V map(V x, V, V) { return x; }
  SF_INLINE static double absent(double, double) { return __builtin_inf(); }
};
struct AbsMaxOf : TakesMax {
  static constexpr double kStart = 0;
  template <class V> SF_INLINE static V map(V x, V, V) { return abs(x); }
  SF_INLINE static double absent(double, double) { return 0; }
};
struct AbsMinOf : TakesMin {
  template <class V> SF_INLINE static V map(V x, V, V) { return abs(x); }
  SF_INLINE static double absent(double, double) { return __builtin_inf(); }
};
// Products overflow float32 long before the result does (or does not): doubles throughout.
struct ProdOf {
  static constexpr bool kWide = true;
  static constexpr double kStart = 1;
  SF_INLINE static double fold(double a, double b) { return a * b; }
  SF_INLINE static double map(double x, double, double) { return x; }
};

template <class F> SF_INLINE double across(double x) { return x; }
template <class F> SF_INLINE double across(vf x) {
  alignas(64) float lane[kLanes];
  store(lane, x);
  double r = lane[0];
  for (int i = 1; i < kLanes; ++i) r = F::fold(r, double(lane[i]));
  return r;
}

template <class F, class T> void float_row(const void* data, int64_t n, void* acc, double center, double p) {
  auto* x = static_cast<const T*>(data);
  double total = *static_cast<double*>(acc);
  if constexpr (F::kWide) {
    double lane[8];
    for (double& l : lane) l = F::kStart;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
      for (int k = 0; k < 8; ++k) lane[k] = F::fold(lane[k], F::map(double(scalar(x[i + k])), center, p));
    for (; i < n; ++i) total = F::fold(total, F::map(double(scalar(x[i])), center, p));
    for (double l : lane) total = F::fold(total, l);
  } else {
    using V = Vec<T>;
    constexpr int L = kVec<T>;
    constexpr int64_t kBlock = 4 * L * kTerms;
    V c = V(Acc<T>(center)), e = V(Acc<T>(p));
    auto at = [&](int64_t i) __attribute__((always_inline)) { return F::map(load(x + i), c, e); };
    for (int64_t b = 0; b < n; b += kBlock) {
      int64_t end = n - b < kBlock ? n : b + kBlock, i = b;
      V s0(Acc<T>(F::kStart)), s1 = s0, s2 = s0, s3 = s0;
      for (; i + 4 * L <= end; i += 4 * L) {
        s0 = F::fold(s0, at(i));
        s1 = F::fold(s1, at(i + L));
        s2 = F::fold(s2, at(i + 2 * L));
        s3 = F::fold(s3, at(i + 3 * L));
      }
      for (; i + L <= end; i += L) s0 = F::fold(s0, at(i));
      if (L > 1 && i < end)
        s1 = F::fold(s1, F::map(load_n(x + i, int(end - i), Acc<T>(F::absent(double(Acc<T>(center)), p))), c, e));
      total = F::fold(total, across<F>(F::fold(F::fold(s0, s1), F::fold(s2, s3))));
    }
  }
  *static_cast<double*>(acc) = total;
}

constexpr int64_t kNarrow = 4;  // columns that narrow_columns() is compiled for, at most

// Rows of N elements that follow on from each other, as many as fill whole vectors: N vectors hold kLanes rows, and
// lane i of vector v belongs to column (v * kLanes + i) % N. Returns how many rows that were.
template <class F, class T, int N>
int64_t narrow_columns(const T* x, int64_t rows, double* acc, const double* center, double p) {
  constexpr int L = kLanes;
  alignas(64) float lane[N * L] = {};
  if (center)
    for (int i = 0; i < N * L; ++i) lane[i] = float(center[i % N]);
  vf c[N], s[N], e(p);
  for (int v = 0; v < N; ++v) c[v] = load(lane + v * L);
  int64_t r = 0;
  while (r + L <= rows) {
    for (int v = 0; v < N; ++v) s[v] = vf(float(F::kStart));
    for (int64_t term = 0; term < kTerms && r + L <= rows; ++term, r += L)
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) s[v] = F::fold(s[v], F::map(load(x + r * N + v * L), c[v], e));
    for (int v = 0; v < N; ++v) store(lane + v * L, s[v]);
    for (int i = 0; i < N * L; ++i) acc[i % N] = F::fold(acc[i % N], double(lane[i]));
  }
  return r;
}

template <class F, class T>
void float_columns(const char* x, int64_t row_bytes, int64_t rows, int64_t n, void* accumulators, const double* center,
                   double p) {
  auto* acc = static_cast<double*>(accumulators);
  auto row = [&](int64_t r) __attribute__((always_inline)) { return reinterpret_cast<const T*>(x + r * row_bytes); };
  if constexpr (F::kWide || sizeof(Acc<T>) == 8) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < n; ++j)
        acc[j] = F::fold(acc[j], F::map(double(scalar(row(r)[j])), center ? center[j] : 0, p));
  } else {
    constexpr int L = kLanes;
    int64_t done = 0;
    if (n <= kNarrow && row_bytes == n * int64_t(sizeof(T))) {
      if (n == 2) done = narrow_columns<F, T, 2>(row(0), rows, acc, center, p);
      if (n == 3) done = narrow_columns<F, T, 3>(row(0), rows, acc, center, p);
      if (n == 4) done = narrow_columns<F, T, 4>(row(0), rows, acc, center, p);
    }
    for (int64_t first = done; first < rows; first += kTerms) {
      int64_t last = first + kTerms < rows ? first + kTerms : rows;
      for (int64_t j = 0; j < n; j += 2 * L) {
        int m = int(n - j < 2 * L ? n - j : 2 * L), m0 = m < L ? m : L, m1 = m - m0;
        alignas(64) float lane[2 * L] = {};
        if (center)
          for (int k = 0; k < m; ++k) lane[k] = float(center[j + k]);
        vf c0 = load(lane), c1 = load(lane + L), e(p), s0(float(F::kStart)), s1 = s0;
        if (m == 2 * L) {
          for (int64_t r = first; r < last; ++r) {
            s0 = F::fold(s0, F::map(load(row(r) + j), c0, e));
            s1 = F::fold(s1, F::map(load(row(r) + j + L), c1, e));
          }
        } else {
          for (int64_t r = first; r < last; ++r) {
            s0 = F::fold(s0, F::map(load_n(row(r) + j, m0), c0, e));
            if (m1 > 0) s1 = F::fold(s1, F::map(load_n(row(r) + j + L, m1), c1, e));
          }
        }
        store(lane, s0);
        store(lane + L, s1);
        for (int k = 0; k < m; ++k) acc[j + k] = F::fold(acc[j + k], double(lane[k]));
      }
    }
  }
}

template <class F> void float_start(void* acc, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<double*>(acc)[i] = F::kStart;
}
template <class F> void float_merge(void* acc, const void* other, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    static_cast<double*>(acc)[i] = F::fold(static_cast<double*>(acc)[i], static_cast<const double*>(other)[i]);
}
void float_finish(const void* acc, int64_t n, void* out, int64_t step, DType dtype, double divisor) {
  auto* a = static_cast<const double*>(acc);
  visit_floating(
      dtype, [&](auto tag) __attribute__((always_inline)) {
        using T = typename decltype(tag)::type;
        auto* y = static_cast<T*>(out);
        for (int64_t i = 0; i < n; ++i) y[i * step] = narrowed<T>(Acc<T>(a[i] / divisor));
      });
}
template <class F, class T> Blocks float_blocks() {
  return {float_start<F>, float_row<F, T>, float_columns<F, T>, float_merge<F>, float_finish};
}

// ---- integers and bools (as bytes); sums and products wrap around
struct IntSum {
  static constexpr int64_t kStart = 0;
  SF_INLINE static int64_t fold(int64_t a, int64_t b) { return int64_t(uint64_t(a) + uint64_t(b)); }
};
struct IntProd {
  static constexpr int64_t kStart = 1;
  SF_INLINE static int64_t fold(int64_t a, int64_t b) { return int64_t(uint64_t(a) * uint64_t(b)); }
};
struct IntMax {
  static constexpr int64_t kStart = INT64_MIN;
  SF_INLINE static int64_t fold(int64_t a, int64_t b) { return a > b ? a : b; }
};
struct IntMin {
  static constexpr int64_t kStart = INT64_MAX;
  SF_INLINE static int64_t fold(int64_t a, int64_t b) { return a < b ? a : b; }
};
// any and all see elements of every dtype as 0 or 1.
struct AnyOf {
  static constexpr int64_t kStart = 0;
  SF_INLINE static int64_t fold(int64_t a, int64_t b) { return a | b; }
};
struct AllOf {
  static constexpr int64_t kStart = 1;
  SF_INLINE static int64_t fold(int64_t a, int64_t b) { return a & b; }
};
struct Truth {
  SF_INLINE static int64_t of(Half x) { return (x.bits & 0x7fff) != 0; }
  SF_INLINE static int64_t of(BFloat16 x) { return (x.bits & 0x7fff) != 0; }
  template <class T> SF_INLINE static int64_t of(T x) { return x != T(0); }
};
struct Number {
  template <class T> SF_INLINE static int64_t of(T x) { return int64_t(x); }
};

template <class F, class Map, class T> void int_row(const void* data, int64_t n, void* acc, double, double) {
  auto* x = static_cast<const T*>(data);
  int64_t total = *static_cast<int64_t*>(acc);
  for (int64_t i = 0; i < n; ++i) total = F::fold(total, Map::of(x[i]));
  *static_cast<int64_t*>(acc) = total;
}
template <class F, class Map, class T>
void int_columns(const char* x, int64_t row_bytes, int64_t rows, int64_t n, void* accumulators, const double*, double) {
  auto* acc = static_cast<int64_t*>(accumulators);
  for (int64_t r = 0; r < rows; ++r) {
    auto* row = reinterpret_cast<const T*>(x + r * row_bytes);
    for (int64_t j = 0; j < n; ++j) acc[j] = F::fold(acc[j], Map::of(row[j]));
  }
}
template <class F> void int_start(void* acc, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<int64_t*>(acc)[i] = F::kStart;
}
template <class F> void int_merge(void* acc, const void* other, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    static_cast<int64_t*>(acc)[i] = F::fold(static_cast<int64_t*>(acc)[i], static_cast<const int64_t*>(other)[i]);
}
void int_finish(const void* acc, int64_t n, void* out, int64_t step, DType dtype, double) {
  auto* a = static_cast<const int64_t*>(acc);
  auto put = [&](auto tag) __attribute__((always_inline)) {
    auto* y = static_cast<decltype(tag)*>(out);
    for (int64_t i = 0; i < n; ++i) y[i * step] = decltype(tag)(a[i]);
  };
  switch (dtype) {
    case kUInt8:
    case kBool: return put(uint8_t{});
    case kInt8: return put(int8_t{});
    case kInt16: return put(int16_t{});
    case kInt32: return put(int32_t{});
    default: return put(int64_t{});
  }
}
template <class F, class Map, class T> Blocks int_blocks() {
  return {int_start<F>, int_row<F, Map, T>, int_columns<F, Map, T>, int_merge<F>, int_finish};
}

// ---- by name and dtype
template <class F> Blocks floats(DType t) {
  switch (t) {
    case kFloat32: return float_blocks<F, float>();
    case kBFloat16: return float_blocks<F, BFloat16>();
    case kFloat16: return float_blocks<F, Half>();
    default: return float_blocks<F, double>();
  }
}
template <class F, class Map = Number> Blocks integers(DType t) {
  switch (t) {
    case kUInt8:
    case kBool: return int_blocks<F, Map, uint8_t>();
    case kInt8: return int_blocks<F, Map, int8_t>();
    case kInt16: return int_blocks<F, Map, int16_t>();
    case kInt32: return int_blocks<F, Map, int32_t>();
    default: return int_blocks<F, Map, int64_t>();
  }
}
template <class F> Blocks truths(DType t) {
  switch (t) {
    case kFloat32: return int_blocks<F, Truth, float>();
    case kBFloat16: return int_blocks<F, Truth, BFloat16>();
    case kFloat16: return int_blocks<F, Truth, Half>();
    case kFloat64: return int_blocks<F, Truth, double>();
    default: return integers<F, Truth>(t);
  }
}

Blocks blocks_for(Reduction what, DType t) {
  bool real = is_floating(t);
  switch (what) {
    case Reduction::Sum: return real ? floats<SumOf>(t) : integers<IntSum>(t);
    case Reduction::Prod: return real ? floats<ProdOf>(t) : integers<IntProd>(t);
    case Reduction::Max: return real ? floats<MaxOf>(t) : integers<IntMax>(t);
    case Reduction::Min: return real ? floats<MinOf>(t) : integers<IntMin>(t);
    case Reduction::Any: return truths<AnyOf>(t);
    case Reduction::All: return truths<AllOf>(t);
    case Reduction::AbsSum: return floats<AbsSumOf>(t);
    case Reduction::SquareSum: return floats<SquareSumOf>(t);
    case Reduction::PowerSum: return floats<PowerSumOf>(t);
    case Reduction::NonzeroSum: return floats<NonzeroSumOf>(t);
    case Reduction::AbsMax: return floats<AbsMaxOf>(t);
    case Reduction::AbsMin: return floats<AbsMinOf>(t);
    case Reduction::SquareDeviation: return floats<SquareDeviationOf>(t);
    default: return floats<ExpDeviationOf>(t);
  }
}

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
