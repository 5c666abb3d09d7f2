// Convolutions with kernels of three frames (winograd_over_time.h) and the gradients of their inputs. A task takes a
// block of tiles of the picture at one tile of time: it transforms what these read into v[point][line][tile][c], which
// stays in L2, multiplies that by the transformed weights, which come by from L3 in the order in which they lie, and
// turns the sums m[point][sum][tile][strip] into frames of the result. Where the channels are many they go in blocks.
#include "scaffolding/core/parallel_guided.h"
#include "scaffolding/ops/conv/kernel.h"

// As conv_winograd.cpu.cpp, which offers these.
#if defined(SF_ISA_PRIORITY) && SF_ISA_PRIORITY > 0
#include "scaffolding/ops/conv/winograd_laid.h"
#include "scaffolding/ops/conv/winograd_over_time.h"

namespace sf {
namespace SF_ISA {

constexpr int64_t kBlockBytes = 768 << 10;  // of v and sums
constexpr int64_t kMostTiles = 64;

// A factor of one sum: tiles of v, and the weights.
struct Factor {
  const float *v, *u;
};

// m[i][0 .. NR) = sum over factors and channels of v[i * row + c] * u[c][..], plus what m holds if `add`. `weights` and
// `pixels` come to L2.
template <int kRows, int kVecs>
[[gnu::noinline]] static void multiply(int64_t depth, const Factor* factors, int count, int64_t row, float* m, bool add,
                                       Ahead weights, Ahead pixels) {
  using Vec = MulF32::Vec;
  Vec sum[kRows][kVecs];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVecs; ++j) sum[i][j] = Vec{};
  for (const Factor* f = factors; f < factors + count; ++f) {
    const float *v = f->v, *u = f->u;
    for (int64_t c = 0; c < depth; ++c) {
      __builtin_prefetch(weights.at, 0, 2);
      __builtin_prefetch(pixels.at, 0, 2);
      weights.at += weights.step, pixels.at += pixels.step;
      Vec uv[kVecs];
#pragma GCC unroll 4
      for (int j = 0; j < kVecs; ++j) uv[j] = load_vec<MulF32>(u + j * L);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const Vec a = MulF32::splat(v[i * row]);
#pragma GCC unroll 4
        for (int j = 0; j < kVecs; ++j) sum[i][j] = MulF32::mul_add(a, uv[j], sum[i][j]);
      }
      ++v, u += NR;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVecs; ++j) {
      float* to = m + i * NR + j * L;
      if (add) sum[i][j] += load_vec<MulF32>(to);
      store_vec<MulF32>(to, sum[i][j]);
    }
}
using MultiplyFn = void (*)(int64_t depth, const Factor* factors, int count, int64_t row, float* m, bool add,
                            Ahead weights, Ahead pixels);
template <int kRows = kStridedRows> SF_INLINE MultiplyFn multiply_for(int rows, int vecs) {
  if constexpr (kRows > 1)
    if (rows < kRows) return multiply_for<kRows - 1>(rows, vecs);
  return vecs == 1 ? &multiply<kRows, 1> : &multiply<kRows, kTileVecs>;
}

// The weight of y[o] from x[c]; turned: the taps in reverse, for the gradient of x.
struct Weight {
  const float* data;
  int64_t out, in;        // channels
  int64_t by_out, by_in;  // strides
  int64_t by_tap[3];      // through time, down, across
  bool turned;
};
static Weight weight_of(const TensorView& w, bool turned) {
  const int64_t *n = w.sizes, *s = w.strides;
  return {w.as<const float>(), n[turned], n[!turned], s[turned], s[!turned], {s[2], s[3], s[4]}, turned};
}

// How channels and tiles are cut.
template <class S> struct Cut {
  int64_t channels, strips, depth, tiles;
  // Of `places` tiles at `times` times, enough for all threads where there are.
  Cut(int64_t in, int64_t out, int64_t places, int64_t times) : channels(in), strips(ceil_div(out, NR)) {
    const int64_t most = S::kTaps == 1 ? 128 : 64;
    depth = ceil_div(in / 16, ceil_div(in, most)) * 16;
    const int64_t fit =
        kBlockBytes / (kInput * (kLinesOf<S> * depth + kSumsOf<S> * NR) * 4) / kStridedRows * kStridedRows;
    tiles = max64(kStridedRows, min64(min64(fit, kMostTiles), ceil_div(places * times, 2 * num_threads())));
  }
  // u[block of channels][strip][point][weight][c][NR]
  int64_t size() const { return strips * kInput * kWeightsOf<S> * channels * NR; }
  int64_t depth_at(int64_t c0) const { return min64(depth, channels - c0); }
  int64_t at(int64_t c0, int64_t strip, int point, int weight) const {
    return ((c0 * strips + strip * depth_at(c0)) * kInput * kWeightsOf<S> +
            (point * kWeightsOf<S> + weight) * depth_at(c0)) *
           NR;
  }
};

// u of NR outputs from raw[tap][NR] of one channel; points are `plane` floats apart after all weights.
template <class S>
[[gnu::noinline]] static void transform_taps_over_time(const float* raw, int64_t by_tap, bool turned, int vecs,
                                                       float* u, int64_t plane) {
  constexpr int kTaps = S::kTaps, kAll = kTaps * kTaps, kLast = 3 * kAll - 1;
  for (int j = 0; j < vecs; ++j, raw += L, u += L) {
    vf half[3][kWeightsOf<S>];
#pragma GCC unroll 1
    for (int t = 0; t < 3; ++t) {
      auto one = [](const vf(&a)[kTaps], vf(&b)[S::kWeights]) __attribute__((always_inline)) { S::weights(a, b); };
      transform_2d<kTaps, S::kWeights>(
          [&](int r, int q) {
            const int tap = t * kAll + r * kTaps + q;
            return load(raw + (turned ? kLast - tap : tap) * by_tap);
          },
          [&](int r, int q, vf a) { half[t][r * S::kWeights + q] = a; }, one);
    }
#pragma GCC unroll 1
    for (int i = 0; i < kWeightsOf<S>; ++i) {
      const vf g[3] = {half[0][i], half[1][i], half[2][i]};
      vf a[kInput];
      transform_weight(g, a);
#pragma GCC unroll 6
      for (int p = 0; p < kInput; ++p) store(u + (p * kWeightsOf<S> + i) * plane, a[p]);
    }
  }
}

template <class S> static void transform_weights(const Weight& w, const Cut<S>& cut, float* u) {
  constexpr int64_t kGroup = 16, kTaps = S::kTaps, kAll = 3 * kTaps * kTaps;
  const bool together = w.by_tap[2] == 1 && w.by_tap[1] == kTaps && w.by_tap[0] == kTaps * kTaps;
  const int64_t groups = w.in / kGroup;
  parallel_for(cut.strips * groups, 1, [&](int64_t begin, int64_t end) {
    alignas(64) float raw[kGroup * kAll * NR];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t strip = i / groups, first = i % groups * kGroup, c0 = first / cut.depth * cut.depth;
      const int cols = int(min64(NR, w.out - strip * NR));
      const float* from = w.data + strip * NR * w.by_out + first * w.by_in;
      if (!together)
        for (int64_t tap = 0; tap < kAll; ++tap)
          pack<MulF32>(
              raw + tap * kGroup * NR, NR,
              from + tap / kTaps / kTaps * w.by_tap[0] + tap / kTaps % kTaps * w.by_tap[1] + tap % kTaps * w.by_tap[2],
              w.by_out, w.by_in, cols, kGroup);
      for (int64_t c = 0; c < kGroup; ++c) {
        if (together) pack<MulF32>(raw, NR, from + c * w.by_in, w.by_out, 1, cols, kAll);
        transform_taps_over_time<S>(raw + (together ? 0 : c * NR), together ? NR : kGroup * NR, w.turned,
                                    cols <= L ? 1 : kTileVecs, u + cut.at(c0, strip, 0, 0) + (first - c0 + c) * NR,
                                    cut.depth_at(c0) * NR);
      }
    }
  });
}

// What a task writes, and what the next one reads and it does not: that comes to L2 while it multiplies.
class Coming {
 public:
  // Of a frame what tiles first .. first + count have: a tile has `span` pixels a side, `step` after the one before.
  void add(const Video& x, int64_t n, int64_t frame, int64_t across, int64_t first, int64_t count, int64_t step,
           int64_t span, const int64_t (&origin)[2]) {
    if (frame < 0 || frame >= x.frames) return;
    const int64_t last = first + count - 1, r = first / across, r_last = last / across;
    const bool part = r == r_last;  // of one row of tiles
    const int64_t r0 = max64(0, r * step + origin[0]), r1 = min64(x.height, r_last * step + origin[0] + span),
                  q0 = part ? max64(0, first % across * step + origin[1]) : 0,
                  q1 = part ? min64(x.width, last % across * step + origin[1] + span) : x.width;
    if (q1 <= q0) return;
    const int64_t rows = part ? 1 : r1 - r0;
    for (int64_t i = r0; i < r1; i += rows) {
      spans_[count_++] = {x.data + (((n * x.frames + frame) * x.height + i) * x.width + q0) * x.channels,
                          ((rows - 1) * x.width + q1 - q0) * x.channels};
      numbers_ += spans_[count_ - 1].numbers;
    }
  }
  // Deals out all of it in `steps` steps.
  void start(int64_t steps) { step_ = ceil_div(numbers_ * 4, steps); }
  SF_INLINE Ahead next(int64_t steps) {
    while (at_ < count_ && done_ >= spans_[at_].numbers * 4) done_ = 0, ++at_;
    if (at_ == count_) return {reinterpret_cast<const char*>(this), 0};
    const Ahead a{reinterpret_cast<const char*>(spans_[at_].data) + done_, step_};
    done_ += steps * step_;
    return a;
  }

 private:
  struct Span {
    const float* data;
    int64_t numbers;
  };
  Span spans_[kInput * 5 + kTile * 4];
  int count_ = 0, at_ = 0;
  int64_t numbers_ = 0, step_ = 0, done_ = 0;
};

// What a result is finished with.
struct Ending {
  const float* bias;      // [channels] or null
  const float* residual;  // as the result, or null
  Activation act;
};

// The results of so many tiles and one strip, from m[point * kSumsOf + sum][tile][NR].
template <class S, int F>
[[gnu::noinline]] static void store_video(const Video& y, const Ending& e, const Places& places, int64_t n,
                                          int64_t frame, int64_t first, int64_t count, int64_t o0, int vecs,
                                          const float* m, int64_t plane) {
  constexpr int kPoints = S::kPoints, kSums = kSumsOf<S>, kOut = S::kOut;
  const int frames = int(min64(F, y.frames - frame));
  for (int64_t t = 0; t < count; ++t) {
    const int64_t r0 = (first + t) / places.across * kOut + places.out[0],
                  q0 = (first + t) % places.across * kOut + places.out[1];
    for (int j = 0; j < vecs; ++j) {
      const float* from = m + t * NR + j * L;
      vf sums[F][kSums];
#pragma GCC unroll 1
      for (int s = 0; s < kSums; ++s) {
        vf a[F + 2], b[F];
#pragma GCC unroll 6
        for (int i = 0; i < F + 2; ++i) a[i] = load(from + (i * kSums + s) * plane);
        transform_products<F>(a, b);
#pragma GCC unroll 4
        for (int f = 0; f < F; ++f) sums[f][s] = b[f];
      }
      const int64_t o = o0 + j * L;
      const vf bias = e.bias ? load(e.bias + o) : vf(0.f);
      auto one = [](const vf(&a)[kPoints], vf(&b)[kOut]) __attribute__((always_inline)) { S::results(a, b); };
#pragma GCC unroll 1
      for (int f = 0; f < frames; ++f) {
        const int64_t line = ((n * y.frames + frame + f) * y.height + r0) * y.width + q0;
        transform_2d<kPoints, kOut>([&](int r, int q) { return sums[f][r * kPoints + q]; },
                                    [&](int r, int q, vf a) {
                                      if (r0 + r < 0 || r0 + r >= y.height || q0 + q < 0 || q0 + q >= y.width) return;
                                      const int64_t at = (line + r * y.width + q) * y.channels + o;
                                      a += bias;
                                      if (e.residual) a += load(e.residual + at);
                                      if (e.act != Activation::None) a = activate(e.act, a);
                                      store(const_cast<float*>(y.data) + at, a);
                                    },
                                    one);
      }
    }
  }
}

template <class S> struct Convolution {
  Video x, y;
  Places places;
  Cut<S> cut;
  Ending ending;
  int64_t lead;  // frames of zeros before x
  const float* u;
};

// One task: so many tiles from `first` on, at the tile of time that begins at `frame`.
template <class S, int F>
static void convolve_block(const Convolution<S>& g, int64_t n, int64_t frame, int64_t first, int64_t count,
                           Coming coming) {
  const Cut<S>& cut = g.cut;
  const bool whole = cut.depth == cut.channels;
  const int64_t plane = plane_of(count * cut.depth), m_plane = plane_of(count * NR),
                m_strip = (F + 2) * kSumsOf<S> * m_plane;
  float* v = static_cast<float*>(scratch(size_t((F + 2) * kLinesOf<S> * plane) * 4, kSlotInput));
  float* sums = static_cast<float*>(scratch(size_t((whole ? 1 : cut.strips) * m_strip) * 4, kSlotProducts));
  const int64_t panels = ceil_div(count, kStridedRows);
  coming.start((F + 2) * S::kTerms * S::kTerms * panels * cut.channels * cut.strips);
  for (int64_t c0 = 0; c0 < cut.channels; c0 += cut.depth) {
    const int64_t depth = cut.depth_at(c0);
    transform_video<S, F>(g.x, g.places, n, frame - g.lead, first, count, c0, depth, v, cut.depth, plane);
    for (int64_t strip = 0; strip < cut.strips; ++strip) {
      const int64_t o0 = strip * NR;
      const int vecs = g.y.channels - o0 <= L ? 1 : kTileVecs;
      float* m = sums + (whole ? 0 : strip * m_strip);
      for (int i = 0; i < F + 2; ++i) {
        const float* u = g.u + cut.at(c0, strip, point_of<F>(i), 0);
        // The weights after these, a part of them at each of the channels that are gone through.
        const int64_t bytes = kWeightsOf<S> * depth * NR * 4,
                      step = ceil_div(bytes, S::kTerms * S::kTerms * panels * depth);
        const char *next = reinterpret_cast<const char*>(u) + bytes,
                   *ahead = next - reinterpret_cast<const char*>(g.u) < cut.size() * 4
                                ? next
                                : reinterpret_cast<const char*>(g.u);
        for (int s = 0; s < kSumsOf<S>; ++s) {
          Factor factors[4];
          int factor_count = 0;
          for (int a = S::kFirst[s / S::kPoints]; a < S::kFirst[s / S::kPoints + 1]; ++a)
            for (int b = S::kFirst[s % S::kPoints]; b < S::kFirst[s % S::kPoints + 1]; ++b)
              factors[factor_count++] = {v + (i * kLinesOf<S> + S::kLine[a] * S::kLines + S::kLine[b]) * plane,
                                         u + (S::kWeight[a] * S::kWeights + S::kWeight[b]) * depth * NR};
          int64_t row = 0;
          for (int64_t q = 0; q < panels; ++q) {
            const int64_t r1 = count * (q + 1) / panels, rows = r1 - row;
            multiply_for(int(rows), vecs)(depth, factors, factor_count, cut.depth,
                                          m + (i * kSumsOf<S> + s) * m_plane + row * NR, c0 > 0, {ahead, step},
                                          coming.next(depth * factor_count));
            ahead += step * depth * factor_count;
            for (int k = 0; k < factor_count; ++k) factors[k].v += rows * cut.depth;
            row = r1;
          }
        }
      }
      if (c0 + depth == cut.channels)
        store_video<S, F>(g.y, g.ending, g.places, n, frame, first, count, o0, vecs, m, m_plane);
    }
  }
}

template <class S>
static void convolve_video(const Video& x, const Video& y, const Weight& w, const ConvShape& s, int64_t lead,
                           const Ending& ending) {
  const Places places = places_of<S>(y, s);
  const TimeTiles times{y.frames};
  const Cut<S> cut(x.channels, y.channels, places.count(), x.batch * times.count());
  float* u = static_cast<float*>(scratch(size_t(cut.size()) * 4, kSlotWeight));
  transform_weights(w, cut, u);
  const Convolution<S> g{x, y, places, cut, ending, lead, u};
  const int64_t blocks = ceil_div(places.count(), cut.tiles);
  // Tiles of time that follow one another read some of the same frames.
  parallel_for_guided(x.batch * blocks * times.count(), [&](int64_t begin, int64_t end) {
    struct Task {
      int64_t n, frame, first, count;
      int outputs;
    };
    auto task_of = [&](int64_t i) {
      const int64_t time = i % times.count(), block = i / times.count() % blocks,
                    first = places.count() * block / blocks;
      return Task{i / times.count() / blocks, time * kTile, first, places.count() * (block + 1) / blocks - first,
                  times.outputs(time)};
    };
    for (int64_t i = begin; i < end; ++i) {
      const Task task = task_of(i);
      Coming coming;
      for (int64_t f = task.frame; f < task.frame + task.outputs; ++f)
        coming.add(y, task.n, f, places.across, task.first, task.count, S::kOut, S::kOut, places.out);
      if (i + 1 < end) {
        const Task next = task_of(i + 1);
        const int64_t seen = next.frame > task.frame ? task.frame + task.outputs + 2 : next.frame;
        for (int64_t f = seen; f < next.frame + next.outputs + 2; ++f)
          coming.add(x, next.n, f - lead, places.across, next.first, next.count, S::kStep, S::kSpan, places.in);
      }
      const auto run = task.outputs == 4   ? &convolve_block<S, 4>
                       : task.outputs == 2 ? &convolve_block<S, 2>
                                           : &convolve_block<S, 1>;
      run(g, task.n, task.frame, task.first, task.count, coming);
    }
  });
}

void convolve_over_time(const ConvForward& f) {
  const Laid lx(f.x, kSlotX, true), ly(f.y, kSlotY, false), lr(f.residual, kSlotResidual, true);
  const Video x = video_of(f.x, lx.data(), f.weight), y = video_of(f.y, ly.data(), f.weight);
  const Ending ending{f.bias ? f.bias.as<const float>() : nullptr, f.residual ? lr.data() : nullptr, f.act};
  const auto run = is_pixelwise(f.weight) ? &convolve_video<Pixelwise> : &convolve_video<Halving>;
  run(x, y, weight_of(f.weight, false), f.shape, f.shape.padding[0], ending);
  ly.write_back();
}

void convolve_over_time(const ConvBackwardData& f) {
  const Laid ly(f.dy, kSlotY, true), lx(f.dx, kSlotX, false);
  const Video dy = video_of(f.dy, ly.data(), f.weight), dx = video_of(f.dx, lx.data(), f.weight);
  const auto run = is_pixelwise(f.weight) ? &convolve_video<Pixelwise> : &convolve_video<Doubling>;
  run(dy, dx, weight_of(f.weight, true), f.shape, 2 - f.shape.padding[0], {nullptr, nullptr, Activation::None});
  lx.write_back();
}

bool is_worth_over_time(const ConvForward& f) {
  if (!is_shape_over_time(f.weight, f.shape)) return false;
  const Video x = video_of(f.x, nullptr, f.weight), y = video_of(f.y, nullptr, f.weight);
  return (is_pixelwise(f.weight) ? is_worth<Pixelwise> : is_worth<Halving>)(f.weight, f.shape, x, y,
                                                                            f.shape.padding[0]);
}
bool is_worth_over_time(const ConvBackwardData& f) {
  if (!is_shape_over_time(f.weight, f.shape)) return false;
  const Video dy = video_of(f.dy, nullptr, f.weight), dx = video_of(f.dx, nullptr, f.weight);
  return (is_pixelwise(f.weight) ? is_worth<Pixelwise> : is_worth<Doubling>)(f.weight, f.shape, dy, dx,
                                                                             2 - f.shape.padding[0]);
}

}  // namespace SF_ISA
}  // namespace sf
#endif
