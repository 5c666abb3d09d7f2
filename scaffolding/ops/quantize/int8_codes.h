// Numbers to codes of int8, by loops that are compiled once, for the plainest processor, so that what is rounded is
// rounded alike everywhere.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace sf {

// Sums of so many products of two codes fit an int32.
constexpr int64_t kMostSummed = (int64_t(1) << 31) / (127 * 127) - 1;

// The largest magnitude of n numbers; NaN where one is not finite.
inline float largest_magnitude(const float* x, int64_t n) {
  float largest = 0, not_finite = 0;
  for (int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::fabs(x[i]));
    not_finite += x[i] - x[i];  // NaN for what is not finite
  }
  return not_finite == 0 ? largest : NAN;
}
// What numbers of that largest magnitude are multiplied by to be codes. 0, which makes all of them 0, where 127 over it
// is infinite: its numbers are 0 in every dtype that matters.
inline float code_factor(float largest) {
  const float by = largest > 0 ? 127.f / largest : 0.f;
  return std::isfinite(by) ? by : 0.f;
}
// The nearest whole numbers, half to even: what adding 1.5 * 2^23 leaves in the lowest bits.
inline void to_codes(const float* x, int64_t n, float by, int8_t* codes) {
  for (int64_t i = 0; i < n; ++i) codes[i] = int8_t(int32_t((x[i] * by + 12582912.f) - 12582912.f));
}

}  // namespace sf
