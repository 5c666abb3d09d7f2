// Gradients of videos' kernels that Winograd's algorithm is not for, in float32, on channels-last memory as it is: of
// kernels over time alone (k x 1 x 1), and of the weight of kernels with a stride. A tap of the former pairs whole
// frames: dx[pixel][c] = sum over taps of dy[pixel][o] * w[o][c]; frames that meet a tap outside do no work. Of the
// weight, dw[o][c] = sum over pixels of dy[pixel][o] * x[pixel][c], both are read where they lie, and sums of a block
// of pixels that fits in L2 are added to those before: packing either operand would cost as much as the product, for
// there are few channels and many pixels.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/core/parallel_guided.h"
#include "scaffolding/core/scratch.h"
#include "scaffolding/ops/conv/pixel_sums.h"
#include "scaffolding/ops/conv/rows.h"
#include "scaffolding/ops/matmul/packed_gemm.h"

namespace sf {
namespace SF_ISA {

inline constexpr int64_t kColumns = kTileCols<MulF32>, kRows = kStridedRows;
inline constexpr int64_t kPixelBlock = 192;  // of dx: its rows of all taps' dy stay in L2 while strips of weights go by
inline constexpr int64_t kSumBlock = 256;    // pixels of a sum that is kept in registers
enum RowsSlot { kSlotTransposed = 7, kSlotGradients = 10 };

SF_INLINE int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -ceil_div(-a, b); }

inline void multiply_frames(const ConvBackwardData& f) {
  const struct {
    int64_t batch, in_frames, out_frames, pixels, in, out, taps, lead;
  } g{f.dx.sizes[0], f.dx.sizes[2], f.dy.sizes[2],     f.dx.sizes[3] * f.dx.sizes[4],
      f.dx.sizes[1], f.dy.sizes[1], f.weight.sizes[2], f.shape.padding[0]};
  const int64_t *s = f.weight.strides, strips = g.in / kColumns;
  // [strip][tap][o][kColumns]
  float* w = static_cast<float*>(scratch(size_t(g.taps * g.out * g.in) * sizeof(float), kSlotTransposed));
  parallel_for(strips * g.taps, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t o = 0; o < g.out; ++o)
        for (int64_t c = 0; c < kColumns; ++c)
          w[(i * g.out + o) * kColumns + c] =
              f.weight.as<const float>()[o * s[0] + (i / g.taps * kColumns + c) * s[1] + i % g.taps * s[2]];
  });
  const float* dy = f.dy.as<const float>();
  float* dx = f.dx.as<float>();
  const int64_t blocks = ceil_div(g.pixels, kPixelBlock);
  parallel_for_guided(g.batch * g.in_frames * blocks, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t block = task % blocks, frame = task / blocks % g.in_frames, n = task / blocks / g.in_frames;
      const int64_t p0 = block * kPixelBlock, p1 = min64(g.pixels, p0 + kPixelBlock);
      // taps whose frame of dy, frame + lead - tap, is there
      const int64_t first = max64(0, frame + g.lead - g.out_frames + 1), last = min64(g.taps, frame + g.lead + 1);
      for (int64_t strip = 0; strip < strips; ++strip)
        for (int64_t p = p0; p < p1; p += kRows) {
          const int rows = int(min64(kRows, p1 - p));
          float* to = dx + ((n * g.in_frames + frame) * g.pixels + p) * g.in + strip * kColumns;
          if (first >= last)
            for (int i = 0; i < rows; ++i) __builtin_memset(to + i * g.in, 0, kColumns * sizeof(float));
          for (int64_t tap = first; tap < last; ++tap)
            tile_for<MulF32, false>(rows, kTileVecs)(
                g.out, dy + ((n * g.out_frames + frame + g.lead - tap) * g.pixels + p) * g.out, g.out, 1,
                w + (strip * g.taps + tap) * g.out * kColumns, kColumns, to, g.in, tap > first ? to : nullptr, g.in,
                nullptr, 0);
        }
    }
  });
}

// Runs of pixels that a tap sees side by side: rows, or whole frames where a tap meets whole frames.
struct Runs {
  int64_t in[3], out[3], kernel[3], stride[3], padding[3], taps;
};
inline Runs runs_of(const ConvBackwardWeights& f) {
  Runs r;
  for (int i = 0; i < 3; ++i)
    r.in[i] = f.x.sizes[i + 2], r.out[i] = f.dy.sizes[i + 2], r.kernel[i] = f.dweight.sizes[i + 2],
    r.stride[i] = f.shape.stride[i], r.padding[i] = f.shape.padding[i];
  r.taps = r.kernel[0] * r.kernel[1] * r.kernel[2];
  if (r.kernel[1] * r.kernel[2] * r.stride[1] * r.stride[2] == 1 && r.padding[1] + r.padding[2] == 0)
    for (int64_t* sizes : {r.in, r.out}) sizes[2] *= sizes[1], sizes[1] = 1;
  return r;
}

inline void sum_rows(const ConvBackwardWeights& f) {
  const Runs g = runs_of(f);
  const int64_t batch = f.x.sizes[0], in = f.x.sizes[1], out = f.dy.sizes[1];
  const int64_t *s = f.dweight.strides, strips = in / kColumns, sum = out * kColumns;
  const float *x = f.x.as<const float>(), *dy = f.dy.as<const float>();
  // [tap][strip][o][kColumns]. Threads share taps, strips and, where these are few, rows of o; each sees all pixels, a
  // block of them for all that it sums.
  const int64_t threads = num_threads();
  const int64_t parts = max64(1, min64(out / (2 * kRows), ceil_div(4 * threads, g.taps * strips)));
  const int64_t tasks = g.taps * strips * parts;
  float* sums = static_cast<float*>(scratch(size_t(g.taps * strips * sum) * sizeof(float), kSlotGradients));
  __builtin_memset(sums, 0, size_t(g.taps * strips * sum) * sizeof(float));
  const int64_t runs = batch * g.out[0] * g.out[1], together = max64(1, kSumBlock / g.out[2]);
  parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
    const int64_t first = tasks * begin / threads, last = tasks * end / threads;
    for (int64_t run0 = 0; run0 < runs; run0 += together)
      for (int64_t p0 = 0; p0 < g.out[2]; p0 += kSumBlock)
        for (int64_t task = first; task < last; ++task) {
          const int64_t part = task % parts, strip = task / parts % strips, tap = task / parts / strips;
          const int64_t o0 = out * part / parts, o1 = out * (part + 1) / parts, panels = ceil_div(o1 - o0, kRows);
          const int64_t across = tap % g.kernel[2], down = tap / g.kernel[2] % g.kernel[1],
                        later = tap / g.kernel[2] / g.kernel[1];
          // pixels of a run that see one of x through this tap
          const int64_t shift = across - g.padding[2], step = g.stride[2];
          const int64_t begin_p = max64(p0, shift < 0 ? ceil_div(-shift, step) : 0);
          const int64_t end_p = min64(min64(g.out[2], p0 + kSumBlock), floor_div(g.in[2] - 1 - shift, step) + 1);
          if (begin_p >= end_p) continue;
          for (int64_t q = 0; q < panels; ++q) {
            const int64_t r0 = o0 + (o1 - o0) * q / panels, r1 = o0 + (o1 - o0) * (q + 1) / panels;
            float* c = sums + (tap * strips + strip) * sum + r0 * kColumns;
            const auto add = tile_for<MulF32, false>(int(r1 - r0), kTileVecs);
            for (int64_t run = run0; run < min64(runs, run0 + together); ++run) {
              const int64_t row = run % g.out[1] * g.stride[1] + down - g.padding[1],
                            frame = run / g.out[1] % g.out[0] * g.stride[0] + later - g.padding[0];
              if (row < 0 || row >= g.in[1] || frame < 0 || frame >= g.in[0]) continue;
              const int64_t line = (run / g.out[1] / g.out[0] * g.in[0] + frame) * g.in[1] + row;
              add(end_p - begin_p, dy + (run * g.out[2] + begin_p) * out + r0, 1, out,
                  x + (line * g.in[2] + begin_p * step + shift) * in + strip * kColumns, step * in, c, kColumns, c,
                  kColumns, nullptr, 0);
            }
          }
        }
  });
  parallel_for(out, max64(1, 16384 / (in * g.taps)), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o)
      for (int64_t tap = 0; tap < g.taps; ++tap) {
        const int64_t at = o * s[0] + tap % g.kernel[2] * s[4] + tap / g.kernel[2] % g.kernel[1] * s[3] +
                           tap / g.kernel[2] / g.kernel[1] * s[2];
        for (int64_t c = 0; c < in; ++c)
          f.dweight.as<float>()[at + c * s[1]] =
              sums[((tap * strips + c / kColumns) * out + o) * kColumns + c % kColumns];
      }
  });
  if (f.dbias) sum_over_pixels(dy, runs * g.out[2], out, f.dbias.as<float>());
}

}  // namespace SF_ISA
}  // namespace sf
