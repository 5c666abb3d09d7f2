// Input of a convolution whose strides in the picture are 1, as tiles read it where it lies: for a block of results the
// pixels that they see, with their padding. A result is at one distance from its pixel under every tap, so that no tap
// needs a copy of its own: a ninth of what packed rows take (conv_product.h), and of what packing costs.
// Included only by *.cpu.cpp and *.amx.cpp files; everything lives in namespace sf::SF_ISA.
//
// Rows of results are positions: those of a frame one row after the other, each with as many behind it as its taps see
// beyond, up to a multiple of 16. Any 16 that begin at one are 16 pixels at one distance, whatever the width; what is
// computed for a position that is no result is dropped. Taps over time have a copy of the block each, of their frames.
#pragma once
#include <utility>

#include "scaffolding/ops/conv/conv_geometry.h"
#include "scaffolding/ops/matmul/packed_gemm.h"

namespace sf {
namespace SF_ISA {

// kForward: results are pixels of y, and data is x; else the other way round.
template <class Src, bool kForward> struct StagedRows {
  const ConvGeometry* g = nullptr;
  const Src* data = nullptr;  // null: not staged. Channels-last, first channel of the group
  int64_t pixel = 0;          // stride between pixels: all channels
  int64_t channels = 0, padded = 0;
  int64_t before[2] = {};          // padding above, on the left
  int64_t line = 0, reach = 0;     // positions of a row; to the furthest tap of a frame
  int64_t block = 0;               // positions that are staged at once
  const int32_t* steps = nullptr;  // elements from a result's first tap to each unit of k

  SF_INLINE int64_t per_frame() const { return ceil_div(results()[1] * line, 16) * 16; }
  // Positions of a block's copy for one tap over time: each frame in it sees `reach` more.
  SF_INLINE int64_t plane(int64_t positions) const { return positions + (positions / per_frame() + 2) * reach; }
  SF_INLINE int64_t most_bytes(int64_t positions) const {
    return g->kernel[0] * plane(positions) * padded * int64_t(sizeof(Src)) + 4096;
  }
  // Whether a row of taps fits in L1 with what it is multiplied by: its pixels are then read from there, but for the
  // first tap (128 channels, 256 x 256: 7 % faster; 320 channels would be 13 % slower).
  SF_INLINE bool again() const { return g->kernel[2] * padded <= 12 * 32; }

  SF_INLINE const int64_t* size() const { return kForward ? g->in : g->out; }  // of data
  SF_INLINE const int64_t* results() const { return kForward ? g->out : g->in; }
  // The frame of data that a tap over time pairs with a frame of results, or null.
  const Src* frame_of(int64_t result, int64_t tap) const {
    const int64_t frame = kForward ? g->frame_of_x(result, tap) : g->frame_of_y(result, tap);
    return frame < 0 ? nullptr : data + frame * size()[1] * size()[2] * pixel;
  }

  // Positions first .. first + count of positions of one row of data.
  void copy(Src* to, const Src* from, int64_t count) const {
    if (pixel == padded && channels == padded) {
      std::memcpy(static_cast<void*>(to), from, size_t(count * padded) * sizeof(Src));
      return;
    }
    for (int64_t i = 0; i < count; ++i, to += padded, from += pixel) {
      std::memcpy(static_cast<void*>(to), from, size_t(channels) * sizeof(Src));
      std::memset(static_cast<void*>(to + channels), 0, size_t(padded - channels) * sizeof(Src));
    }
  }
  void stage_frame(Src* to, const Src* frame, int64_t first, int64_t count) const {
    auto zero = [&](int64_t n) {
      std::memset(static_cast<void*>(to), 0, size_t(n * padded) * sizeof(Src));
      to += n * padded;
    };
    while (count > 0) {
      const int64_t y = first / line - before[0], column = first % line, run = min64(count, line - column);
      if (!frame || y < 0 || y >= size()[1]) {
        zero(run);
      } else {
        const int64_t left = min64(run, max64(0, before[1] - column)),
                      end = min64(run, max64(left, before[1] + size()[2] - column));
        zero(left);
        copy(to, frame + (y * size()[2] + column + left - before[1]) * pixel, end - left);
        to += (end - left) * padded;
        zero(run - end);
      }
      first += run, count -= run;
    }
  }
  // Results first .. first + count.
  [[gnu::noinline]] void stage(Src* to, int64_t first, int64_t count) const {
    const int64_t each = per_frame(), step = plane(block) * padded;
    while (count > 0) {
      const int64_t frame = first / each, at = first % each, n = min64(count, each - at);
      for (int64_t tap = 0; tap < g->kernel[0]; ++tap)
        stage_frame(to + tap * step, frame_of(frame, tap), at, n + reach);
      to += (n + reach) * padded, first += n, count -= n;
    }
  }
  // Taps over time, first .. last, outside of which results first .. first + count have no frame. Never none.
  std::pair<int64_t, int64_t> time_taps(int64_t first, int64_t count) const {
    int64_t from = g->kernel[0], to = 0;
    for (int64_t frame = first / per_frame(); frame <= (first + count - 1) / per_frame(); ++frame)
      for (int64_t tap = 0; tap < g->kernel[0]; ++tap)
        if (frame_of(frame, tap)) from = min64(from, tap), to = max64(to, tap + 1);
    if (from >= to) return {0, 1};
    return {from, to};
  }
  // Where the first tap of a result lies among what was staged from `first` on.
  SF_INLINE const Src* at(const Src* staged, int64_t first, int64_t result) const {
    const int64_t crossed = result / per_frame() - first / per_frame();
    return staged + (result - first + crossed * reach) * padded;
  }
  // f(row of the results, row of the positions, count) for what of `count` positions are results.
  template <class F> SF_INLINE void each_result(int64_t first, int64_t count, const F& f) const {
    const int64_t each = per_frame();
    for (int64_t i = 0; i < count;) {
      const int64_t frame = (first + i) / each, at = (first + i) % each, y = at / line, x = at % line,
                    run = min64(min64(count - i, each - at), line - x);
      if (y < results()[1] && x < results()[2])
        f((frame * results()[1] + y) * results()[2] + x, int(i), int(min64(run, results()[2] - x)));
      i += run;
    }
  }
};

}  // namespace SF_ISA
}  // namespace sf
