// Generator: a seeded stream of random numbers that equals torch's for the same seed.
//   make_generator("cpu")                    torch's CPU stream: mt19937, and Box-Muller in blocks of sixteen
//   make_generator("cpu", "cuda", threads)   torch's CUDA stream (Philox4x32-10), computed on the CPU. A launch of n
//                                            elements had min(ceil(n / 256) * 256, threads) GPU threads, and results
//                                            depend on that number; 0 means as many as there are elements
// Shared by handle. Locked: two threads may draw from one generator, in an order that is then up to them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "scaffolding/core/device.h"
#include "scaffolding/core/dtype.h"
#include "scaffolding/core/ref.h"

namespace sf {

class GeneratorImpl : public RefCounted {
 public:
  virtual ~GeneratorImpl() = default;
  Device device;

  virtual const char* algorithm() const = 0;    // "mt19937" or "philox"
  virtual void manual_seed(uint64_t seed) = 0;  // also forgets what is cached
  virtual uint64_t initial_seed() const = 0;
  uint64_t seed();  // seeds from the system's entropy and returns that seed
  // The bytes of torch.Generator.get_state(), so that states travel both ways. ValueError for bytes of another kind.
  virtual std::vector<uint8_t> get_state() const = 0;
  virtual void set_state(const std::vector<uint8_t>& state) = 0;
  virtual Ref<GeneratorImpl> clone() const = 0;

  // ---- draws: fill p[0..n), of the given dtype, as torch fills a contiguous tensor
  virtual void uniform(DType t, void* p, int64_t n, double low, double high) = 0;  // floating; [low, high)
  // `one_by_one`: as torch does for tensors that are not contiguous, whatever n is.
  virtual void normal(DType t, void* p, int64_t n, double mean, double std, bool one_by_one = false) = 0;
  virtual void integers(DType t, void* p, int64_t n, uint64_t range, int64_t base) = 0;  // base + [0, range)
  virtual void integers_full(DType t, void* p, int64_t n) = 0;                           // all 64 bits
  virtual void integers_natural(DType t, void* p, int64_t n) = 0;  // 0 .. what the dtype counts exactly
  virtual void bernoulli(DType t, void* p, int64_t n, double probability) = 0;
  virtual void bernoulli(DType t, void* p, int64_t n, DType probability_dtype, const void* probability) = 0;
  virtual void exponential(DType t, void* p, int64_t n, double lambda) = 0;
  virtual void permutation(int64_t* p, int64_t n) = 0;  // of 0 .. n-1

  static void destroy(GeneratorImpl* g) { delete g; }
};
using Generator = Ref<GeneratorImpl>;

// algorithm: "" (the device's own), "cpu" or "mt19937", "cuda" or "philox".
Generator make_generator(Device device = {}, const std::string& algorithm = "", int64_t threads = 0);
Generator default_generator(Device device = {});  // seeded with kDefaultSeed, as torch
void manual_seed(uint64_t seed);                  // every default generator
inline constexpr uint64_t kDefaultSeed = 67280421310721ull;

}  // namespace sf
