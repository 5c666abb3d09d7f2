// Generator: a seeded stream of random numbers that equals torch's for the same seed.
//   Generator("cpu")                      torch's CPU stream: mt19937 and its Box-Muller block algorithm
//   Generator("cpu", "cuda", threads)     torch's CUDA stream (Philox4x32-10), computed on the CPU; `threads` is the number
//                                         of GPU threads the original launch had (results depend on it for n > threads)
// Shared by handle. Locked: two threads may draw from one generator, in an order that is then up to them.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "scaffolding/core/device.h"
#include "scaffolding/core/ref.h"

namespace sf {

class GeneratorImpl : public RefCounted {
 public:
  virtual ~GeneratorImpl() = default;
  Device device;
  std::mutex lock;
  uint64_t seed = 0;

  virtual const char* algorithm() const = 0;           // "mt19937" or "philox"
  virtual void manual_seed(uint64_t seed) = 0;
  virtual std::vector<uint8_t> get_state() const = 0;  // opaque; set_state of the same algorithm restores it
  virtual void set_state(const std::vector<uint8_t>& state) = 0;

  // Fill p[0..n) in order, exactly as torch fills a contiguous tensor. Types: see ops/random.
  virtual void uniform(float* p, int64_t n) = 0;                        // [0, 1)
  virtual void uniform(double* p, int64_t n) = 0;
  virtual void normal(float* p, int64_t n) = 0;                         // mean 0, std 1
  virtual void normal(double* p, int64_t n) = 0;
  virtual void random(int64_t* p, int64_t n, uint64_t range) = 0;       // [0, range); range 0 means all 64 bits
  static void destroy(GeneratorImpl* g) { delete g; }
};
using Generator = Ref<GeneratorImpl>;

Generator make_generator(Device device = {}, const std::string& algorithm = "", int64_t threads = 0);
Generator default_generator(Device device = {});   // seeded with default_seed, as torch
void manual_seed(uint64_t seed);                   // every default generator
inline constexpr uint64_t kDefaultSeed = 67280421310721ull;

}  // namespace sf
