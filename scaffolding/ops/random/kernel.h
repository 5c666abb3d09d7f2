// Plain data between random numbers and their kernels.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// Box-Muller in place over blocks of sixteen uniforms, as torch's CPU generator does: with u = data[0..8) and
// v = data[8..16), r = sqrt(-2 ln(1 - u)), the block becomes r cos(2 pi v) in its first half, r sin(2 pi v) in its
// second, each times std plus mean. The polynomials are torch's, so that numbers agree bit for bit where the
// instruction set has fused multiply-add.
struct BoxMuller {
  float* data;
  int64_t blocks;
  float mean, std;
};
extern KernelTable<BoxMuller> box_muller_kernel;

// data[i] * (high - low) + low in place, rounded once: uniforms of [0, 1) become those of [low, high). What rounding
// has brought to `high` becomes `low`.
struct UniformRange {
  float* data;
  int64_t n;
  float low, high;
};
extern KernelTable<UniformRange> uniform_range_kernel;

// Where the numbers of a call lie in a Philox stream: from counter on, four words each.
struct PhiloxPlace {
  uint64_t seed = 0, counter = 0;
  // In a captured graph: {seed, counter} of the replay in device memory.
  // Then seed is unused and counter is added to that one.
  const uint64_t* replay = nullptr;
};

// n dense elements from torch's CUDA stream: see philox_numbers.h.
struct PhiloxDraw {
  // Uniform [a, b), Normal mean a and deviation b, Exponential rate a, Integers base + [0, range) of 32 bits,
  // WideIntegers of 64 (range 0: all), Bernoulli chance a.
  enum class What : uint8_t { Uniform, Normal, Exponential, Integers, WideIntegers, Bernoulli };
  What what = What::Uniform;
  DType dtype = kFloat32;
  double a = 0, b = 1;
  uint64_t range = 0;
  int64_t base = 0;
  void* out = nullptr;
  int64_t n = 0;
  // ---- filled in by the generator
  int64_t threads = 0, rounds = 0;
  PhiloxPlace place;
};
extern KernelTable<PhiloxDraw> philox_kernel;  // of devices, as the tables below; the CPU draws in philox.cpp

// out[i] = 1 with the chance of chances[i], else 0. Both dense; chances are float64 where out is, else float32.
struct PhiloxChances {
  TensorView out, chances;
  PhiloxPlace place;
};
extern KernelTable<PhiloxChances> philox_chances;

// out[r, s]: a category of row r, drawn by its weight. weights[r, c] add up to 1, running[r,
// c] are their running sums. All dense.
struct PhiloxCategories {
  TensorView out, weights, running;
  PhiloxPlace place;
};
extern KernelTable<PhiloxCategories> philox_categories;

// Shuffles those of order[n] among each other whose keys[n] are equal; keys are sorted, int32 or int64.
struct PhiloxShuffle {
  TensorView keys, order;
  PhiloxPlace place;
};
extern KernelTable<PhiloxShuffle> philox_shuffle;

}  // namespace sf
