// Convolutions whose kernel has three frames over time, by Winograd's F(4, 3) over time: 6 products for 4 frames where
// direct summation takes 12. In the picture the kernel is 1x1, or 3x3 with a stride of 2. Of the latter every second
// row meets the middle tap alone and the others meet two taps, which are F(2, 2): 5 products for 2 rows instead of 6,
// and the same across. Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
//
// Frames that are left over make a tile of 2 (4 products) or of 1 (3), over some of the same points: F(2, 3) over
// 0, +-a and infinity, F(1, 3) over 0, a and infinity. They read the same transformed weights.
#pragma once
#include "scaffolding/ops/conv/kernel.h"
#include "scaffolding/ops/conv/winograd_product.h"

namespace sf {
namespace SF_ISA {

// conv_over_time.cpu.cpp, conv_over_time_weights.cpu.cpp
bool is_worth_over_time(const ConvForward& f);
bool is_worth_over_time(const ConvBackwardData& f);
bool is_worth_over_time(const ConvBackwardWeights& f);
void convolve_over_time(const ConvForward& f);
void convolve_over_time(const ConvBackwardData& f);
void convolve_over_time(const ConvBackwardWeights& f);

// ---- time

// Tiles of the frames of a result.
struct TimeTiles {
  int64_t frames;
  SF_INLINE int64_t count() const { return ceil_div(frames, kTile); }
  // 4, 2 or 1; three are a tile of 4
  SF_INLINE int outputs(int64_t i) const {
    const int64_t left = frames - i * kTile;
    return left >= 3 ? 4 : int(left);
  }
  SF_INLINE int64_t products() const {
    int64_t n = 0;
    for (int64_t i = 0; i < count(); ++i) n += outputs(i) + 2;
    return n;
  }
};
// The i-th of the F + 2 points of a tile of F frames.
template <int F> SF_INLINE constexpr int point_of(int i) { return i == F + 1 ? kInput - 1 : i; }

// v = B' d
template <int F> SF_INLINE void transform_frames(const vf (&d)[F + 2], vf (&v)[F + 2]) {
  if constexpr (F == 4) {
    transform_input(d, v);
  } else if constexpr (F == 2) {
    v[0] = fma(d[0], vf(-kA2), d[2]);
    v[1] = fma(d[1], vf(kA), d[2]);
    v[2] = fma(d[1], vf(-kA), d[2]);
    v[3] = fma(d[1], vf(-kA2), d[3]);
  } else {
    v[1] = d[1] * vf(1 / kA);
    v[0] = d[0] - v[1];
    v[2] = fma(d[1], vf(-kA), d[2]);
  }
}
// y = A' N m
template <int F> SF_INLINE void transform_products(const vf (&m)[F + 2], vf (&y)[F]) {
  if constexpr (F == 4) {
    transform_output(m, y);
  } else if constexpr (F == 2) {
    y[0] = fma(m[0], vf(-1 / kA2), vf(0.5f / kA2) * (m[1] + m[2]));
    y[1] = fma(m[1] - m[2], vf(0.5f / kA), m[3]);
  } else {
    y[0] = m[0] + m[1] + m[2];
  }
}
// m = A y for sums that transform_weight_back takes, whose factors N are those of a tile of 4.
template <int F> SF_INLINE void transform_frames_back(const vf (&y)[F], vf (&m)[F + 2]) {
  if constexpr (F == 4) {
    transform_gradient(y, m);
  } else if constexpr (F == 2) {
    const vf even = vf(kA2 - kB2) * y[0], odd = vf((kA2 - kB2) * kA) * y[1];
    m[0] = vf(-kB2) * y[0];
    m[1] = even + odd;
    m[2] = even - odd;
    m[3] = y[1];
  } else {
    m[0] = vf(1 / kN0) * y[0];
    m[1] = vf(1 / kNa) * y[0];
    m[2] = y[0];
  }
}

// ---- one dimension of the picture

// A tile reads kSpan pixels, begins kStep after the one before, and is turned to kLines; products add up to kPoints
// sums, which are turned to kOut results, kMove after those of the tile before. Product i is of line kLine[i] with
// weight kWeight[i]; those of sum p are kFirst[p] .. kFirst[p + 1].
struct Pixelwise {
  static constexpr int kTaps = 1, kSpan = 1, kStep = 1, kLines = 1, kPoints = 1, kOut = 1, kWeights = 1, kTerms = 1;
  static constexpr int kFirst[] = {0, 1}, kLine[] = {0}, kWeight[] = {0};
  SF_INLINE static void lines(const vf (&x)[1], vf (&v)[1]) { v[0] = x[0]; }
  SF_INLINE static void results(const vf (&m)[1], vf (&y)[1]) { y[0] = m[0]; }
  SF_INLINE static void weights(const vf (&w)[1], vf (&u)[1]) { u[0] = w[0]; }
  SF_INLINE static void results_back(const vf (&y)[1], vf (&m)[1]) { m[0] = y[0]; }
  SF_INLINE static void weights_back(const vf (&u)[1], vf (&w)[1]) { w[0] = u[0]; }
};

// y[i] = w0 x[2i] + w1 x[2i + 1] + w2 x[2i + 2]. Over even x it is F(2, 2):
//   y0 - w1 x1 = w0 (x0 - x2) + (w0 + w2) x2        y1 - w1 x3 = (w0 + w2) x2 + w2 (x4 - x2)
struct Halving {
  static constexpr int kTaps = 3, kSpan = 5, kStep = 4, kLines = 5, kPoints = 3, kOut = 2, kWeights = 4, kTerms = 5;
  static constexpr int kFirst[] = {0, 2, 3, 5}, kLine[] = {0, 1, 2, 3, 4}, kWeight[] = {0, 1, 2, 0, 3};
  SF_INLINE static void lines(const vf (&x)[5], vf (&v)[5]) {
    v[0] = x[1], v[1] = x[0] - x[2], v[2] = x[2], v[3] = x[3], v[4] = x[4] - x[2];
  }
  SF_INLINE static void results(const vf (&m)[3], vf (&y)[2]) { y[0] = m[0] + m[1], y[1] = m[2] + m[1]; }
  SF_INLINE static void weights(const vf (&w)[3], vf (&u)[4]) {
    u[0] = w[1], u[1] = w[0], u[2] = w[0] + w[2], u[3] = w[2];
  }
  // the transposes, for the gradient of the weight
  SF_INLINE static void results_back(const vf (&y)[2], vf (&m)[3]) { m[0] = y[0], m[1] = y[0] + y[1], m[2] = y[1]; }
  SF_INLINE static void weights_back(const vf (&u)[4], vf (&w)[3]) {
    w[0] = u[1] + u[2], w[1] = u[0], w[2] = u[3] + u[2];
  }
};

// The gradient of its input, with weights in reverse: y[2i] = w1 x[i], y[2i + 1] = w0 x[i] + w2 x[i + 1].
struct Doubling {
  static constexpr int kTaps = 3, kSpan = 3, kStep = 2, kLines = 4, kPoints = 5, kOut = 4, kWeights = 4, kTerms = 5;
  static constexpr int kFirst[] = {0, 1, 2, 3, 4, 5}, kLine[] = {0, 1, 2, 1, 3}, kWeight[] = {0, 0, 1, 2, 3};
  SF_INLINE static void lines(const vf (&x)[3], vf (&v)[4]) {
    v[0] = x[0], v[1] = x[1], v[2] = x[0] - x[1], v[3] = x[2] - x[1];
  }
  SF_INLINE static void results(const vf (&m)[5], vf (&y)[4]) {
    y[0] = m[0], y[1] = m[2] + m[3], y[2] = m[1], y[3] = m[3] + m[4];
  }
  SF_INLINE static void weights(const vf (&w)[3], vf (&u)[4]) { Halving::weights(w, u); }
};

template <class S> inline constexpr int kLinesOf = S::kLines* S::kLines;
template <class S> inline constexpr int kSumsOf = S::kPoints* S::kPoints;
template <class S> inline constexpr int kWeightsOf = S::kWeights* S::kWeights;

struct Video {  // channels-last
  const float* data;
  int64_t batch, frames, height, width, channels;
};
// Where tiles of the pictures begin, and how many there are.
struct Places {
  int64_t down, across;   // tiles
  int64_t in[2], out[2];  // of the first tile, down and across: its pixel of what is read, and of the result
  SF_INLINE int64_t count() const { return down * across; }
};

// v[(i * kLinesOf + line) * plane + tile * row + c] of so many tiles from `first` on and channels c0 .. c0 + depth,
// where point i is over F + 2 frames of picture n from `frame` on. kAhead: what the next tile reads comes to L2.
template <class S, int F, bool kAhead = false>
[[gnu::noinline]] static void transform_video(const Video& x, const Places& places, int64_t n, int64_t frame,
                                              int64_t first, int64_t count, int64_t c0, int64_t depth, float* v,
                                              int64_t row, int64_t plane) {
  constexpr int kSpan = S::kSpan, kPixels = kSpan * kSpan;
  const float* base[F + 2];
  bool all = true;
  for (int f = 0; f < F + 2; ++f) {
    const bool there = frame + f >= 0 && frame + f < x.frames;
    base[f] = there ? x.data + (n * x.frames + frame + f) * x.height * x.width * x.channels + c0 : nullptr;
    all &= there;
  }
  for (int64_t t = 0; t < count; ++t) {
    const int64_t r0 = (first + t) / places.across * S::kStep + places.in[0],
                  q0 = (first + t) % places.across * S::kStep + places.in[1];
    const bool inside = all && r0 >= 0 && q0 >= 0 && r0 + kSpan <= x.height && q0 + kSpan <= x.width;
    const int64_t origin = (r0 * x.width + q0) * x.channels;
    for (int64_t c = 0; c < depth; c += L) {
      vf points[F + 2][kPixels];
#pragma GCC unroll 1
      for (int p = 0; p < kPixels; ++p) {
        const int r = p / kSpan, q = p % kSpan;
        const int64_t at = origin + (r * x.width + q) * x.channels + c;
        vf d[F + 2], b[F + 2];
        if (inside) {
          if constexpr (kAhead) {
#pragma GCC unroll 6
            for (int f = 0; f < F + 2; ++f) __builtin_prefetch(base[f] + at + S::kStep * x.channels, 0, 2);
          }
#pragma GCC unroll 6
          for (int f = 0; f < F + 2; ++f) d[f] = load(base[f] + at);
        } else {
          const bool there = r0 + r >= 0 && r0 + r < x.height && q0 + q >= 0 && q0 + q < x.width;
#pragma GCC unroll 6
          for (int f = 0; f < F + 2; ++f) d[f] = there && base[f] ? load(base[f] + at) : vf(0.f);
        }
        transform_frames<F>(d, b);
#pragma GCC unroll 6
        for (int f = 0; f < F + 2; ++f) points[f][p] = b[f];
      }
      float* to = v + t * row + c;
      auto one = [](const vf(&a)[kSpan], vf(&b)[S::kLines]) __attribute__((always_inline)) { S::lines(a, b); };
#pragma GCC unroll 1
      for (int i = 0; i < F + 2; ++i, to += kLinesOf<S> * plane)
        transform_2d<kSpan, S::kLines>([&](int r, int q) { return points[i][r * kSpan + q]; },
                                       [&](int r, int q, vf a) { store(to + (r * S::kLines + q) * plane, a); }, one);
    }
  }
}

// ---- which calls

SF_INLINE bool is_pixelwise(const TensorView& w) { return w.sizes[3] * w.sizes[4] == 1; }

// 3x1x1, or 3x3x3 with strides of 2 in the picture.
SF_INLINE bool is_shape_over_time(const TensorView& w, const ConvShape& s) {
  if (w.ndim != 5 || w.dtype != kFloat32 || w.sizes[2] != 3 || s.groups != 1 || w.sizes[0] % 16 || w.sizes[1] % 16)
    return false;
  for (int i = 0; i < 3; ++i)
    if (s.dilation[i] != 1 || s.padding[i] >= w.sizes[i + 2] || s.stride[i] != (i > 0 && w.sizes[i + 2] == 3 ? 2 : 1))
      return false;
  return w.sizes[3] == w.sizes[4] && (w.sizes[3] == 1 || w.sizes[3] == 3);
}

SF_INLINE Video video_of(const TensorView& t, const float* data, const TensorView& w) {
  Video v{data, t.sizes[0], t.sizes[2], t.sizes[3], t.sizes[4], t.sizes[1]};
  if (is_pixelwise(w)) v.width *= v.height, v.height = 1;
  return v;
}
template <class S> SF_INLINE Places places_of(const Video& result, const ConvShape& s) {
  if constexpr (S::kTaps == 1) {
    return {1, result.width, {0, 0}, {0, 0}};
  } else if constexpr (S::kOut == 2) {
    return {ceil_div(result.height, 2), ceil_div(result.width, 2), {-s.padding[1], -s.padding[2]}, {0, 0}};
  } else {
    // Tile t reads from 2 t on and gives the results 4 t + 1 - padding and three more.
    auto tile_of = [](int64_t result, int64_t padding) { return (result + padding + 3) / 4 - 1; };
    const int64_t r = tile_of(0, s.padding[1]), q = tile_of(0, s.padding[2]);
    return {tile_of(result.height - 1, s.padding[1]) - r + 1,
            tile_of(result.width - 1, s.padding[2]) - q + 1,
            {2 * r, 2 * q},
            {4 * r + 1 - s.padding[1], 4 * q + 1 - s.padding[2]}};
  }
}

// Whether there is less to do than in direct sums, in cycles per 16 weights: a transformed weight costs 3.
inline constexpr int64_t kMostWeightBytes = int64_t(8) << 20;
template <class S>
static bool is_worth(const TensorView& w, const ConvShape& s, const Video& x, const Video& y, int64_t lead) {
  int64_t met = 0;  // frames of x by those of y
  for (int64_t t = 0; t < y.frames; ++t) met += max64(0, min64(3, x.frames + lead - t) - max64(0, lead - t));
  const int64_t pixels = S::kOut == 4 ? x.height * x.width : y.height * y.width,
                direct = x.batch * met * S::kTaps * S::kTaps * pixels / 2,
                ours =
                    x.batch * TimeTiles{y.frames}.products() * S::kTerms * S::kTerms * places_of<S>(y, s).count() / 2 +
                    3 * kInput * kWeightsOf<S>;
  return kInput * kWeightsOf<S> * w.sizes[0] * w.sizes[1] * 4 <= kMostWeightBytes && ours * 5 < direct * 4;
}
}  // namespace SF_ISA
}  // namespace sf
