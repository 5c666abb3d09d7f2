// SampleRandom: the random numbers of one sample's transforms (SplitMix64, Steele et al. 2014).
// Seeded by epoch and sample, so that augmentation does not depend on which worker gets the sample or when.
// A value; one thread at a time.
#pragma once
#include <cstdint>

namespace sf::data {

class SampleRandom {
 public:
  explicit SampleRandom(uint64_t seed) : state_(seed) {}
  // The stream of the sample `index` at `position` of the epoch whose seed is `epoch_seed`.
  SampleRandom(uint64_t epoch_seed, uint64_t index, uint64_t position) : state_(epoch_seed) {
    state_ = next() + index;
    state_ = next() + position;
  }
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
  }
  double uniform() { return double(next() >> 11) * 0x1p-53; }  // [0, 1)
  int64_t below(int64_t n) { return int64_t((static_cast<unsigned __int128>(next()) * uint64_t(n)) >> 64); }

 private:
  uint64_t state_;
};

}  // namespace sf::data
