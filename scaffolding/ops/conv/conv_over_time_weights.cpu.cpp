// The gradient of a kernel of three frames (winograd_over_time.h). Some tiles of x and of dy are transformed, and a
// transformed weight gets the sum over them of every product that it has part in; the sums are transformed back at the
// end. Tiles of 4, 2 and 1 frames add to the same sums.
#include "scaffolding/core/parallel_guided.h"
#include "scaffolding/ops/conv/kernel.h"

// As conv_winograd_weights.cpu.cpp, which offers this.
#if defined(SF_ISA_PRIORITY) && SF_ISA_PRIORITY > 0
#include "scaffolding/ops/conv/pixel_sums.h"
#include "scaffolding/ops/conv/winograd_laid.h"
#include "scaffolding/ops/conv/winograd_over_time.h"

namespace sf {
namespace SF_ISA {

constexpr int64_t kRoundBytes = int64_t(3) << 20;  // of both; with 12 MB a call takes a third longer
constexpr int64_t kSide = 64;                      // channels of either kind that are multiplied together

// m[(i * kSumsOf + sum) * plane + tile * row + o] of tiles of dy: A y.
template <class S, int F>
[[gnu::noinline]] static void transform_gradients(const Video& dy, const Places& places, int64_t n, int64_t frame,
                                                  int64_t first, int64_t count, float* m, int64_t row, int64_t plane) {
  constexpr int kOut = S::kOut, kPixels = kOut * kOut;
  for (int64_t t = 0; t < count; ++t) {
    const int64_t r0 = (first + t) / places.across * kOut, q0 = (first + t) % places.across * kOut;
    for (int64_t o = 0; o < dy.channels; o += L) {
      vf points[F + 2][kPixels];
#pragma GCC unroll 1
      for (int p = 0; p < kPixels; ++p) {
        const int64_t r = r0 + p / kOut, q = q0 + p % kOut;
        const bool inside = r < dy.height && q < dy.width;
        vf y[F], a[F + 2];
#pragma GCC unroll 4
        for (int f = 0; f < F; ++f)
          y[f] = inside && frame + f < dy.frames
                     ? load(dy.data + (((n * dy.frames + frame + f) * dy.height + r) * dy.width + q) * dy.channels + o)
                     : vf(0.f);
        transform_frames_back<F>(y, a);
#pragma GCC unroll 6
        for (int i = 0; i < F + 2; ++i) points[i][p] = a[i];
      }
      float* to = m + t * row + o;
      auto one = [](const vf(&a)[kOut], vf(&b)[S::kPoints]) __attribute__((always_inline)) { S::results_back(a, b); };
#pragma GCC unroll 1
      for (int i = 0; i < F + 2; ++i, to += kSumsOf<S> * plane)
        transform_2d<kOut, S::kPoints>([&](int r, int q) { return points[i][r * kOut + q]; },
                                       [&](int r, int q, vf a) { store(to + (r * S::kPoints + q) * plane, a); }, one);
    }
  }
}

template <class S> struct Gradient {
  Video x, dy;
  Places places;
  int64_t lead;
  float* sums;  // [point][weight][o][c]
};

// The tiles of `times` tiles of F frames, of which the first begins at `frame`, of all videos of a batch.
template <class S, int F> static void add_tiles(const Gradient<S>& g, int64_t frame, int64_t times) {
  const int64_t in = g.x.channels, out = g.dy.channels, places = g.places.count(), all = g.x.batch * times * places;
  if (all == 0) return;
  const int64_t x_row = in + 16, dy_row = out + 16;
  const int64_t bytes = (F + 2) * (kLinesOf<S> * x_row + kSumsOf<S> * dy_row) * 4;
  const int64_t rounds = min64(all, ceil_div(all * bytes, kRoundBytes)), most = ceil_div(all, rounds);
  const int64_t x_plane = plane_of(most * x_row), dy_plane = plane_of(most * dy_row);
  float* v = static_cast<float*>(scratch(size_t((F + 2) * kLinesOf<S> * x_plane) * 4, kSlotInput));
  float* m = static_cast<float*>(scratch(size_t((F + 2) * kSumsOf<S> * dy_plane) * 4, kSlotGradient));
  const int64_t down = ceil_div(out, kSide), across = ceil_div(in, kSide), blocks = down * across;
  for (int64_t round = 0; round < rounds; ++round) {
    const int64_t first = all * round / rounds, count = all * (round + 1) / rounds - first;
    parallel_for(count, 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin, part = 0; i < end; i += part) {
        const int64_t place = (first + i) % places, time = (first + i) / places % times,
                      n = (first + i) / places / times;
        part = min64(end - i, places - place);
        transform_video<S, F, true>(g.x, g.places, n, frame + time * F - g.lead, place, part, 0, in, v + i * x_row,
                                    x_row, x_plane);
        transform_gradients<S, F>(g.dy, g.places, n, frame + time * F, place, part, m + i * dy_row, dy_row, dy_plane);
      }
    });
    parallel_for_guided((F + 2) * kWeightsOf<S> * blocks, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t block = task % blocks, o0 = block / across * kSide, c0 = block % across * kSide;
        const int64_t o1 = min64(out, o0 + kSide), c1 = min64(in, c0 + kSide), panels = ceil_div(o1 - o0, kStridedRows);
        const int weight = int(task / blocks % kWeightsOf<S>), i = int(task / blocks / kWeightsOf<S>);
        float* sum = g.sums + (point_of<F>(i) * kWeightsOf<S> + weight) * out * in;
        for (int s = 0; s < kSumsOf<S>; ++s)
          for (int a = S::kFirst[s / S::kPoints]; a < S::kFirst[s / S::kPoints + 1]; ++a)
            for (int b = S::kFirst[s % S::kPoints]; b < S::kFirst[s % S::kPoints + 1]; ++b) {
              if (S::kWeight[a] * S::kWeights + S::kWeight[b] != weight) continue;
              const float* x = v + (i * kLinesOf<S> + S::kLine[a] * S::kLines + S::kLine[b]) * x_plane;
              const float* dy = m + (i * kSumsOf<S> + s) * dy_plane;
              for (int64_t c = c0; c < c1; c += NR)
                for (int64_t q = 0; q < panels; ++q) {
                  const int64_t r0 = o0 + (o1 - o0) * q / panels, r1 = o0 + (o1 - o0) * (q + 1) / panels;
                  float* to = sum + r0 * in + c;
                  tile_for<MulF32, false>(int(r1 - r0), c1 - c <= L ? 1 : kTileVecs)(count, dy + r0, 1, dy_row, x + c,
                                                                                     x_row, to, in, to, in, nullptr, 0);
                }
            }
      }
    });
  }
}

// dw[o][c ..] of one vector of channels from sums u[point * kWeightsOf + weight].
template <class S>
[[gnu::noinline]] static void store_weights(const TensorView& dw, int64_t o, int64_t c, const float* u, int64_t plane) {
  constexpr int kTaps = S::kTaps;
  vf half[kInput][kTaps * kTaps];
  auto one = [](const vf(&a)[S::kWeights], vf(&b)[kTaps]) __attribute__((always_inline)) { S::weights_back(a, b); };
#pragma GCC unroll 1
  for (int i = 0; i < kInput; ++i, u += kWeightsOf<S> * plane)
    transform_2d<S::kWeights, kTaps>([&](int r, int q) { return load(u + (r * S::kWeights + q) * plane); },
                                     [&](int r, int q, vf a) { half[i][r * kTaps + q] = a; }, one);
  const int64_t* s = dw.strides;
#pragma GCC unroll 1
  for (int tap = 0; tap < kTaps * kTaps; ++tap) {
    vf a[kInput], w[3];
#pragma GCC unroll 6
    for (int i = 0; i < kInput; ++i) a[i] = half[i][tap];
    transform_weight_back(a, w);
    float* to = dw.as<float>() + o * s[0] + c * s[1] + tap / kTaps * s[3] + tap % kTaps * s[4];
#pragma GCC unroll 3
    for (int t = 0; t < 3; ++t, to += s[2]) {
      if (s[1] == 1) {
        store(to, w[t]);
      } else {
        for (int i = 0; i < L; ++i) to[i * s[1]] = w[t][i];
      }
    }
  }
}

template <class S> static void add_up(const ConvBackwardWeights& f, const Video& x, const Video& dy) {
  const size_t bytes = size_t(kInput * kWeightsOf<S> * x.channels * dy.channels) * 4;
  float* sums = static_cast<float*>(scratch(bytes, kSlotTotal));
  __builtin_memset(sums, 0, bytes);
  const Gradient<S> g{x, dy, places_of<S>(dy, f.shape), f.shape.padding[0], sums};
  const TimeTiles times{dy.frames};
  const int64_t last = times.count() - 1;
  const int left = times.outputs(last);
  add_tiles<S, 4>(g, 0, left == 4 ? last + 1 : last);
  if (left == 2) add_tiles<S, 2>(g, last * kTile, 1);
  if (left == 1) add_tiles<S, 1>(g, last * kTile, 1);
  const int64_t in = x.channels, out = dy.channels;
  parallel_for(out, max64(1, 1024 / in), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o)
      for (int64_t c = 0; c < in; c += L) store_weights<S>(f.dweight, o, c, sums + o * in + c, out * in);
  });
}

void convolve_over_time(const ConvBackwardWeights& f) {
  const Laid lx(f.x, kSlotX, true), ly(f.dy, kSlotY, true);
  const Video x = video_of(f.x, lx.data(), f.dweight), dy = video_of(f.dy, ly.data(), f.dweight);
  (is_pixelwise(f.dweight) ? &add_up<Pixelwise> : &add_up<Halving>)(f, x, dy);
  if (f.dbias) sum_over_pixels(dy.data, dy.batch * dy.frames * dy.height * dy.width, dy.channels, f.dbias.as<float>());
}

bool is_worth_over_time(const ConvBackwardWeights& f) {
  if (!is_shape_over_time(f.dweight, f.shape)) return false;
  const Video x = video_of(f.x, nullptr, f.dweight), dy = video_of(f.dy, nullptr, f.dweight);
  return (is_pixelwise(f.dweight) ? is_worth<Pixelwise> : is_worth<Halving>)(f.dweight, f.shape, x, dy,
                                                                             f.shape.padding[0]);
}

}  // namespace SF_ISA
}  // namespace sf
#endif
