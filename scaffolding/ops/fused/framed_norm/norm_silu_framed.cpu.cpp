// A line of a picture is read once; what shows it again is copied while it is in the cache.
#include <cstring>

#include "scaffolding/backend/cpu/simd_math.h"
#include "scaffolding/backend/cpu/simd_rows.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/fused/framed_norm/kernel.h"

namespace sf {
namespace SF_ISA {
namespace {

// f(c, n): n channels from c on, whole vectors first.
template <class F> SF_INLINE void for_lanes(int64_t channels, const F& f) {
  int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) f(c, kLanes);
  if (c < channels) f(c, int(channels - c));
}

template <class T>
SF_INLINE void norm_pixel(const T* x, T* y, int64_t C, float eps, const float* scale, const float* shift) {
  const float squares = sum_vectors<T>(
      C, [&](int64_t c, int n) __attribute__((always_inline)) {
        const vf v = load_n(x + c, n);
        return v * v;
      });
  const float rstd = 1.0f / __builtin_sqrtf(squares / float(C) + eps);
  for_lanes(
      C, [&](int64_t c, int n) __attribute__((always_inline)) {
        vf v = load_n(x + c, n) * rstd;
        if (scale) v = fma(v, load_n(scale + c, n) + 1.0f, load_n(shift + c, n));
        store_n(y + c, v * sigmoid(v), n);
      });
}

template <class T> void norm_frames(const FramedNormForward& a) {
  const int64_t C = a.x.sizes[1], frames = a.x.sizes[2], height = a.x.sizes[3], width = a.x.sizes[4];
  const int64_t all = a.y.sizes[2], line = a.y.sizes[4] * C, picture = a.y.sizes[3] * line, edge = a.border * C;
  parallel_for(a.x.sizes[0] * frames * height, (1 << 14) / (C * width) + 1, [=, &a](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / (frames * height), t = i / height % frames, h = i % height;
      const float *scale = a.scale ? a.scale.as<const float>() + n * C : nullptr,
                  *shift = a.scale ? a.shift.as<const float>() + n * C : nullptr;
      T *video = a.y.as<T>() + n * all * picture, *made = video + (a.before + t) * picture + (a.border + h) * line,
        *inner = made + edge;
      const T* x = a.x.as<const T>() + i * width * C;
      for (int64_t w = 0; w < width; ++w) norm_pixel(x + w * C, inner + w * C, C, float(a.eps), scale, shift);
      if (edge) {
        std::memcpy(made, inner + C, size_t(C) * sizeof(T));
        std::memcpy(inner + width * C, inner + (width - 2) * C, size_t(C) * sizeof(T));
      }
      const int64_t first = t == 0 ? 0 : a.before + t, last = t == frames - 1 ? all : a.before + t + 1;
      for (int64_t frame = first; frame < last; ++frame) {
        auto show = [&](int64_t at) {
          T* to = video + frame * picture + at * line;
          if (to != made) std::memcpy(to, made, size_t(line) * sizeof(T));
        };
        show(a.border + h);
        if (edge && h == 1) show(0);
        if (edge && h == height - 2) show(height + 1);
      }
    }
  });
}

void norm_cpu(const FramedNormForward& a) {
  switch (a.x.dtype) {
    case kBFloat16: return norm_frames<BFloat16>(a);
    case kFloat16: return norm_frames<Half>(a);
    default: return norm_frames<float>(a);
  }
}
bool supports(const FramedNormForward& a) {
  return a.x.dtype == kFloat32 || a.x.dtype == kBFloat16 || a.x.dtype == kFloat16;
}
SF_KERNEL(framed_norm_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, norm_cpu, supports)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
