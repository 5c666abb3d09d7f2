// torch's CPU generator: MT19937 (Matsumoto and Nishimura 1998) seeded with the low 32 bits of the seed, and the way
// ATen/native/cpu/DistributionTemplates.h turns its words into numbers (torch 2.15: 16-bit floats are drawn as float32
// and rounded; integer ranges of 2^28 and more take 64 bits). torch builds that find an Intel processor draw bernoulli
// and exponential from MKL instead; ours equals all others.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <optional>

#include "scaffolding/core/error.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/random/kernel.h"
#include "scaffolding/ops/random/streams.h"

namespace sf {

constinit KernelTable<BoxMuller> box_muller_kernel{"box_muller"};
constinit KernelTable<UniformRange> uniform_range_kernel{"uniform_range"};

namespace {

constexpr int kWords = 624, kShift = 397;
constexpr double kTwoPi = 6.283185307179586476925;

// The bytes of torch.Generator.get_state(): at::CPUGeneratorImplState.
struct TorchState {
  uint64_t initial_seed;
  int32_t left;  // words that remain before the next batch, plus one
  int32_t seeded;
  uint64_t next;  // index of the next word
  uint64_t words[kWords];
  double normal_x, normal_y, normal_rho;
  int32_t normal_is_valid, padding;
  float float_normal;
  int32_t float_normal_is_valid;
};
static_assert(sizeof(TorchState) == 5056);

template <class T> T as(double v) {
  if constexpr (std::is_arithmetic_v<T>) return T(v);
  else return from_float<T>(float(v));
}
template <class T> T from_integer(int64_t v) {
  if constexpr (std::is_arithmetic_v<T>) return T(v);
  else return from_float<T>(float(v));
}

template <class F> void visit_floating(const char* op, DType t, const F& f) {
  SF_CHECK_AS(TypeError, is_floating(t) && !is_float8(t), op, ": needs float16, bfloat16, float32 or float64, got ", t);
  switch (t) {
    case kFloat64: return f(double());
    case kFloat16: return f(Half());
    case kBFloat16: return f(BFloat16());
    default: return f(float());
  }
}

class Mt19937 final : public GeneratorImpl {
 public:
  Mt19937() { reseed(kDefaultSeed); }
  Mt19937(const Mt19937& o) : GeneratorImpl(), seed_(o.seed_), next_(o.next_), fresh_(o.fresh_), normal_(o.normal_) {
    device = o.device;
    std::copy_n(o.words_, kWords, words_);
  }

  const char* algorithm() const override { return "mt19937"; }
  void manual_seed(uint64_t seed) override {
    std::lock_guard guard(lock_);
    reseed(seed);
  }
  uint64_t initial_seed() const override {
    std::lock_guard guard(lock_);
    return seed_;
  }
  Generator clone() const override {
    std::lock_guard guard(lock_);
    return Generator(new Mt19937(*this));
  }

  std::vector<uint8_t> get_state() const override {
    std::lock_guard guard(lock_);
    TorchState s{};
    s.initial_seed = seed_;
    s.seeded = 1;
    // torch makes a batch when it needs the first word of it: freshly seeded is left = 1, next = 0.
    s.left = fresh_ ? 1 : kWords + 1 - next_;
    s.next = fresh_ ? 0 : uint64_t(next_);
    std::copy_n(words_, kWords, s.words);
    s.normal_is_valid = normal_.has_value();
    s.normal_y = normal_.value_or(0);
    std::vector<uint8_t> bytes(sizeof s);
    std::memcpy(bytes.data(), &s, sizeof s);
    return bytes;
  }
  void set_state(const std::vector<uint8_t>& bytes) override {
    TorchState s;
    SF_CHECK(bytes.size() == sizeof s, "Generator.set_state: a CPU state has ", sizeof s, " bytes, got ", bytes.size());
    std::memcpy(&s, bytes.data(), sizeof s);
    SF_CHECK(s.seeded == 1 && s.left >= 1 && s.left <= kWords && s.next <= kWords,
             "Generator.set_state: the bytes are no mt19937 state");
    std::lock_guard guard(lock_);
    seed_ = s.initial_seed;
    fresh_ = s.left == 1 && s.next == 0;
    next_ = fresh_ ? kWords : int(s.next);
    for (int i = 0; i < kWords; ++i) words_[i] = uint32_t(s.words[i]);
    normal_ = s.normal_is_valid ? std::optional<double>(s.normal_y) : std::nullopt;
  }

  void uniform(DType t, void* p, int64_t n, double low, double high) override {
    std::lock_guard guard(lock_);
    visit_floating("uniform", t, [&](auto tag) {
      using T = decltype(tag);
      T* out = static_cast<T*>(p);
      if constexpr (std::is_same_v<T, double>) {
        for (int64_t i = 0; i < n; ++i) {
          const double v = std::fma(unit_double(), high - low, low);
          out[i] = v == high ? low : v;  // rounding may have reached the upper bound
        }
      } else {
        uniform_floats(out, n, float(low), float(high));
      }
    });
  }

  void normal(DType t, void* p, int64_t n, double mean, double std, bool one_by_one) override {
    std::lock_guard guard(lock_);
    visit_floating("normal", t, [&](auto tag) {
      using T = decltype(tag);
      T* out = static_cast<T*>(p);
      if (n < 16 || one_by_one) {
        for (int64_t i = 0; i < n; ++i) out[i] = as<T>(std::fma(one_normal(), std, mean));
      } else if constexpr (std::is_same_v<T, float>) {
        float_blocks(out, n, float(mean), float(std));
      } else if constexpr (std::is_same_v<T, double>) {
        double_blocks(out, n, mean, std);
      } else {
        rounded_blocks(out, n, float(mean), float(std));
      }
    });
  }

  void integers(DType t, void* p, int64_t n, uint64_t range, int64_t base) override {
    std::lock_guard guard(lock_);
    bool wide = range >= (uint64_t(1) << 28);  // below, 32 bits modulo the range are at most 6 % off even
    visit_dtype(t, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* out = static_cast<T*>(p);
      if (wide)
        for (int64_t i = 0; i < n; ++i) out[i] = from_integer<T>(int64_t(word64() % range + uint64_t(base)));
      else
        for (int64_t i = 0; i < n; ++i) out[i] = from_integer<T>(int64_t(word() % uint32_t(range) + uint64_t(base)));
    });
  }
  void integers_full(DType t, void* p, int64_t n) override {
    std::lock_guard guard(lock_);
    visit_dtype(t, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < n; ++i) static_cast<T*>(p)[i] = from_integer<T>(int64_t(word64()));
    });
  }
  void integers_natural(DType t, void* p, int64_t n) override {
    std::lock_guard guard(lock_);
    visit_dtype(t, [&](auto tag) {
      using T = typename decltype(tag)::type;
      uint64_t range = natural_range(t);
      for (int64_t i = 0; i < n; ++i)
        static_cast<T*>(p)[i] =
            from_integer<T>(int64_t(t == kInt64 || t == kFloat64 ? word64() % range : word() % range));
    });
  }

  void bernoulli(DType t, void* p, int64_t n, double probability) override {
    std::lock_guard guard(lock_);
    visit_dtype(t, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < n; ++i) static_cast<T*>(p)[i] = from_integer<T>(unit_double() < probability);
    });
  }
  void bernoulli(DType t, void* p, int64_t n, DType probability_dtype, const void* probability) override {
    std::lock_guard guard(lock_);
    visit_dtype(t, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* out = static_cast<T*>(p);
      visit_floating("bernoulli", probability_dtype, [&](auto q) {
        using Q = decltype(q);
        auto* chance = static_cast<const Q*>(probability);
        for (int64_t i = 0; i < n; ++i) {
          if constexpr (std::is_same_v<Q, double>) out[i] = from_integer<T>(unit_double() < chance[i]);
          else out[i] = from_integer<T>(unit_float() < to_float(chance[i]));
        }
      });
    });
  }

  void exponential(DType t, void* p, int64_t n, double lambda) override {
    std::lock_guard guard(lock_);
    visit_floating("exponential", t, [&](auto tag) {
      using T = decltype(tag);
      for (int64_t i = 0; i < n; ++i) static_cast<T*>(p)[i] = as<T>(-1.0 / lambda * std::log1p(-unit_double()));
    });
  }

  void permutation(int64_t* p, int64_t n) override {
    std::lock_guard guard(lock_);
    for (int64_t i = 0; i < n; ++i) p[i] = i;
    const bool wide = n >= int64_t(UINT32_MAX / 20);
    // Places are drawn some ahead, so that they are on their way from memory.
    constexpr int64_t kAhead = 32;
    int64_t places[kAhead];
    for (int64_t i = 0; i < n - 1; i += kAhead) {
      const int64_t count = std::min(kAhead, n - 1 - i);
      for (int64_t j = 0; j < count; ++j) {
        const int64_t left = n - i - j;
        places[j] = i + j + (wide ? int64_t(word64() % uint64_t(left)) : int64_t(word() % uint32_t(left)));
        __builtin_prefetch(p + places[j], 1);
      }
      for (int64_t j = 0; j < count; ++j) std::swap(p[i + j], p[places[j]]);
    }
  }

 private:
  static uint64_t natural_range(DType t) {
    switch (t) {
      case kBool: return 2;
      case kUInt8: return 256;
      case kInt8: return 128;
      case kInt16: return 32768;
      case kInt32: return uint64_t(1) << 31;
      case kInt64: return uint64_t(1) << 63;
      case kFloat16: return (1 << 11) + 1;
      case kBFloat16: return (1 << 8) + 1;
      case kFloat32: return (1 << 24) + 1;
      case kFloat64: return (uint64_t(1) << 53) + 1;
      default: fail<TypeError>("random_: ", t, " is storage only");
    }
  }

  void reseed(uint64_t seed) {
    seed_ = seed;
    words_[0] = uint32_t(seed);
    for (uint32_t i = 1; i < kWords; ++i) words_[i] = 1812433253u * (words_[i - 1] ^ (words_[i - 1] >> 30)) + i;
    next_ = kWords;
    fresh_ = true;
    normal_.reset();
  }

  void refill() {
    auto twist = [](uint32_t u, uint32_t v) {
      return (((u & 0x80000000u) | (v & 0x7fffffffu)) >> 1) ^ (v & 1 ? 0x9908b0dfu : 0);
    };
    for (int i = 0; i < kWords - kShift; ++i) words_[i] = words_[i + kShift] ^ twist(words_[i], words_[i + 1]);
    for (int i = kWords - kShift; i < kWords - 1; ++i)
      words_[i] = words_[i + kShift - kWords] ^ twist(words_[i], words_[i + 1]);
    words_[kWords - 1] = words_[kShift - 1] ^ twist(words_[kWords - 1], words_[0]);
    next_ = 0;
    fresh_ = false;
  }
  static uint32_t tempered(uint32_t y) {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
  }
  uint32_t word() {
    if (next_ == kWords) refill();
    return tempered(words_[next_++]);
  }
  uint64_t word64() {
    uint64_t high = word();
    return high << 32 | word();
  }
  float unit_float() { return float(word() & 0xffffff) * 0x1p-24f; }
  double unit_double() { return double(word64() & ((uint64_t(1) << 53) - 1)) * 0x1p-53; }

  double one_normal() {
    if (normal_) {
      double v = *normal_;
      normal_.reset();
      return v;
    }
    double u = unit_double(), v = unit_double();
    double radius = std::sqrt(-2.0 * std::log1p(-v)), angle = kTwoPi * u;
    normal_ = radius * std::sin(angle);
    return radius * std::cos(angle);
  }

  // Whole batches at once, so that the loop vectorises.
  void unit_floats(float* out, int64_t n) {
    while (n > 0) {
      if (next_ == kWords) refill();
      int64_t count = std::min<int64_t>(n, kWords - next_);
      const uint32_t* w = words_ + next_;
      for (int64_t i = 0; i < count; ++i) out[i] = float(int32_t(tempered(w[i]) & 0xffffff)) * 0x1p-24f;
      next_ += int(count);
      out += count;
      n -= count;
    }
  }
  template <class T> void uniform_floats(T* out, int64_t n, float low, float high) {
    constexpr int64_t kStage = 4096;  // 16 KB stay in the cache between the two steps
    alignas(64) float stage[kStage];
    UniformRange range{stage, kStage, low, high};
    const bool is_unit = low == 0 && high == 1;
    auto kernel = uniform_range_kernel.find(Device(), range);
    for (int64_t at = 0; at < n; at += kStage) {
      range.n = std::min(kStage, n - at);
      if constexpr (std::is_same_v<T, float>) range.data = out + at;
      unit_floats(range.data, range.n);
      if (!is_unit) kernel(range);
      if constexpr (!std::is_same_v<T, float>) {
        const T bottom = from_float<T>(low), top = from_float<T>(high);
        for (int64_t i = 0; i < range.n; ++i) {
          const T v = from_float<T>(stage[i]);
          out[at + i] = v.bits == top.bits ? bottom : v;  // rounding may have reached the upper bound
        }
      }
    }
  }
  static void transform(float* data, int64_t blocks, float mean, float std) {
    auto kernel = box_muller_kernel.find(Device(), {data, blocks, mean, std});
    parallel_for(blocks, 512, [&](int64_t b, int64_t e) { kernel({data + b * 16, e - b, mean, std}); });
  }
  void float_blocks(float* out, int64_t n, float mean, float std) {
    unit_floats(out, n);
    transform(out, n / 16, mean, std);
    if (n % 16 == 0) return;
    unit_floats(out + n - 16, 16);  // the last sixteen again: they overlap the block before
    transform(out + n - 16, 1, mean, std);
  }
  // Not spending the n % 16 draws that float_blocks overwrites: the streams differ after the last whole block.
  template <class T> void rounded_blocks(T* out, int64_t n, float mean, float std) {
    constexpr int64_t kStage = 4096;
    alignas(64) float stage[kStage];
    auto part = [&](T* to, int64_t count) {
      unit_floats(stage, count);
      transform(stage, count / 16, mean, std);
      for (int64_t i = 0; i < count; ++i) to[i] = from_float<T>(stage[i]);
    };
    for (int64_t at = 0, whole = n / 16 * 16; at < whole; at += kStage) part(out + at, std::min(kStage, whole - at));
    if (n % 16) part(out + n - 16, 16);
  }
  void double_blocks(double* out, int64_t n, double mean, double std) {
    auto block = [&](double* d) {
      for (int j = 0; j < 8; ++j) {
        double radius = std::sqrt(-2 * std::log(1 - d[j])), angle = kTwoPi * d[j + 8];
        d[j] = std::fma(radius * std::cos(angle), std, mean);
        d[j + 8] = std::fma(radius * std::sin(angle), std, mean);
      }
    };
    for (int64_t i = 0; i < n; ++i) out[i] = unit_double();
    parallel_for(n / 16, 64, [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i) block(out + i * 16);
    });
    if (n % 16 == 0) return;
    for (int i = 0; i < 16; ++i) out[n - 16 + i] = unit_double();
    block(out + n - 16);
  }

  uint64_t seed_ = 0;
  uint32_t words_[kWords];
  int next_ = kWords;
  bool fresh_ = true;  // seeded, no word drawn yet
  mutable std::mutex lock_;
  std::optional<double> normal_;  // the second value of the last pair
};

}  // namespace

Generator make_mt19937() { return Generator(new Mt19937); }

}  // namespace sf
