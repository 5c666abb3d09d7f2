// One read of x and one write of y. A latent's numbers are combined with the norm's once for the pixels of a row that
// share it.
#include "scaffolding/backend/cpu/simd_math.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/core/scratch.h"
#include "scaffolding/ops/fused/spatial_norm/kernel.h"

namespace sf {
namespace SF_ISA {
namespace {

// f(c, n): n channels from c on, whole vectors first.
template <class F> SF_INLINE void for_channels(int64_t channels, const F& f) {
  int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) f(c, kLanes);
  if (c < channels) f(c, int(channels - c));
}

template <class T> void norm_videos(const SpatialNormForward& a) {
  const int64_t N = a.x.sizes[0], C = a.x.sizes[1], frames = a.x.sizes[2], height = a.x.sizes[3], width = a.x.sizes[4];
  const int64_t t = a.scale.sizes[2], h = a.scale.sizes[3], w = a.scale.sizes[4], apart = a.first_apart;
  const int64_t of_frame = (frames - apart) / (t - apart), down = height / h, across = width / w, wide = C / a.groups;
  // gain and offset of every channel: the norm as one multiplication and one addition
  float *gain = static_cast<float*>(scratch(size_t(2 * N * C) * 4, 1)), *offset = gain + N * C;
  for (int64_t i = 0; i < N * C; ++i) {
    const int64_t c = i % C, group = i / C * a.groups + c / wide;
    const double g = double(a.rstd.as<const float>()[group]) * double(a.weight.as<const float>()[c]);
    gain[i] = float(g);
    offset[i] = float(double(a.bias.as<const float>()[c]) - double(a.mean.as<const float>()[group]) * g);
  }
  parallel_for(N * frames * height, (1 << 14) / (C * width) + 1, [=, &a](int64_t begin, int64_t end) {
    float *factor = static_cast<float*>(scratch(size_t(2 * C) * 4, 2)), *base = factor + C;
    for (int64_t r = begin; r < end; ++r) {
      const int64_t n = r / (frames * height), time = r / height % frames;
      const int64_t frame = time < apart ? 0 : apart + (time - apart) / of_frame;
      const int64_t latent = ((n * t + frame) * h + r % height / down) * w * C;
      const T *x = a.x.as<const T>() + r * width * C, *scale = a.scale.as<const T>() + latent,
              *shift = a.shift.as<const T>() + latent;
      T* y = a.y.as<T>() + r * width * C;
      for (int64_t i = 0; i < w; ++i, scale += C, shift += C) {
        for_channels(
            C, [&](int64_t c, int k) __attribute__((always_inline)) {
              const vf s = load_n(scale + c, k);
              store_n(factor + c, s * load_n(gain + n * C + c, k), k);
              store_n(base + c, fma(s, load_n(offset + n * C + c, k), load_n(shift + c, k)), k);
            });
        for (int64_t p = 0; p < across; ++p, x += C, y += C)
          for_channels(
              C, [&](int64_t c, int k) __attribute__((always_inline)) {
                const vf v = fma(load_n(x + c, k), load_n(factor + c, k), load_n(base + c, k));
                store_n(y + c, v * sigmoid(v), k);
              });
      }
    }
  });
}

void norm_cpu(const SpatialNormForward& a) {
  switch (a.x.dtype) {
    case kBFloat16: return norm_videos<BFloat16>(a);
    case kFloat16: return norm_videos<Half>(a);
    default: return norm_videos<float>(a);
  }
}
bool supports(const SpatialNormForward& a) {
  return a.x.dtype == kFloat32 || a.x.dtype == kBFloat16 || a.x.dtype == kFloat16;
}
SF_KERNEL(spatial_norm_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, norm_cpu, supports)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
