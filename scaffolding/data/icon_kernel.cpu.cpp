// icon_kernel.h on the CPU. Compiled without contraction (cmake/sources.cmake).
#include "scaffolding/data/icon_kernel.h"

namespace sf::data {
namespace SF_ISA {

typedef float Pixel __attribute__((vector_size(16)));
typedef int32_t PixelInts __attribute__((vector_size(16)));
typedef uint8_t PixelBytes __attribute__((vector_size(4)));

SF_INLINE Pixel load(const float* p) {
  Pixel v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
SF_INLINE void store(float* p, Pixel v) { __builtin_memcpy(p, &v, sizeof v); }
SF_INLINE Pixel every(float v) { return Pixel{v, v, v, v}; }

static void weight(const WeightPixels& a) {
  for (int64_t i = 0; i < a.pixels; ++i) {
    PixelBytes bytes;
    __builtin_memcpy(&bytes, a.in + 4 * i, 4);
    const Pixel v = __builtin_convertvector(bytes, Pixel);
    store(a.out + 4 * i, v * Pixel{v[3], v[3], v[3], 255} / 255);
  }
}

static void put_whole(const PutPixels& a) {
  const auto x0 = int64_t(a.x), y0 = int64_t(a.y);
  for (int64_t y = a.top; y < a.bottom; ++y)
    for (int64_t x = a.left; x < a.right; ++x) {
      const Pixel from = load(a.icon + 4 * ((y - y0) * a.width + x - x0));
      float* to = a.canvas + 4 * (y * a.size + x);
      store(to, from + load(to) * (1 - from[3] / 255));
    }
}

// Bilinear, at the edge: what lies outside is transparent.
static Pixel at_edge(const PutPixels& a, int32_t x0, int32_t y0, float fx, float fy) {
  Pixel out{};
  for (int dy = 0; dy < 2; ++dy)
    for (int dx = 0; dx < 2; ++dx) {
      const int64_t x = x0 + dx, y = y0 + dy;
      if (x < 0 || y < 0 || x >= a.width || y >= a.height) continue;
      out += (dx ? fx : 1 - fx) * (dy ? fy : 1 - fy) * load(a.icon + 4 * (y * a.width + x));
    }
  return out;
}

SF_INLINE float at_most(float v, float least, float most) { return v < least ? least : v > most ? most : v; }

static void put(const PutPixels& a) {
  if (a.samples == 0) return put_whole(a);
  constexpr int64_t kPixels = 16, kSamples = 8;
  const int n = a.samples;
  const float part = 1 / float(n * n);
  const auto width = float(a.width), height = float(a.height);
  const double half_width = 0.5 * double(a.width), half_height = 0.5 * double(a.height), sign = a.mirrored ? -1 : 1;
  double along_u[kPixels * kSamples], along_v[kPixels * kSamples];
  float fx[kPixels * kSamples], fy[kPixels * kSamples];
  int32_t x0[kPixels * kSamples], y0[kPixels * kSamples];
  for (int64_t first = a.left; first < a.right; first += kPixels) {
    const int64_t pixels = a.right - first < kPixels ? a.right - first : kPixels, count = pixels * n;
    for (int64_t i = 0, p = 0; p < pixels; ++p)
      for (int sx = 0; sx < n; ++sx, ++i) {
        const double dx = double(first + p) + (sx + 0.5) / n - a.x;
        along_u[i] = a.cosine * dx;
        along_v[i] = a.sine * dx;
      }
    for (int64_t y = a.top; y < a.bottom; ++y) {
      Pixel sums[kPixels] = {};
      for (int sy = 0; sy < n; ++sy) {
        const double dy = double(y) + (sy + 0.5) / n - a.y, down_u = a.sine * dy, down_v = a.cosine * dy;
        for (int64_t i = 0; i < count; ++i) {
          const double u = sign * ((along_u[i] + down_u) / a.scale), v = (down_v - along_v[i]) / a.scale;
          const float px = float(u + half_width) - 0.5f, py = float(v + half_height) - 0.5f;
          const float left = __builtin_floorf(px), top = __builtin_floorf(py);
          fx[i] = px - left;
          fy[i] = py - top;
          x0[i] = int32_t(at_most(left, -2, width));
          y0[i] = int32_t(at_most(top, -2, height));
        }
        const int32_t right = int32_t(a.width) - 1, bottom = int32_t(a.height) - 1;
        for (int64_t i = 0, p = 0; p < pixels; ++p)
          for (int sx = 0; sx < n; ++sx, ++i) {
            if (uint32_t(x0[i]) < uint32_t(right) && uint32_t(y0[i]) < uint32_t(bottom)) {
              const float* above = a.icon + 4 * (int64_t(y0[i]) * a.width + x0[i]);
              const float* below = above + 4 * a.width;
              const Pixel r = every(fx[i]), l = 1 - r, b = every(fy[i]), t = 1 - b;
              sums[p] += t * (l * load(above) + r * load(above + 4)) + b * (l * load(below) + r * load(below + 4));
            } else if (x0[i] >= -1 && y0[i] >= -1 && x0[i] <= right && y0[i] <= bottom) {
              sums[p] += at_edge(a, x0[i], y0[i], fx[i], fy[i]);
            }
          }
      }
      for (int64_t p = 0; p < pixels; ++p) {
        if (sums[p][3] == 0) continue;
        float* to = a.canvas + 4 * (y * a.size + first + p);
        store(to, sums[p] * part + load(to) * (1 - sums[p][3] * part / 255));
      }
    }
  }
}

static void canvas_bytes(const CanvasPixels& a) {
  for (int64_t i = 0; i < a.pixels; ++i) {
    Pixel v = load(a.in + 4 * i);
    v = v < 0 ? Pixel{} : v;
    v = v > 255 ? every(255) : v;
    const PixelInts down = __builtin_convertvector(v, PixelInts);  // halves are rounded up, exactly
    const PixelInts up = down - PixelInts(v - __builtin_convertvector(down, Pixel) >= 0.5f);
    for (int c = 0; c < 3; ++c) a.out[3 * i + c] = uint8_t(up[c]);
  }
}

SF_KERNEL(icon_weight, DeviceType::CPU, "native", SF_ISA_PRIORITY, weight, nullptr)
SF_KERNEL(icon_put, DeviceType::CPU, "native", SF_ISA_PRIORITY, put, nullptr)
SF_KERNEL(icon_canvas_bytes, DeviceType::CPU, "native", SF_ISA_PRIORITY, canvas_bytes, nullptr)

}  // namespace SF_ISA
}  // namespace sf::data
