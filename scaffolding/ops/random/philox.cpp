// torch's CUDA generator on the CPU; the numbers and their layout are explained in philox_numbers.h.
// A call moves the offset by 4 per round.
// curand computes normals with the GPU's approximate sine and cosine: ours agree to about 1e-6.
#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/random/philox_numbers.h"
#include "scaffolding/ops/random/streams.h"

namespace sf {

constinit KernelTable<PhiloxDraw> philox_kernel{"philox"};
constinit KernelTable<PhiloxChances> philox_chances{"philox_chances"};
constinit KernelTable<PhiloxCategories> philox_categories{"philox_categories"};
constinit KernelTable<PhiloxShuffle> philox_shuffle{"philox_shuffle"};

namespace {

using philox::Words;
using What = PhiloxDraw::What;

template <class F> void visit_floating(const char* op, DType t, const F& f) {
  SF_CHECK_AS(TypeError, is_floating(t) && !is_float8(t), op, ": needs float16, bfloat16, float32 or float64, got ", t);
  visit_dtype(t, [&](auto tag) { f(typename decltype(tag)::type()); });
}

// Whole numbers become elements of a dtype a block at a time: each way to draw them is compiled once for all dtypes.
constexpr int64_t kDraws = 256;
using Store = void (*)(void* out, int64_t at, const int64_t* values, int64_t n);
Store store_of(DType t) {
  Store store = nullptr;
  visit_dtype(t, [&](auto tag) {
    using T = typename decltype(tag)::type;
    store = [](void* out, int64_t at, const int64_t* values, int64_t n) {
      T* to = static_cast<T*>(out) + at;
      for (int64_t i = 0; i < n; ++i) to[i] = philox::converted<T>(values[i]);
    };
  });
  return store;
}

class Philox final : public GeneratorImpl {
 public:
  explicit Philox(int64_t threads) : threads_(threads) {}
  Philox(const Philox& o) : GeneratorImpl(), threads_(o.threads_), seed_(o.seed_), offset_(o.offset_) {
    device = o.device;
  }

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
    SF_CHECK(bytes.size() == 16, "Generator.set_state: a CUDA state has 16 bytes (seed and offset), got ",
             bytes.size());
    uint64_t offset;
    std::memcpy(&offset, bytes.data() + 8, 8);
    SF_CHECK(offset % 4 == 0, "Generator.set_state: the offset must be a multiple of 4, got ", offset);
    std::lock_guard guard(lock_);
    std::memcpy(&seed_, bytes.data(), 8);
    offset_ = offset;
  }

  void uniform(DType t, void* p, int64_t n, double low, double high) override {
    fill(PhiloxDraw{What::Uniform, t, low, high, 0, 0, p, n});
  }
  void normal(DType t, void* p, int64_t n, double mean, double std, bool) override {
    fill(PhiloxDraw{What::Normal, t, mean, std, 0, 0, p, n});
  }
  void exponential(DType t, void* p, int64_t n, double lambda) override {
    fill(PhiloxDraw{What::Exponential, t, lambda, 0, 0, 0, p, n});
  }
  void integers(DType t, void* p, int64_t n, uint64_t range, int64_t base) override {
    fill(integers_draw(t, range, base, p, n));
  }
  void integers_full(DType t, void* p, int64_t n) override {
    fill(PhiloxDraw{What::WideIntegers, t, 0, 0, 0, 0, p, n});
  }
  void integers_natural(DType t, void* p, int64_t n) override { fill(natural_draw(t, p, n)); }
  void bernoulli(DType t, void* p, int64_t n, double probability) override {
    fill(PhiloxDraw{What::Bernoulli, t, probability, 0, 0, 0, p, n});
  }
  void bernoulli(DType t, void* p, int64_t n, DType probability_dtype, const void* probability) override {
    philox::Stream stream(take(philox::kChancesCounters));
    const Store store = store_of(t);
    visit_floating("bernoulli", probability_dtype, [&](auto q) {
      auto* chance = static_cast<const decltype(q)*>(probability);
      parallel_for((n + 3) / 4, 1024, [&](int64_t b, int64_t e) {
        int64_t values[kDraws];
        for (int64_t first = 4 * b, end = std::min(n, 4 * e); first < end; first += kDraws) {
          const int64_t count = std::min(kDraws, end - first);
          for (int64_t i = 0; i < count; i += 4) {
            Words w = stream.words(0, uint64_t(first + i) / 4);
            for (int64_t j = i; j < std::min(count, i + 4); ++j) {
              const auto c = philox::value_of(chance[first + j]);
              values[j] = t == kFloat64 ? philox::happens(w, j, double(c)) : philox::happens(w, j, float(c));
            }
          }
          store(p, first, values, count);
        }
      });
    });
  }

  void permutation(int64_t* p, int64_t n) override {
    if (n <= 0) return;
    int bits = philox::key_bits(n);
    if (bits <= 32) permute<int32_t>(kInt32, bits, p, n);
    else permute<int64_t>(kInt64, bits, p, n);
  }

 private:
  template <class K> void permute(DType t, int bits, int64_t* p, int64_t n) {
    std::vector<K> drawn(static_cast<size_t>(n)), keys(static_cast<size_t>(n));
    K low = std::numeric_limits<K>::min();
    integers(t, drawn.data(), n, uint64_t(std::numeric_limits<K>::max()) - uint64_t(low), low);
    if (bits < int(8 * sizeof(K)))
      for (K& k : drawn) k &= K((uint64_t(1) << bits) - 1);
    for (int64_t i = 0; i < n; ++i) p[i] = i;
    std::stable_sort(p, p + n, [&](int64_t a, int64_t b) { return drawn[size_t(a)] < drawn[size_t(b)]; });
    for (int64_t i = 0; i < n; ++i) keys[size_t(i)] = drawn[size_t(p[i])];
    philox::Stream stream(take(uint64_t(n + 3) / 4));
    for (int64_t i = 0; i < n; ++i) philox::shuffle_equals(stream, keys.data(), p, n, i);
  }

  static uint64_t natural_range(DType t) {
    constexpr int8_t bits[kNumDTypes] = {8, 7, 15, 31, 63, 11, 24, 53, 1, 8, -1, -1};
    SF_CHECK_AS(TypeError, bits[int(t)] > 0, "random_: ", t, " is storage only");
    return (uint64_t(1) << bits[int(t)]) + (is_floating(t) ? 1 : 0);
  }

  // As many threads as torch's launch has: at most what the device runs at once, where there is one.
  int64_t most_threads() const {
    if (threads_ > 0 || !device.is_cuda() || !backend_available(device.type)) return threads_;
    const DeviceProperties& p = accelerator(device).properties(device.index < 0 ? 0 : device.index);
    return int64_t(p.multiprocessors) * (p.threads_per_multiprocessor / 256) * 256;
  }
  struct Launch {
    int64_t threads, rounds;
  };
  Launch launch_of(int64_t n, int lanes) const {
    int64_t threads = (n + 255) / 256 * 256, most = most_threads();
    if (most > 0) threads = std::min(threads, most);
    return {threads, (n - 1) / (threads * lanes) + 1};
  }

  // f(words, start, step, b, e) for threads b .. e of every round: words(t) are the four words of thread t, of which
  // `lanes` numbers are made; those of lane i are the elements from start + i * step + t on.
  template <class F> void each_round(int64_t n, int lanes, const F& f) {
    if (n <= 0) return;
    Launch l = launch_of(n, lanes);
    philox::Stream stream(take(uint64_t(l.rounds)));
    for (int64_t round = 0; round < l.rounds; ++round) {
      auto words = [&](int64_t t) { return stream.words(uint64_t(round), uint64_t(t)); };
      const int64_t start = round * l.threads * lanes;
      parallel_for(std::min(l.threads, n - start), 1024,
                   [&](int64_t b, int64_t e) { f(words, start, l.threads, b, e); });
    }
  }

  // A draw in host memory.
  void fill(const PhiloxDraw& d) {
    if (d.what == What::Uniform || d.what == What::Normal || d.what == What::Exponential)
      visit_floating("random", d.dtype, [](auto) {});
    philox::visit_numbers(d, [&](auto numbers) {
      constexpr int lanes = decltype(numbers)::lanes;
      using Value = decltype(numbers(0, Words{}));
      each_round(d.n, lanes, [&](const auto& words, int64_t start, int64_t step, int64_t b, int64_t e) {
        if constexpr (std::is_same_v<Value, int64_t>) {
          const Store store = store_of(d.dtype);
          int64_t values[lanes][kDraws];
          for (int64_t first = b; first < e; first += kDraws) {
            const int64_t count = std::min(kDraws, e - first);
            for (int64_t t = 0; t < count; ++t) {
              const Words w = words(first + t);
              for (int lane = 0; lane < lanes; ++lane) values[lane][t] = numbers(lane, w);
            }
            for (int lane = 0; lane < lanes; ++lane) {
              const int64_t at = start + lane * step + first;
              store(d.out, at, values[lane], std::min(count, d.n - at));  // of the last round, some are past the end
            }
          }
        } else {
          for (int64_t t = b; t < e; ++t) {
            const Words w = words(t);
            for (int lane = 0; lane < lanes; ++lane)
              if (int64_t i = start + lane * step + t; i < d.n) static_cast<Value*>(d.out)[i] = numbers(lane, w);
          }
        }
      });
    });
  }

 public:
  static PhiloxDraw integers_draw(DType t, uint64_t range, int64_t base, void* p, int64_t n) {
    return {range >= (uint64_t(1) << 28) ? What::WideIntegers : What::Integers, t, 0, 0, range, base, p, n};
  }
  static PhiloxDraw natural_draw(DType t, void* p, int64_t n) {
    return {t == kInt64 || t == kFloat64 ? What::WideIntegers : What::Integers, t, 0, 0, natural_range(t), 0, p, n};
  }
  void reserve(PhiloxDraw& d) {
    int64_t lanes = 4;
    philox::visit_numbers(d, [&](auto numbers) { lanes = decltype(numbers)::lanes; });
    Launch l = launch_of(d.n, int(lanes));
    d.threads = l.threads, d.rounds = l.rounds;
    d.place = take(uint64_t(l.rounds));
  }
  PhiloxPlace take(uint64_t counters) {
    std::lock_guard guard(lock_);
    cuda::CudaGraph* graph = cuda::CudaGraph::recording();
    if (graph && graph->device() == device) return place_at_replay(*graph, counters);
    PhiloxPlace place{seed_, offset_ / 4};
    offset_ += 4 * counters;
    return place;
  }

 private:
  // Capturing draws nothing: each replay takes the numbers that the calls would have taken then.
  PhiloxPlace place_at_replay(cuda::CudaGraph& graph, uint64_t counters) {
    std::shared_ptr<uint64_t> drawn = graph_ == &graph ? drawn_.lock() : nullptr;
    if (!drawn) {
      drawn = std::make_shared<uint64_t>(0);
      graph_ = &graph;
      drawn_ = drawn;
    }
    PhiloxPlace place;
    place.counter = *drawn;
    *drawn += counters;
    place.replay = graph.words_before_replay(this, [self = Ref<Philox>(this), drawn] {
      std::lock_guard guard(self->lock_);
      uint64_t counter = self->offset_ / 4;
      self->offset_ += 4 * *drawn;
      return std::pair(self->seed_, counter);
    });
    return place;
  }

  int64_t threads_;
  uint64_t seed_ = kDefaultSeed, offset_ = 0;
  mutable std::mutex lock_;
  const cuda::CudaGraph* graph_ = nullptr;  // that last captured a draw
  std::weak_ptr<uint64_t> drawn_;           // rounds of all draws in it; gone when it forgets its capture
};

}  // namespace

Generator make_philox(int64_t threads) { return Generator(new Philox(threads)); }

PhiloxDraw philox_integers(DType t, uint64_t range, int64_t base) {
  return Philox::integers_draw(t, range, base, nullptr, 0);
}
PhiloxDraw philox_natural_integers(DType t) { return Philox::natural_draw(t, nullptr, 0); }

bool reserve_philox(const Generator& g, PhiloxDraw& draw) {
  auto* philox = dynamic_cast<Philox*>(g.get());
  if (philox) philox->reserve(draw);
  return philox != nullptr;
}

std::optional<PhiloxPlace> reserve_philox(const Generator& g, uint64_t counters) {
  auto* philox = dynamic_cast<Philox*>(g.get());
  if (!philox) return {};
  return philox->take(counters);
}

}  // namespace sf
