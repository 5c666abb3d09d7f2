// silu(group_norm(x)) as int8 codes: what a convolution of int8 reads, without the normalised numbers in memory.
// SiLU grows with its argument wherever its result is above what it is below zero at most. So the largest result is
// that of the largest argument, which costs two operations a number; the results themselves are computed once.
#include "scaffolding/backend/cpu/simd_math.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/core/scratch.h"
#include "scaffolding/ops/group_norm/fold_item.h"
#include "scaffolding/ops/quantize/int8_lanes.h"

namespace sf {
namespace SF_ISA {

constexpr float kMostBelowZero = 0.27846455f;  // -silu(-1.2784645)

SF_INLINE vf silu(vf x) { return x * sigmoid(x); }

// f(i, count) for vectors of n numbers.
template <class F> SF_INLINE void each_vector(int64_t n, const F& f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(i, kLanes);
  if (i < n) f(i, int(n - i));
}

// The largest of `rows` rows' arguments, and NaN where one is not finite; with `after`, of magnitudes of results. Lanes
// past the last channel are 0: where all arguments are below it, their results have to be looked at anyway.
template <bool kAfter, class T>
static float largest_of(const T* x, int64_t rows, int64_t channels, const float* gain, const float* offset) {
  vf largest(kAfter ? 0.f : -__builtin_inff()), wrong(0.f);  // wrong: NaN once something is not finite
  for (int64_t r = 0; r < rows; ++r, x += channels)
    each_vector(channels, [&](int64_t c, int n) {
      const vf z = load_n(x + c, n) * load_n(gain + c, n) + load_n(offset + c, n);
      wrong += z - z;
      largest = max(largest, kAfter ? abs(silu(z)) : z);
    });
  return reduce_add(wrong) == 0 ? reduce_max(largest) : __builtin_nanf("");
}

template <class T> static void quantize_normed(const Int8NormQuantize& q) {
  const int64_t pictures = q.x.sizes[0], rows = q.x.sizes[1], channels = q.x.sizes[2];
  const int64_t step = channels < 32768 ? 32768 / channels : 1, pieces = (rows + step - 1) / step;
  const T* x = q.x.as<const T>();
  int8_t* codes = q.codes.as<int8_t>();
  float* most = q.most.as<float>();
  float* gains = static_cast<float*>(scratch(size_t(pictures * (2 * channels + pieces)) * sizeof(float), 0));
  float* largest = gains + pictures * 2 * channels;
  for (int64_t p = 0; p < pictures; ++p)
    fold_item(q.mean.as<const float>() + p * q.groups, q.rstd.as<const float>() + p * q.groups,
              q.weight.as<const float>(), q.bias.as<const float>(), channels, q.groups, 1, gains + p * 2 * channels,
              gains + (p * 2 + 1) * channels);
  // f(picture, first row, rows, gain, offset)
  auto each_piece = [&](const auto& f) {
    parallel_for(pictures * pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t p = i / pieces, r = i % pieces * step;
        const float* gain = gains + p * 2 * channels;
        f(p, r, rows - r < step ? rows - r : step, gain, gain + channels);
      }
    });
  };
  auto measure = [&](auto after) {
    each_piece([&](int64_t p, int64_t r, int64_t n, const float* gain, const float* offset) {
      largest[p * pieces + r / step] =
          largest_of<decltype(after)::value>(x + (p * rows + r) * channels, n, channels, gain, offset);
    });
    for (int64_t p = 0; p < pictures; ++p) most[p] = largest_of_all(largest + p * pieces, pieces);
  };
  measure(std::false_type());
  bool above = true;
  for (int64_t p = 0; p < pictures; ++p) {
    const float result = silu(vf(most[p]))[0];
    above &= !(result < kMostBelowZero);  // NaN: there is nothing to find
    most[p] = result;
  }
  if (!above) measure(std::true_type());
  each_piece([&](int64_t p, int64_t r, int64_t n, const float* gain, const float* offset) {
    const vf by(code_factor(most[p]));
    for (int64_t at = (p * rows + r) * channels, end = at + n * channels; at < end; at += channels)
      each_vector(channels, [&](int64_t c, int count) {
        const vf z = load_n(x + at + c, count) * load_n(gain + c, count) + load_n(offset + c, count);
        store_codes(codes + at + c, silu(z) * by, count);
      });
  });
}

static void run_int8_norm_quantize(const Int8NormQuantize& q) {
  switch (q.x.dtype) {
    case kBFloat16: return quantize_normed<BFloat16>(q);
    case kFloat16: return quantize_normed<Half>(q);
    default: return quantize_normed<float>(q);
  }
}

}  // namespace SF_ISA

SF_KERNEL(int8_norm_quantize, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_int8_norm_quantize, nullptr)

}  // namespace sf
