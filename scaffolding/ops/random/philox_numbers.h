// Numbers made of Philox4x32-10's words (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) as curand
// and torch's ATen/native/cuda/DistributionTemplates.h make them. One text for the CPU and for CUDA: the same words
// give the same numbers, normals and exponentials up to the device's own sine, cosine and logarithm.
//
// Of a launch of T threads, thread t draws four words at counter (offset / 4 + round, t); element round * k * T +
// lane * T + t is the lane-th of the k = lanes numbers made of them.
#pragma once
#include <cmath>
#include <limits>
#include <type_traits>

#include "scaffolding/core/half.h"
#include "scaffolding/ops/random/kernel.h"

#ifdef __CUDACC__
#include "scaffolding/backend/cuda/vec.cuh"
#define SF_BOTH __host__ __device__
#else
#define SF_BOTH
#endif

namespace sf::philox {

struct Words {
  uint32_t v[4];
};

SF_BOTH inline Words words(uint64_t counter, uint64_t thread, uint64_t seed) {
  uint32_t c[4] = {uint32_t(counter), uint32_t(counter >> 32), uint32_t(thread), uint32_t(thread >> 32)};
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t a = uint64_t(c[0]) * 0xD2511F53u, b = uint64_t(c[2]) * 0xCD9E8D57u;
    uint32_t n0 = uint32_t(b >> 32) ^ c[1] ^ k0, n2 = uint32_t(a >> 32) ^ c[3] ^ k1;
    c[0] = n0, c[1] = uint32_t(b), c[2] = n2, c[3] = uint32_t(a);
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

SF_BOTH inline float unit(uint32_t x) { return std::fma(float(x), 0x1p-32f, 0x1p-33f); }  // (0, 1]
SF_BOTH inline double unit(uint32_t x, uint32_t y) {
  return double(uint64_t(x) ^ (uint64_t(y) << 21)) * 0x1p-53 + 0x1p-54;
}

// A GPU has instructions for these: curand takes its short ones for sines and cosines.
template <class T> SF_BOTH T rounded(float x) {
#ifdef __CUDA_ARCH__
  return cuda::narrow<T>(x);
#else
  return from_float<T>(x);
#endif
}
template <class T> SF_BOTH float widened(T x) {
#ifdef __CUDA_ARCH__
  return cuda::widen(x);
#else
  return to_float(x);
#endif
}
SF_BOTH inline float sine(float x) {
#ifdef __CUDA_ARCH__
  return __sinf(x);
#else
  return ::sinf(x);
#endif
}
SF_BOTH inline float cosine(float x) {
#ifdef __CUDA_ARCH__
  return __cosf(x);
#else
  return ::cosf(x);
#endif
}

template <class T, class V> SF_BOTH T converted(V v) {
  if constexpr (std::is_arithmetic_v<T>) return T(v);
  else return rounded<T>(float(v));
}

// The words of a place in the stream.
struct Stream {
  uint64_t seed, counter;
  SF_BOTH explicit Stream(const PhiloxPlace& p)
      : seed(p.replay ? p.replay[0] : p.seed), counter(p.counter + (p.replay ? p.replay[1] : 0)) {}
  SF_BOTH Words words(uint64_t call, uint64_t thread) const { return philox::words(counter + call, thread, seed); }
};

// A number of (0, 1] in the precision that T is drawn in.
template <class T> struct Unit {
  static constexpr int lanes = std::is_same_v<T, double> ? 2 : 4;
  SF_BOTH static auto of(int lane, const Words& w) {
    if constexpr (lanes == 2) return unit(w.v[lane * 2], w.v[lane * 2 + 1]);
    else return unit(w.v[lane]);
  }
};

template <class T> struct Uniform : Unit<T> {
  T from, to;
  explicit Uniform(const PhiloxDraw& d) : from(converted<T>(d.a)), to(converted<T>(d.b)) {}
  SF_BOTH T operator()(int lane, const Words& w) const {  // the bounds of (0, 1] are exchanged
    auto u = Unit<T>::of(lane, w);
    if constexpr (std::is_arithmetic_v<T>) {
      T v = T(std::fma(u, decltype(u)(to - from), decltype(u)(from)));
      return v == to ? from : v;
    } else {
      T v = rounded<T>(std::fma(u, widened(rounded<T>(widened(to) - widened(from))), widened(from)));
      return v.bits == to.bits ? from : v;
    }
  }
};

template <class T> struct Normal : Unit<T> {
  double mean, std;
  explicit Normal(const PhiloxDraw& d) : mean(d.a), std(d.b) {}
  SF_BOTH T operator()(int lane, const Words& w) const {
    if constexpr (std::is_same_v<T, double>) {
      double u = unit(w.v[0], w.v[1]), v = double(uint64_t(w.v[2]) ^ (uint64_t(w.v[3]) << 21)) * 0x1p-52 + 0x1p-53;
      double radius = ::sqrt(-2.0 * ::log(u)), angle = v * 3.14159265358979323846;
      return std::fma(radius * (lane ? ::cos(angle) : ::sin(angle)), std, mean);
    } else {
      constexpr float kScale = 2.3283064e-10f * 6.2831855f;  // curand's CURAND_2POW32_INV_2PI
      float u = unit(w.v[lane & 2]), angle = std::fma(float(w.v[(lane & 2) + 1]), kScale, kScale / 2);
      float radius = ::sqrtf(-2.0f * ::logf(u));
      return converted<T>(std::fma(radius * (lane & 1 ? cosine(angle) : sine(angle)), float(std), float(mean)));
    }
  }
};

template <class T> struct Exponential : Unit<T> {
  double rate;
  explicit Exponential(const PhiloxDraw& d) : rate(d.a) {}
  SF_BOTH T operator()(int lane, const Words& w) const {  // log 1 = 0 is excluded: the distribution is open at 0
    auto u = Unit<T>::of(lane, w);
    using Op = decltype(u);
    constexpr Op half_step = std::numeric_limits<Op>::epsilon() / 2;
    Op log = u >= Op(1) - half_step ? -half_step : logarithm(u);
    return converted<T>(Op(-1) / Op(rate) * log);
  }
  SF_BOTH static float logarithm(float x) { return ::logf(x); }
  SF_BOTH static double logarithm(double x) { return ::log(x); }
};

// Whole numbers, whatever dtype they are stored in: base + [0, range).
struct Integers {
  static constexpr int lanes = 4;
  uint32_t range;
  int64_t base;
  explicit Integers(const PhiloxDraw& d) : range(uint32_t(d.range)), base(d.base) {}
  SF_BOTH int64_t operator()(int lane, const Words& w) const {
    return int64_t(uint64_t(w.v[lane] % range) + uint64_t(base));
  }
};
struct WideIntegers {  // range 0: all 64 bits
  static constexpr int lanes = 2;
  uint64_t range;
  int64_t base;
  explicit WideIntegers(const PhiloxDraw& d) : range(d.range), base(d.base) {}
  SF_BOTH int64_t operator()(int lane, const Words& w) const {
    uint64_t x = uint64_t(w.v[lane * 2]) << 32 | w.v[lane * 2 + 1];
    return int64_t((range ? x % range : x) + uint64_t(base));
  }
};

// 1 with the given chance; drawn in float64 where it is stored so. T: double or float.
template <class T> struct Bernoulli : Unit<T> {
  T chance;
  explicit Bernoulli(const PhiloxDraw& d) : chance(T(d.a)) {}
  SF_BOTH int64_t operator()(int lane, const Words& w) const { return Unit<T>::of(lane, w) < chance; }
};

// ---- what torch draws with launches of its own, the same on every device

// bernoulli of a tensor (DistributionTemplates.h, CUDAApplyUtils.cuh): a thread takes four neighbours, in float32 where
// chances are float64 too.
inline constexpr uint64_t kChancesCounters = 3;  // by which the stream moves on: torch says 10 words
template <class P> SF_BOTH bool happens(const Words& w, int64_t i, P chance) { return unit(w.v[i % 4]) <= chance; }

// multinomial with replacement (MultinomialKernel.cu): blocks of 128 samples of a row,
// as many rows at once as a grid has places along y.
inline constexpr int64_t kSamplesOfBlock = 128, kRowsAtOnce = 65535;
struct Categories {
  int64_t rows_at_once, threads_of_row, counters;
  Categories(int64_t rows, int64_t samples)
      : rows_at_once(rows < kRowsAtOnce ? rows : kRowsAtOnce),
        threads_of_row((samples + kSamplesOfBlock - 1) / kSamplesOfBlock * kSamplesOfBlock),
        counters((rows - 1) / rows_at_once + 1) {}
  // The number of (0, 1] of a sample.
  SF_BOTH float unit_of(const Stream& s, int64_t row, int64_t sample) const {
    return unit(s.words(uint64_t(row / rows_at_once), uint64_t(row % rows_at_once * threads_of_row + sample)).v[0]);
  }
};
template <class T> SF_BOTH auto value_of(T x) {
  if constexpr (std::is_arithmetic_v<T>) return x;
  else return to_float(x);
}
// The first of n categories whose running sum is not below u; of those with a weight the last one before it where
// rounding led past all or to none.
template <class T> SF_BOTH int64_t category_of(const T* weights, const T* running, int64_t n, float u) {
  auto wanted = value_of(converted<T>(u));
  int64_t first = 0, end = n;
  while (first < end) {
    int64_t middle = first + (end - first) / 2;
    if (value_of(running[middle]) < wanted) first = middle + 1;
    else end = middle;
  }
  if (first == n) first = n - 1;
  while (first > 0 && value_of(weights[first]) == 0) --first;
  return first;
}

// randperm (Randperm.cu): 0 .. n-1 sorted by random keys of so many bits that few are equal; then those that are.
inline int key_bits(int64_t n) {
  double x = double(n);
  return int(std::fmin(64, std::ceil(std::log2(x - (6 * x * x + 1) / (12 * std::log(0.9))))));
}
// Where the keys from i on are the first of some equal ones: Fisher and Yates' shuffle of their places,
// words one by one.
template <class K> SF_BOTH void shuffle_equals(const Stream& s, const K* keys, int64_t* order, int64_t n, int64_t i) {
  if (i + 1 >= n || keys[i] != keys[i + 1] || (i > 0 && keys[i] == keys[i - 1])) return;
  int64_t count = 2;
  while (i + count < n && keys[i + count] == keys[i]) ++count;
  for (int64_t last = count - 1, drawn = 0; last > 0; --last, ++drawn) {
    int64_t other = int64_t(s.words(uint64_t(drawn / 4), uint64_t(i)).v[drawn % 4] % uint32_t(last + 1));
    int64_t moved = order[i + last];
    order[i + last] = order[i + other];
    order[i + other] = moved;
  }
}

// f(numbers) for a draw: those of floats have the element's type, the others are int64 to be stored in d.dtype.
template <class F> void visit_numbers(const PhiloxDraw& d, const F& f) {
  auto floating = [&](auto make) {
    switch (d.dtype) {
      case kFloat64: return make(double{});
      case kFloat16: return make(Half{});
      case kBFloat16: return make(BFloat16{});
      default: return make(float{});
    }
  };
  switch (d.what) {
    case PhiloxDraw::What::Uniform: return floating([&](auto t) { f(Uniform<decltype(t)>(d)); });
    case PhiloxDraw::What::Normal: return floating([&](auto t) { f(Normal<decltype(t)>(d)); });
    case PhiloxDraw::What::Exponential: return floating([&](auto t) { f(Exponential<decltype(t)>(d)); });
    case PhiloxDraw::What::Integers: return f(Integers(d));
    case PhiloxDraw::What::WideIntegers: return f(WideIntegers(d));
    case PhiloxDraw::What::Bernoulli: return d.dtype == kFloat64 ? f(Bernoulli<double>(d)) : f(Bernoulli<float>(d));
  }
}

}  // namespace sf::philox
