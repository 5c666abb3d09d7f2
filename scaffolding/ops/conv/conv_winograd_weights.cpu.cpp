// The gradient of a 3x3 kernel by Winograd's F(4x4, 3x3): transformed x is multiplied by transformed dy over tiles,
// 64 x 64 channels at a time, and the sums are transformed back. Of a kernel over time too, each frame is one sum over
// the same tiles, of x so many frames later.
#include "scaffolding/core/parallel_guided.h"
#include "scaffolding/ops/conv/kernel.h"

// Not for base, as conv_winograd.cpu.cpp.
#if defined(SF_ISA_PRIORITY) && SF_ISA_PRIORITY > 0
#include "scaffolding/ops/conv/pixel_sums.h"
#include "scaffolding/ops/conv/winograd_calls.h"
#include "scaffolding/ops/conv/winograd_over_time.h"

namespace sf {
namespace SF_ISA {

constexpr int64_t kGradientBlock = 64;

// dw[o][c0 ..][frame] for one o and one vector of input channels, from sums u[point].
template <class T>
[[gnu::noinline]] static void store_weight(const TensorView& dw, int64_t o, int64_t c0, int64_t frame, const float* u,
                                           int64_t plane) {
  vf half[3][kInput], g[3][3];
#pragma GCC unroll 6
  for (int c = 0; c < kInput; ++c) {
    vf a[6], b[3];
#pragma GCC unroll 6
    for (int r = 0; r < kInput; ++r) a[r] = load(u + (r * kInput + c) * plane);
    transform_weight_back(a, b);
#pragma GCC unroll 3
    for (int r = 0; r < 3; ++r) half[r][c] = b[r];
  }
#pragma GCC unroll 3
  for (int r = 0; r < 3; ++r) transform_weight_back(half[r], g[r]);
  const int64_t *s = dw.strides, by_channel = s[1], down = s[dw.ndim - 2], across = s[dw.ndim - 1];
  T* to = dw.as<T>() + o * s[0] + c0 * by_channel + (dw.ndim == 5 ? frame * s[2] : 0);
  if (by_channel == 1) {
    for (int t = 0; t < 9; ++t) store(to + t / 3 * down + t % 3 * across, g[t / 3][t % 3]);
    return;
  }
  if (L == 16 && across == 1 && down == 3) {  // a channel's 9 taps lie together
    MulF32::Vec r[L];
#pragma GCC unroll 16
    for (int t = 0; t < L; ++t) r[t] = t < 9 ? g[t < 9 ? t / 3 : 0][t % 3].v : MulF32::Vec{};
    transpose<MulF32::Vec, L>(r);
    if (by_channel == 9 && sizeof(T) == 4) {  // each channel's store overwrites what the one before spilled
      alignas(64) float together[L * 9 + L];
#pragma GCC unroll 16
      for (int c = 0; c < L; ++c) store_vec<MulF32>(together + c * 9, r[c]);
      __builtin_memcpy(to, together, sizeof(float) * L * 9);
    } else {
#pragma GCC unroll 16
      for (int c = 0; c < L; ++c) store_n(to + c * by_channel, vf(r[c]), 9);
    }
    return;
  }
  for (int t = 0; t < 9; ++t)
    for (int c = 0; c < L; ++c) {
      const float value = g[t / 3][t % 3][c];
      if constexpr (sizeof(T) == 4) to[c * by_channel + t / 3 * down + t % 3 * across] = value;
      else to[c * by_channel + t / 3 * down + t % 3 * across] = to_bfloat16(value);
    }
}

template <class T> static void backward_weights_laid(const ConvBackwardWeights& f, const T* x_data, const T* dy_data) {
  const Image<T> x = image_of(f.x, x_data, f.dweight), dy = image_of(f.dy, dy_data, f.dweight);
  const int at = picture_dims(f.dweight);
  const Taps taps = taps_of(f.dweight, f.shape, x.frames, dy.frames, false);
  if (taps.count < kernel_frames(f.dweight)) __builtin_memset(f.dweight.data, 0, size_t(f.dweight.numel()) * sizeof(T));
  const Tiles tiles = tiles_of(dy.batch, dy.height, dy.width);
  const int64_t in = x.channels, out = dy.channels, total = tiles.count(), x_row = in + 16, dy_row = out + 16;
  // One round of tiles when both transforms fit in L3 or so; else sums of all 64 x 64 blocks wait for the next round.
  // Rounds pay at once where the sums are small.
  const int64_t bytes = kPoints * (x_row * x.frames + dy_row * dy.frames) * 4;
  const int64_t round_bytes = in * out * taps.count * kPoints * 4 <= Form4::kTransformedBytes
                                  ? Form4::kTransformedBytes
                                  : 8 * Form4::kTransformedBytes;
  const int64_t rounds = min64(total, ceil_div(total * bytes, round_bytes)), per_round = ceil_div(total, rounds);
  const int64_t x_plane = plane_of(per_round * x.frames * x_row), dy_plane = plane_of(per_round * dy.frames * dy_row);
  const int64_t down = ceil_div(out, kGradientBlock), across = ceil_div(in, kGradientBlock),
                block = plane_of(kGradientBlock * kGradientBlock), of_task = taps.count * kPoints * block;
  float* xt = static_cast<float*>(scratch(size_t(kPoints * x_plane) * 4, kSlotInput));
  float* dyt = static_cast<float*>(scratch(size_t(kPoints * dy_plane) * 4, kSlotGradient));
  // Threads share the blocks; where these are few, the points of each.
  const int64_t blocks = down * across;
  const bool by_point = num_threads() > 1 && blocks < 4 * num_threads();
  float* sums =
      by_point || rounds > 1 ? static_cast<float*>(scratch(size_t(blocks * of_task) * 4, kSlotTotal)) : nullptr;
  auto rows_of = [&](int64_t task) { return min64(kGradientBlock, out - task / across * kGradientBlock); };
  // u[tap in time][point][o][c]
  auto multiply = [&](int64_t task, int point, int64_t count, bool add, float* u) {
    const int64_t o0 = task / across * kGradientBlock, c0 = task % across * kGradientBlock;
    const int64_t rows = rows_of(task), cols = min64(kGradientBlock, in - c0), panels = ceil_div(rows, kStridedRows);
    for (int64_t c = 0; c < cols; c += NR)
      for (int64_t q = 0; q < panels; ++q)
        for (int64_t t = 0; t < taps.count; ++t) {
          // frames of dy that see one of x through this tap
          const int64_t begin = max64(0, taps.lead - t), end = min64(dy.frames, x.frames + taps.lead - t);
          const int64_t r0 = rows * q / panels;
          const int mr = int(rows * (q + 1) / panels - r0);
          float* to = u + (t * kPoints + point) * block + r0 * kGradientBlock + c;
          tile_for<MulF32, false>(mr, cols - c <= L ? 1 : kTileVecs)(
              count * (end - begin), dyt + point * dy_plane + begin * count * dy_row + o0 + r0, 1, dy_row,
              xt + point * x_plane + (begin + t - taps.lead) * count * x_row + c0 + c, x_row, to, kGradientBlock,
              add ? to : nullptr, kGradientBlock, nullptr, 0);
        }
  };
  auto finish = [&](int64_t task, int64_t row, const float* u) {
    const int64_t o0 = task / across * kGradientBlock, c0 = task % across * kGradientBlock,
                  cols = min64(kGradientBlock, in - c0);
    for (int64_t t = 0; t < taps.count; ++t)
      for (int64_t c = 0; c < cols; c += L)
        store_weight<T>(f.dweight, o0 + row, c0 + c, taps.first + t, u + t * kPoints * block + row * kGradientBlock + c,
                        block);
  };
  for (int64_t t0 = 0; t0 < total; t0 += per_round) {
    const int64_t count = min64(per_round, total - t0);
    const bool last = t0 + per_round >= total;
    transform_tiles<InputTiles<Form4>>(x, {tiles, t0, count}, f.shape.padding[at], f.shape.padding[at + 1],
                                       Planes{xt, x_plane, x_row, count * x.frames});
    transform_tiles<GradientTiles>(dy, {tiles, t0, count}, 0, 0, Planes{dyt, dy_plane, dy_row, count * dy.frames});
    if (by_point) {
      parallel_for_guided(blocks * kPoints, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          multiply(i / kPoints, int(i % kPoints), count, t0 > 0, sums + i / kPoints * of_task);
      });
    } else {
      parallel_for_guided(blocks, [&](int64_t begin, int64_t end) {
        float* mine = sums ? nullptr : static_cast<float*>(scratch(size_t(of_task) * 4, kSlotProducts));
        for (int64_t task = begin; task < end; ++task) {
          float* u = sums ? sums + task * of_task : mine;
          for (int point = 0; point < kPoints; ++point) multiply(task, point, count, t0 > 0, u);
          for (int64_t r = 0; last && r < rows_of(task); ++r) finish(task, r, u);
        }
      });
    }
  }
  if (by_point)
    parallel_for(blocks * kGradientBlock, kGradientBlock / 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        if (int64_t task = i / kGradientBlock, row = i % kGradientBlock; row < rows_of(task))
          finish(task, row, sums + task * of_task);
    });
  if constexpr (sizeof(T) == 4)
    if (f.dbias)
      sum_over_pixels(dy.data, dy.batch * dy.frames * dy.height * dy.width, dy.channels, f.dbias.as<float>());
}

static void backward_weights(const ConvBackwardWeights& f) {
  if (is_shape_over_time(f.dweight, f.shape)) return convolve_over_time(f);
  if (f.x.dtype == kBFloat16)
    return backward_weights_laid<BFloat16>(f, f.x.as<const BFloat16>(), f.dy.as<const BFloat16>());
  const Laid lx(f.x, kSlotX, true), ly(f.dy, kSlotY, true);
  backward_weights_laid<float>(f, lx.data(), ly.data());
}

static bool supports_weights(const ConvBackwardWeights& f) {
  const bool floats =
      float_image(f.x) && float_image(f.dy) && f.dweight.dtype == kFloat32 && (!f.dbias || f.dbias.dtype == kFloat32);
  if (floats && is_worth_over_time(f)) return true;
  // oneDNN's sum in bfloat16 is for pictures only
  const bool halves =
      f.dweight.ndim == 5 && bf16_image(f.x) && bf16_image(f.dy) && f.dweight.dtype == kBFloat16 && !f.dbias;
  return (floats || halves) && shape_ok(f.dweight, f.shape) && worth(f.dy);
}

}  // namespace SF_ISA

SF_KERNEL(conv_backward_weights, DeviceType::CPU, "winograd", 20 + SF_ISA_PRIORITY, SF_ISA::backward_weights,
          SF_ISA::supports_weights)

}  // namespace sf
#endif
