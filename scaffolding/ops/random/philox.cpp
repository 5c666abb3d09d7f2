// torch's CUDA generator on the CPU: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)
// with curand's layout, and the grid-stride loop of ATen/native/cuda/DistributionTemplates.h.
//
// Thread t of T draws four words at counter (offset / 4 + round, t); element round * k * T + lane * T + t takes the
// lane-th of the k numbers made from them (k = 4 of 32 bits, 2 of 64). A call moves the offset by 4 per round.
// curand computes normals with the GPU's approximate sine and cosine: ours agree to about 1e-6.
// permutation, and bernoulli with a tensor of probabilities, are ours: torch's depend on further launch details.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "scaffolding/core/error.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/random/streams.h"

namespace sf {

namespace {

struct Words {
  uint32_t v[4];
};

Words philox(uint64_t counter, uint64_t thread, uint64_t seed) {
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

constexpr double kTwoPi = 6.283185307179586476925;
float unit_float(uint32_t x) { return std::fma(float(x), 0x1p-32f, 0x1p-33f); }  // (0, 1]
double unit_double(uint32_t x, uint32_t y) { return double(uint64_t(x) ^ (uint64_t(y) << 21)) * 0x1p-53 + 0x1p-54; }
uint64_t joined(uint32_t high, uint32_t low) { return uint64_t(high) << 32 | low; }

template <class T> T convert(auto v) {
  if constexpr (std::is_arithmetic_v<T>) return T(v);
  else return from_float<T>(float(v));
}

template <class F> void visit_floating(const char* op, DType t, const F& f) {
  SF_CHECK_AS(TypeError, is_floating(t) && !is_float8(t), op, ": needs float16, bfloat16, float32 or float64, got ", t);
  visit_dtype(t, [&](auto tag) { f(typename decltype(tag)::type()); });
}

class Philox final : public GeneratorImpl {
 public:
  explicit Philox(int64_t threads) : threads_(threads) {}
  Philox(const Philox& o) : GeneratorImpl(), threads_(o.threads_), seed_(o.seed_), offset_(o.offset_) { device = o.device; }

  const char* algorithm() const override { return "philox"; }
  void manual_seed(uint64_t seed) override {
    std::lock_guard guard(lock_);
    seed_ = seed;
    offset_ = 0;
  }
  uint64_t initial_seed() const override {
    std::lock_guard guard(lock_);
    return seed_;
  }
  Generator clone() const override {
    std::lock_guard guard(lock_);
    return Generator(new Philox(*this));
  }
  std::vector<uint8_t> get_state() const override {
    std::lock_guard guard(lock_);
    std::vector<uint8_t> bytes(16);
    std::memcpy(bytes.data(), &seed_, 8);
    std::memcpy(bytes.data() + 8, &offset_, 8);
    return bytes;
  }
  void set_state(const std::vector<uint8_t>& bytes) override {
    SF_CHECK(bytes.size() == 16, "Generator.set_state: a CUDA state has 16 bytes (seed and offset), got ", bytes.size());
    uint64_t offset;
    std::memcpy(&offset, bytes.data() + 8, 8);
    SF_CHECK(offset % 4 == 0, "Generator.set_state: the offset must be a multiple of 4, got ", offset);
    std::lock_guard guard(lock_);
    std::memcpy(&seed_, bytes.data(), 8);
    offset_ = offset;
  }

  void uniform(DType t, void* p, int64_t n, double low, double high) override {
    visit_floating("uniform", t, [&](auto tag) {
      using T = decltype(tag);
      T from = convert<T>(low), to = convert<T>(high), *out = static_cast<T*>(p);
      auto store = [&](int64_t i, auto u) {  // the bounds of (0, 1] are exchanged
        using Op = decltype(u);
        if constexpr (std::is_arithmetic_v<T>) {
          T v = T(std::fma(u, Op(to - from), Op(from)));
          out[i] = v == to ? from : v;
        } else {
          T v = from_float<T>(std::fma(float(u), to_float(from_float<T>(to_float(to) - to_float(from))), to_float(from)));
          out[i] = v.bits == to.bits ? from : v;
        }
      };
      if constexpr (std::is_same_v<T, double>) units<2>(n, store);
      else units<4>(n, store);
    });
  }

  void normal(DType t, void* p, int64_t n, double mean, double std, bool) override {
    visit_floating("normal", t, [&](auto tag) {
      using T = decltype(tag);
      T* out = static_cast<T*>(p);
      if constexpr (std::is_same_v<T, double>) {
        draw<2>(n, [&](int64_t i, int lane, const Words& w) {
          double u = unit_double(w.v[0], w.v[1]), v = double(uint64_t(w.v[2]) ^ (uint64_t(w.v[3]) << 21)) * 0x1p-52 + 0x1p-53;
          double radius = std::sqrt(-2.0 * std::log(u)), angle = v * (kTwoPi / 2);
          out[i] = std::fma(radius * (lane ? std::cos(angle) : std::sin(angle)), std, mean);
        });
      } else {
        draw<4>(n, [&](int64_t i, int lane, const Words& w) {
          constexpr float kScale = 2.3283064e-10f * 6.2831855f;  // curand's CURAND_2POW32_INV_2PI
          float u = unit_float(w.v[lane & 2]), angle = std::fma(float(w.v[(lane & 2) + 1]), kScale, kScale / 2);
          float radius = std::sqrt(-2.0f * std::log(u));
          out[i] = convert<T>(std::fma(radius * (lane & 1 ? std::cos(angle) : std::sin(angle)), float(std), float(mean)));
        });
      }
    });
  }

  void integers(DType t, void* p, int64_t n, uint64_t range, int64_t base) override {
    visit_dtype(t, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* out = static_cast<T*>(p);
      if (range >= (uint64_t(1) << 28)) wide(n, [&](int64_t i, uint64_t w) { out[i] = convert<T>(int64_t(w % range + uint64_t(base))); });
      else draw<4>(n, [&](int64_t i, int lane, const Words& w) { out[i] = convert<T>(int64_t(w.v[lane] % uint32_t(range) + uint64_t(base))); });
    });
  }
  void integers_full(DType t, void* p, int64_t n) override {
    visit_dtype(t, [&](auto tag) {
      using T = typename decltype(tag)::type;
      wide(n, [&](int64_t i, uint64_t w) { static_cast<T*>(p)[i] = convert<T>(int64_t(w)); });
    });
  }
  void integers_natural(DType t, void* p, int64_t n) override {
    visit_dtype(t, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* out = static_cast<T*>(p);
      uint64_t range = natural_range(t);
      if (t == kInt64 || t == kFloat64) wide(n, [&](int64_t i, uint64_t w) { out[i] = convert<T>(int64_t(w % range)); });
      else draw<4>(n, [&](int64_t i, int lane, const Words& w) { out[i] = convert<T>(int64_t(w.v[lane] % range)); });
    });
  }

  void bernoulli(DType t, void* p, int64_t n, double probability) override {
    visit_dtype(t, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* out = static_cast<T*>(p);
      if constexpr (std::is_same_v<T, double>) units<2>(n, [&](int64_t i, double u) { out[i] = u < probability; });
      else units<4>(n, [&](int64_t i, float u) { out[i] = convert<T>(int(u < float(probability))); });
    });
  }
  void bernoulli(DType t, void* p, int64_t n, DType probability_dtype, const void* probability) override {
    visit_dtype(t, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* out = static_cast<T*>(p);
      visit_floating("bernoulli", probability_dtype, [&](auto q) {
        using Q = decltype(q);
        auto* chance = static_cast<const Q*>(probability);
        if constexpr (std::is_same_v<Q, double>) units<2>(n, [&](int64_t i, double u) { out[i] = convert<T>(int(u <= chance[i])); });
        else units<4>(n, [&](int64_t i, float u) { out[i] = convert<T>(int(u <= to_float(chance[i]))); });
      });
    });
  }

  void exponential(DType t, void* p, int64_t n, double lambda) override {
    visit_floating("exponential", t, [&](auto tag) {
      using T = decltype(tag);
      T* out = static_cast<T*>(p);
      auto store = [&](int64_t i, auto u) {  // log 1 = 0 is excluded: the distribution is open at 0
        using Op = decltype(u);
        constexpr Op half_step = std::numeric_limits<Op>::epsilon() / 2;
        Op log = u >= Op(1) - half_step ? -half_step : std::log(u);
        out[i] = convert<T>(Op(-1) / Op(lambda) * log);
      };
      if constexpr (std::is_same_v<T, double>) units<2>(n, store);
      else units<4>(n, store);
    });
  }

  void permutation(int64_t* p, int64_t n) override {
    std::vector<uint64_t> words(size_t(std::max<int64_t>(n, 0)));
    wide(n, [&](int64_t i, uint64_t w) { words[size_t(i)] = w; });
    for (int64_t i = 0; i < n; ++i) p[i] = i;
    for (int64_t i = 0; i < n - 1; ++i) std::swap(p[i], p[i + int64_t(words[size_t(i)] % uint64_t(n - i))]);
  }

 private:
  static uint64_t natural_range(DType t) {
    constexpr int8_t bits[kNumDTypes] = {8, 7, 15, 31, 63, 11, 24, 53, 1, 8, -1, -1};
    SF_CHECK_AS(TypeError, bits[int(t)] > 0, "random_: ", t, " is storage only");
    return (uint64_t(1) << bits[int(t)]) + (is_floating(t) ? 1 : 0);
  }

  // f(element, lane, words) for every element; Lanes numbers are made of each four words.
  template <int Lanes, class F> void draw(int64_t n, const F& f) {
    if (n <= 0) return;
    std::lock_guard guard(lock_);
    int64_t threads = (n + 255) / 256 * 256;
    if (threads_ > 0) threads = std::min(threads, threads_);
    int64_t per_round = threads * Lanes, rounds = (n - 1) / per_round + 1;
    for (int64_t round = 0; round < rounds; ++round) {
      uint64_t counter = offset_ / 4 + uint64_t(round);
      int64_t start = round * per_round;
      parallel_for(std::min(threads, n - start), 1024, [&](int64_t b, int64_t e) {
        for (int64_t t = b; t < e; ++t) {
          Words w = philox(counter, uint64_t(t), seed_);
          for (int lane = 0; lane < Lanes; ++lane)
            if (int64_t i = start + lane * threads + t; i < n) f(i, lane, w);
        }
      });
    }
    offset_ += 4 * uint64_t(rounds);
  }
  template <int Lanes, class F> void units(int64_t n, const F& f) {  // f(element, number in (0, 1])
    draw<Lanes>(n, [&](int64_t i, int lane, const Words& w) {
      if constexpr (Lanes == 2) f(i, unit_double(w.v[lane * 2], w.v[lane * 2 + 1]));
      else f(i, unit_float(w.v[lane]));
    });
  }
  template <class F> void wide(int64_t n, const F& f) {  // f(element, 64 bits)
    draw<2>(n, [&](int64_t i, int lane, const Words& w) { f(i, joined(w.v[lane * 2], w.v[lane * 2 + 1])); });
  }

  int64_t threads_;
  uint64_t seed_ = kDefaultSeed, offset_ = 0;
};

}  // namespace

Generator make_philox(int64_t threads) { return Generator(new Philox(threads)); }

}  // namespace sf
