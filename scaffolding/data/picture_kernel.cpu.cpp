// picture_kernel.h on the CPU.
#include "scaffolding/data/picture_kernel.h"

namespace sf::data {
namespace SF_ISA {

using Bytes4 = uint8_t __attribute__((vector_size(4), aligned(1), may_alias));
using Ints4 = int32_t __attribute__((vector_size(16)));
using Bytes16 = uint8_t __attribute__((vector_size(16), aligned(1), may_alias));
using Ints16 = int32_t __attribute__((vector_size(64)));

constexpr int kBits = 22;

SF_INLINE uint8_t clip(int32_t v) {
  v >>= kBits;
  return uint8_t(v < 0 ? 0 : v > 255 ? 255 : v);
}

template <int C> SF_INLINE void column_plain(const uint8_t* in, uint8_t* out, const int32_t* w, int n) {
  for (int c = 0; c < C; ++c) {
    int32_t sum = 1 << (kBits - 1);
    for (int k = 0; k < n; ++k) sum += in[k * C + c] * w[k];
    out[c] = clip(sum);
  }
}
// Four bytes at a time; with three channels the fourth belongs to the next pixel and is dropped.
template <int C> SF_INLINE void column_wide(const uint8_t* in, uint8_t* out, const int32_t* w, int n) {
  Ints4 sum = {1 << (kBits - 1), 1 << (kBits - 1), 1 << (kBits - 1), 1 << (kBits - 1)};
  for (int k = 0; k < n; ++k) sum += __builtin_convertvector(*reinterpret_cast<const Bytes4*>(in + k * C), Ints4) * w[k];
  for (int c = 0; c < C; ++c) out[c] = clip(sum[c]);
}

template <int C> static void along_columns(const ResizePass& a) {
  for (int64_t y = 0; y < a.rows; ++y) {
    const uint8_t* in = a.in + y * a.in_size * C;
    uint8_t* out = a.out + y * a.out_size * C;
    for (int64_t x = 0; x < a.out_size; ++x, out += C) {
      const int32_t* w = a.weight + x * a.taps;
      // The last pixel of the picture has no byte behind it to read.
      bool wide = C == 4 || (C == 3 && (y + 1 < a.rows || a.first[x] + a.count[x] < a.in_size));
      if (wide) column_wide<C>(in + a.first[x] * C, out, w, a.count[x]);
      else column_plain<C>(in + a.first[x] * C, out, w, a.count[x]);
    }
  }
}

static void along_rows(const ResizePass& a) {
  int64_t row = a.rows * a.channels;
  for (int64_t y = 0; y < a.out_size; ++y) {
    const uint8_t* in = a.in + a.first[y] * row;
    uint8_t* out = a.out + y * row;
    const int32_t* w = a.weight + y * a.taps;
    int64_t i = 0;
    for (; i + 16 <= row; i += 16) {
      Ints16 sum = Ints16{} + (1 << (kBits - 1));
      for (int k = 0; k < a.count[y]; ++k) sum += __builtin_convertvector(*reinterpret_cast<const Bytes16*>(in + k * row + i), Ints16) * w[k];
      sum >>= kBits;
      sum = sum < 0 ? Ints16{} : sum;
      sum = sum > 255 ? Ints16{} + 255 : sum;
      *reinterpret_cast<Bytes16*>(out + i) = __builtin_convertvector(sum, Bytes16);
    }
    for (; i < row; ++i) {
      int32_t sum = 1 << (kBits - 1);
      for (int k = 0; k < a.count[y]; ++k) sum += in[k * row + i] * w[k];
      out[i] = clip(sum);
    }
  }
}

static void resize(const ResizePass& a) {
  if (a.along_rows) return along_rows(a);
  switch (a.channels) {
    case 1: return along_columns<1>(a);
    case 2: return along_columns<2>(a);
    case 3: return along_columns<3>(a);
    default: return along_columns<4>(a);
  }
}

template <int C> static void to_float_of(const PixelsToFloat& a) {
  for (int c = 0; c < C; ++c) {
    const uint8_t* in = a.in + c;
    float* out = a.out + c * a.pixels;
    float scale = a.scale[c], shift = a.shift[c];
    for (int64_t i = 0; i < a.pixels; ++i) out[i] = float(in[i * C]) * scale + shift;
  }
}
static void to_float(const PixelsToFloat& a) {
  switch (a.channels) {
    case 1: return to_float_of<1>(a);
    case 2: return to_float_of<2>(a);
    case 3: return to_float_of<3>(a);
    default: return to_float_of<4>(a);
  }
}

template <int C> static void composite_of(const CompositePixels& a) {
  for (int64_t i = 0; i < a.pixels; ++i) {
    const uint8_t* in = a.in + i * C;
    uint8_t* out = a.out + i * (C - 1);
    int alpha = in[C - 1];
    for (int c = 0; c < C - 1; ++c) {
      int v = in[c] * alpha + a.colour[c] * (255 - alpha) + 128;
      out[c] = uint8_t((v + (v >> 8)) >> 8);  // v / 255, exactly
    }
  }
}
static void composite(const CompositePixels& a) { a.channels == 2 ? composite_of<2>(a) : composite_of<4>(a); }

SF_KERNEL(picture_resize, DeviceType::CPU, "native", SF_ISA_PRIORITY, resize, nullptr)
SF_KERNEL(picture_to_float, DeviceType::CPU, "native", SF_ISA_PRIORITY, to_float, nullptr)
SF_KERNEL(picture_composite, DeviceType::CPU, "native", SF_ISA_PRIORITY, composite, nullptr)

}  // namespace SF_ISA
}  // namespace sf::data
