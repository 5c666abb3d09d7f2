// Numbers made of Philox4x32-10's words (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) as curand and torch's
// ATen/native/cuda/DistributionTemplates.h make them. One text for the CPU and for CUDA: the same words give the same numbers, normals and
// exponentials up to the device's own sine, cosine and logarithm.
//
// Of a launch of T threads, thread t draws four words at counter (offset / 4 + round, t); element round * k * T + lane * T + t is the lane-th
// of the k = lanes numbers made of them.
#pragma once
#include <cmath>
#include <limits>
#include <type_traits>

#include "scaffolding/core/half.h"
#include "scaffolding/ops/random/kernel.h"

#ifdef __CUDACC__
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
SF_BOTH inline double unit(uint32_t x, uint32_t y) { return double(uint64_t(x) ^ (uint64_t(y) << 21)) * 0x1p-53 + 0x1p-54; }

template <class T, class V> SF_BOTH T converted(V v) {
  if constexpr (std::is_arithmetic_v<T>) return T(v);
  else return from_float<T>(float(v));
}

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
      T v = from_float<T>(std::fma(u, to_float(from_float<T>(to_float(to) - to_float(from))), to_float(from)));
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
      return converted<T>(std::fma(radius * (lane & 1 ? ::cosf(angle) : ::sinf(angle)), float(std), float(mean)));
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
  SF_BOTH int64_t operator()(int lane, const Words& w) const { return int64_t(uint64_t(w.v[lane] % range) + uint64_t(base)); }
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
