// Filters of 12 taps. A task has a block of places of some channels: what lies between the filters is in the first
// cache.
#include "scaffolding/backend/cpu/simd.h"
#include "scaffolding/backend/cpu/simd_math.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/fused/filtered_snake/kernel.h"

namespace sf {
namespace SF_ISA {
namespace {

constexpr int kTaps = 12, kHalf = kTaps / 2;
constexpr int64_t kPlaces = 64;  // of a task

SF_INLINE int64_t within(int64_t i, int64_t n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }

// Places first .. first + count of `lanes` channels from x on. Of 2 t and 2 t + 1 the finer signal has taps of either
// parity, which see the places t - 3 .. t + 3.
template <class T>
SF_INLINE void filter_block(const T* x, T* y, int64_t length, int64_t channels, int64_t first, int64_t count, int lanes,
                            vf frequency, vf amplitude, const float* up, const float* down) {
  alignas(64) float fine[(2 * kPlaces + kTaps) * kLanes];
  const int64_t begin = 2 * first - (kHalf - 1), end = 2 * (first + count - 1) + kHalf + 1;  // of the finer signal
  const int64_t t0 = within(begin, 2 * length) / 2, t1 = within(end - 1, 2 * length) / 2 + 1;
  auto from = [&](int64_t t) { return load_n(x + within(t, length) * channels, lanes); };
  vf seen[7];  // t - 3 .. t + 3
  for (int i = 0; i < 6; ++i) seen[i + 1] = from(t0 - 3 + i);
  for (int64_t t = t0; t < t1; ++t) {
    for (int i = 0; i < 6; ++i) seen[i] = seen[i + 1];
    seen[6] = from(t + 3);
    // up[j + 5 - 2 s] at j = 2 t: odd taps of t - 3 .. t + 2; at j = 2 t + 1: even taps of t - 2 .. t + 3
    vf even = seen[0] * vf(up[11]), odd = seen[1] * vf(up[10]);
    for (int i = 1; i < 6; ++i) {
      even = fma(seen[i], vf(up[11 - 2 * i]), even);
      odd = fma(seen[i + 1], vf(up[10 - 2 * i]), odd);
    }
    const vf s0 = sin(even * frequency), s1 = sin(odd * frequency);
    const int64_t at = 2 * t - begin;
    if (at >= 0) store(fine + at * kLanes, fma(s0 * s0, amplitude, even));
    if (at + 1 < end - begin) store(fine + (at + 1) * kLanes, fma(s1 * s1, amplitude, odd));
  }
  for (int64_t j = begin; j < 0; ++j) store(fine + (j - begin) * kLanes, load(fine - begin * kLanes));
  for (int64_t j = 2 * length; j < end; ++j)
    store(fine + (j - begin) * kLanes, load(fine + (2 * length - 1 - begin) * kLanes));
  for (int64_t i = 0; i < count; ++i) {
    const float* at = fine + 2 * i * kLanes;
    vf a = load(at) * vf(down[0]), b = load(at + kLanes) * vf(down[1]);
    for (int k = 2; k < kTaps; k += 2) {
      a = fma(load(at + k * kLanes), vf(down[k]), a);
      b = fma(load(at + (k + 1) * kLanes), vf(down[k + 1]), b);
    }
    store_n(y + (first + i) * channels, a + b, lanes);
  }
}

template <class T> void filtered(const FilteredSnake& a) {
  const int64_t batch = a.x.sizes[0], channels = a.x.sizes[1], length = a.x.sizes[2];
  const int64_t strips = (channels + kLanes - 1) / kLanes, blocks = (length + kPlaces - 1) / kPlaces;
  float up[kTaps];
  for (int k = 0; k < kTaps; ++k) up[k] = 2 * a.up.as<const float>()[k];
  const float* down = a.down.as<const float>();
  parallel_for(batch * blocks * strips, 4, [&](int64_t from, int64_t to) {
    for (int64_t task = from; task < to; ++task) {
      const int64_t c = task % strips * kLanes, first = task / strips % blocks * kPlaces, n = task / strips / blocks;
      const int64_t count = length - first < kPlaces ? length - first : kPlaces;
      const int lanes = int(channels - c < kLanes ? channels - c : kLanes);
      const vf frequency = load_n(a.frequency.as<const float>() + c, lanes),
               amplitude = load_n(a.amplitude.as<const float>() + c, lanes);
      const T* x = a.x.as<const T>() + n * length * channels + c;
      T* y = a.y.as<T>() + n * length * channels + c;
      if (lanes == kLanes) filter_block(x, y, length, channels, first, count, kLanes, frequency, amplitude, up, down);
      else filter_block(x, y, length, channels, first, count, lanes, frequency, amplitude, up, down);
    }
  });
}

void filtered_snake_cpu(const FilteredSnake& a) {
  switch (a.x.dtype) {
    case kBFloat16: return filtered<BFloat16>(a);
    case kFloat16: return filtered<Half>(a);
    default: return filtered<float>(a);
  }
}
bool filtered_snake_supports(const FilteredSnake& a) {
  return a.up.sizes[0] == kTaps && (a.x.dtype == kFloat32 || a.x.dtype == kBFloat16 || a.x.dtype == kFloat16);
}
SF_KERNEL(filtered_snake_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, filtered_snake_cpu,
          filtered_snake_supports)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
