// The tiles of a Winograd convolution between memory and the products: where they stand in a picture, how they are
// transformed on the way in, and how a tile of y is stored with bias, residual and activation.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/ops/conv/kernel.h"
#include "scaffolding/ops/conv/winograd_laid.h"
#include "scaffolding/ops/conv/winograd_product.h"

namespace sf {
namespace SF_ISA {

// Places of tiles in the pictures of one time: of a batch of pictures, or of the n-th frames of videos.
struct Tiles {
  int64_t batch, down, across, side;  // pixels of a tile's side
  SF_INLINE int64_t count() const { return batch * down * across; }
  SF_INLINE void place(int64_t tile, int64_t& n, int64_t& row, int64_t& col) const {
    col = tile % across * side;
    row = tile / across % down * side;
    n = tile / (across * down);
  }
};
SF_INLINE Tiles tiles_of(int64_t batch, int64_t height, int64_t width, int64_t side = kTile) {
  return {batch, ceil_div(height, side), ceil_div(width, side), side};
}
// Some of them, at all times: row t * count + i is the i-th place at time t. Then the tiles of other times are whole
// numbers of rows away, and a product over frames of a kernel reads its rows at as many starts.
struct Round {
  Tiles tiles;
  int64_t first, count;
};

template <class T> struct Image {  // channels-last
  const T* data;
  int64_t batch, height, width, channels, frames = 1;
  int64_t apart = 0;  // numbers from pixel to pixel, 0: the channels
  SF_INLINE int64_t pixel() const { return apart ? apart : channels; }
};

// Transformed tiles [point][c / block][tile][c % block]: the channels of one block are what a product reads,
// its tiles one after another.
struct Planes {
  float* data;
  int64_t plane, block, tiles;
  SF_INLINE float* at(int64_t tile, int64_t c) const {
    return data + c / block * tiles * block + tile * block + c % block;
  }
};
#if defined(__AVX512F__)
// For few tiles: [c / 16][tile / 4][point][tile % 4][c % 16].
struct FewPlanes {
  float* data;
  int64_t groups;
  static constexpr int64_t plane = kFewGroup * L;
  SF_INLINE float* at(int64_t tile, int64_t c) const {
    return data + (c / kFewChannels * groups + tile / kFewGroup) * kFewSums + tile % kFewGroup * L + c % kFewChannels;
  }
};
#endif

// B' d B of the input.
template <class Form> struct InputTiles {
  static constexpr int kSize = Form::kInput, kSide = Form::kInput;
  template <class From, class To> SF_INLINE static void in_two(const From& from, const To& to) {
    auto one = [](const vf(&a)[kSize], vf(&b)[kSide]) __attribute__((always_inline)) { Form::input(a, b); };
    Form::template in_two<kSize, kSide>(from, to, one);
  }
};
// A y A' of the gradient.
struct GradientTiles {
  static constexpr int kSize = kTile, kSide = kInput;
  template <class From, class To> SF_INLINE static void in_two(const From& from, const To& to) {
    auto one = [](const vf(&a)[kSize], vf(&b)[kSide]) __attribute__((always_inline)) { transform_gradient(a, b); };
    transform_2d<kSize, kSide>(from, to, one);
  }
};
// The tiles of a round; a tile starts at (row - pad, col - pad).
template <class Kind, class T, class P>
static void transform_tiles(const Image<T>& x, const Round& round, int64_t pad_y, int64_t pad_x, const P& out) {
  constexpr int kSize = Kind::kSize;
  parallel_for(round.count * x.frames, max64(1, 2048 / x.channels), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      int64_t n, r0, c0;
      round.tiles.place(round.first + t % round.count, n, r0, c0);
      r0 -= pad_y, c0 -= pad_x;
      n = n * x.frames + t / round.count;
      const int64_t pixel = x.pixel();
      const T* base = x.data + ((n * x.height + r0) * x.width + c0) * pixel;
      const bool inside = r0 >= 0 && c0 >= 0 && r0 + kSize <= x.height && c0 + kSize <= x.width;
      unsigned rows = 0, cols = 0;  // bit i: the i-th is in the image
      for (int i = 0; i < kSize; ++i) {
        rows |= unsigned(r0 + i >= 0 && r0 + i < x.height) << i;
        cols |= unsigned(c0 + i >= 0 && c0 + i < x.width) << i;
      }
      const int64_t down = x.width * pixel;
      for (int64_t ch = 0; ch < x.channels; ch += L) {
        float* to = out.at(t, ch);
        auto store_point = [&](int r, int c, vf v) { store(to + (r * Kind::kSide + c) * out.plane, v); };
        auto load_inside = [&](int r, int c) { return load(base + r * down + c * pixel + ch); };
        auto load_edge = [&](int r, int c) {
          return rows >> r & cols >> c & 1 ? load(base + r * down + c * pixel + ch) : vf(0.f);
        };
        if (inside) Kind::in_two(load_inside, store_point);
        else Kind::in_two(load_edge, store_point);
      }
    }
  });
}

// How a result is finished: scale * prelu(y, slopes) + residual_scale * residual + second. Pixels are so many numbers
// apart.
struct Finish {
  int64_t pixel, residual_pixel, second_pixel;
  const float *slopes, *second;  // [channels] or null; as the result, or null
  float scale, residual_scale;
};

template <class T> struct Output {
  T* data;
  int64_t height, width, channels;
  const void* bias;  // [channels] or null
  DType bias_type;
  const T* residual;  // as data, or null; may be data itself: a place is read before it is written
  Activation act;
  const float* shift = nullptr;  // [batch][channels] for all pixels alike, or null
  int64_t frames = 1;
  const Finish* finish = nullptr;
};

// y of one vector of outputs at a pixel of a finished result.
SF_INLINE void store_finished(const Output<float>& y, const Finish& f, int64_t pixel, int64_t channel, vf v) {
  if (f.slopes) v = select(v > vf(0.f), v, v * load(f.slopes + channel));
  v *= vf(f.scale);
  if (y.residual) v = fma(load(y.residual + pixel * f.residual_pixel + channel), vf(f.residual_scale), v);
  if (f.second) v += load(f.second + pixel * f.second_pixel + channel);
  store(y.data + pixel * f.pixel + channel, v);
}

// y of one tile of picture n and one strip from m[point][strip].
template <class Form, class T>
[[gnu::noinline]] static void store_tile(const Output<T>& y, int64_t n, int64_t row, int64_t col, int64_t o0, int vecs,
                                         const float* m, int64_t plane) {
  constexpr int kTile = Form::kTile, kInput = Form::kInput;
  const int rows = int(min64(kTile, y.height - row)), cols = int(min64(kTile, y.width - col));
  const int64_t first = ((n * y.height + row) * y.width + col) * y.channels + o0;
  for (int j = 0; j < vecs; ++j) {
    vf out[kTile][kTile];
    const float* from = m + j * L;
    auto one = [](const vf(&a)[kInput], vf(&b)[kTile]) __attribute__((always_inline)) { Form::output(a, b); };
    Form::template in_two<kInput, kTile>([&](int r, int c) { return load(from + (r * kInput + c) * plane); },
                                         [&](int r, int c, vf v) { out[r][c] = v; }, one);
    vf bias = y.bias ? load_as(y.bias, y.bias_type, o0 + j * L, L) : vf(0.f);
    if (y.shift) bias += load(y.shift + n * y.channels + o0 + j * L);
    if constexpr (std::is_same_v<T, float>)
      if (y.finish) {
        for (int r = 0; r < rows; ++r)
          for (int c = 0; c < cols; ++c)
            store_finished(y, *y.finish, (n * y.height + row + r) * y.width + col + c, o0 + j * L, out[r][c] + bias);
        continue;
      }
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < cols; ++c) {
        const int64_t at = first + (r * y.width + c) * y.channels + j * L;
        vf v = out[r][c] + bias;
        if (y.residual) v += load(y.residual + at);
        if (y.act != Activation::None) v = activate(y.act, v);
        store(y.data + at, v);
      }
  }
}

}  // namespace SF_ISA
}  // namespace sf
