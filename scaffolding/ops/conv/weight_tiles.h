// The gradient of the weight of a convolution, by tiles of bfloat16: dw[o][tap][c] = sum over positions p of
// dy[p][o] * x[p + tap][c], where the strides in the picture are 1.
//
// The rows of a frame follow each other with their padding between them, `line` positions each: a tap is one distance
// for all positions, and what has no result is a dy of zero. A line of a tile is two neighbouring positions of 16
// channels; a tap at an odd distance pairs them the other way, so that x is staged in both pairings and no tap packs it
// anew. Taps over time pair whole frames. dy is packed once, for all threads; a thread takes blocks of sums
// (o x taps x c) that stay in L2 while all positions go by.
// Included only by *.amx.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include <vector>

#include "scaffolding/core/parallel_guided.h"
#include "scaffolding/ops/conv/conv_calls.h"

namespace sf {
namespace SF_ISA {

struct WeightTiles {
  ConvGeometry g;
  const BFloat16 *x, *dy, *zeros;  // first channel of the group; as many zeros as either has channels
  int64_t x_pixel, dy_pixel;       // elements from one pixel to the next
  int64_t in, out;                 // channels of the group
  TensorView dw;
  int64_t first_out;  // of dw's rows

  static constexpr int64_t kStep = 32, kPanel = 32;  // positions of a step, o of a panel
  static constexpr int64_t kTogether = 16;           // steps whose panel of dy stays in L1
  static constexpr int64_t kSumBytes = 768 << 10, kStageBytes = 640 << 10, kPackedBytes = int64_t(16) << 20;

  int64_t line() const { return (g.out[2] + (g.kernel[2] - 1) * g.dilation[2] + 1) & ~int64_t(1); }
  int64_t steps() const { return ceil_div(g.out[1] * line(), kStep); }  // of a frame
  int64_t frames() const { return g.batch * g.out[0]; }                 // of results
  int64_t panels() const { return ceil_div(out, kPanel); }
  int64_t taps() const { return g.kernel[1] * g.kernel[2]; }  // of a frame
  int64_t tap_distance(int64_t tap) const {
    return tap / g.kernel[2] * g.dilation[1] * line() + tap % g.kernel[2] * g.dilation[2];
  }

  static bool supports(const ConvBackwardWeights& f) {
    const int n = f.x.ndim - 2;
    int64_t taps = 1;
    for (int i = n > 2 ? 1 : 0; i < n; ++i) {
      if (f.shape.stride[i] != 1) return false;
      taps *= f.dweight.sizes[i + 2];
    }
    return n > 1 && taps > 1;
  }

  // The frame of x that tap t over time pairs with a frame of results, or null.
  const BFloat16* frame_of_x(int64_t frame, int64_t t) const {
    const int64_t at = g.frame_of_x(frame, t);
    return at < 0 ? nullptr : x + at * g.in[1] * g.in[2] * x_pixel;
  }

  // dy of a frame, 32 positions from `step` on: [panel][step][32 o], a line of positions each.
  void pack_dy(TileLine* to, int64_t frame, int64_t step) const {
    const BFloat16* from[kStep];
    const int64_t l = line();
    for (int64_t i = 0; i < kStep; ++i) {
      const int64_t p = step * kStep + i, row = p / l, column = p % l;
      const bool there = row < g.out[1] && column < g.out[2];
      from[i] = there ? dy + ((frame * g.out[1] + row) * g.out[2] + column) * dy_pixel : zeros;
    }
    for (int64_t o = 0; o < panels() * kPanel; o += 16) {
      TileLine lines[16];
      for (int p = 0; p < 16; ++p)
        lines[p] = o < out ? join_pairs(load_half(from[2 * p] + o, out - o), load_half(from[2 * p + 1] + o, out - o))
                           : TileLine{};
      turn_pairs(lines);
      TileLine* panel = to + (o / kPanel * steps() + step) * kPanel + o % kPanel;
      for (int i = 0; i < 16; ++i) panel[i] = lines[i];
    }
  }

  // Channels c .. c + count of positions first .. first + 2 * pairs of a frame with its padding, first being even:
  // to[pairing][group of 16][pair], `lines` pairs from one group to the next.
  void stage(TileLine* to, int64_t lines, const BFloat16* frame, int64_t first, int64_t pairs, int64_t c,
             int64_t count) const {
    const int64_t l = line(), groups = ceil_div(count, 16);
    int64_t y = first / l - g.padding[1], at = first % l;
    auto next = [&] {
      const int64_t column = at - g.padding[2];
      const bool there = y >= 0 && y < g.in[1] && column >= 0 && column < g.in[2];
      const BFloat16* p = there ? frame + (y * g.in[2] + column) * x_pixel + c : zeros;
      if (++at == l) at = 0, ++y;
      return p;
    };
    const BFloat16* even = next();
    for (int64_t q = 0; q < pairs; ++q) {
      const BFloat16 *odd = next(), *after = next();
      for (int64_t i = 0; i < groups; ++i) {
        const int64_t n = count - 16 * i;
        const HalfLine middle = load_half(odd + 16 * i, n);
        to[i * lines + q] = join_pairs(load_half(even + 16 * i, n), middle);
        to[(groups + i) * lines + q] = join_pairs(middle, load_half(after + 16 * i, n));
      }
      even = after;
    }
  }
};

// Where the operands of one step lie, in lines.
struct WeightStep {
  int64_t dy;     // from the first panel of its frame
  int64_t pairs;  // from the first of a group
};

// c[32 o][NV * 16 channels] += dy * x over `count` steps. `begins`: c holds nothing yet.
template <int kHigh, int NV>
[[gnu::noinline]] void sum_positions(const WeightStep* at, int64_t count, const TileLine* dy, const TileLine* pairs,
                                     int64_t group, float* c, bool begins, const char* ahead, int64_t ahead_step) {
  constexpr bool tall = kHigh == 2, wide = NV == 2;
  if (begins) {
    tile_zero<0>();
    if constexpr (wide) tile_zero<1>();
    if constexpr (tall) tile_zero<2>();
    if constexpr (tall && wide) tile_zero<3>();
  } else {
    tile_load<0>(c, 128);
    if constexpr (wide) tile_load<1>(c + 16, 128);
    if constexpr (tall) tile_load<2>(c + 16 * 32, 128);
    if constexpr (tall && wide) tile_load<3>(c + 16 * 32 + 16, 128);
  }
  for (int64_t k = 0; k < count; ++k, ahead += ahead_step) {
    const TileLine *a = dy + at[k].dy, *b = pairs + at[k].pairs;
    tile_load<4>(a, 64);
    tile_stream<6>(b, 64);
    tile_dot_bf16<0, 4, 6>();
    if constexpr (wide) {
      tile_stream<7>(b + group, 64);
      tile_dot_bf16<1, 4, 7>();
    }
    if constexpr (tall) {
      tile_load<5>(a + 16, 64);
      tile_dot_bf16<2, 5, 6>();
      if constexpr (wide) tile_dot_bf16<3, 5, 7>();
    }
    for (int64_t i = 0; i < ahead_step; i += 64) __builtin_prefetch(ahead + i, 0, 2);
  }
  tile_store<0>(c, 128);
  if constexpr (wide) tile_store<1>(c + 16, 128);
  if constexpr (tall) tile_store<2>(c + 16 * 32, 128);
  if constexpr (tall && wide) tile_store<3>(c + 16 * 32 + 16, 128);
}

// A block of sums: `panels` panels of o and `channels` channels (whole strips of 32 but for the last block).
struct WeightBlocks {
  int64_t panels, channels, rows, columns;  // of a block; how many blocks there are either way
  int64_t sums(int64_t taps) const { return panels * taps * channels * WeightTiles::kPanel; }  // floats
};
// The blocks whose busiest thread needs least: multiplying, reading dy (L3: 6 bytes a cycle), staging x.
inline WeightBlocks choose_blocks(const WeightTiles& t) {
  WeightBlocks best{};
  double least = 0;
  const int64_t strips = ceil_div(t.in, 32), threads = num_threads();
  for (int64_t rows = 1; rows <= t.panels(); ++rows)
    for (int64_t columns = 1; columns <= strips; ++columns) {
      WeightBlocks b{ceil_div(t.panels(), rows), ceil_div(strips, columns) * 32};
      if (b.sums(t.taps()) * 4 > WeightTiles::kSumBytes && (b.panels > 1 || b.channels > 32)) continue;
      b.rows = ceil_div(t.panels(), b.panels), b.columns = ceil_div(strips * 32, b.channels);
      const double turns = double(ceil_div(b.rows * b.columns * t.g.kernel[0], threads));
      const double o = double(b.panels) * WeightTiles::kPanel, c = double(b.channels);
      const double cost = turns * (o * c * double(t.taps()) / 512 + o / 3 + c);
      if (least == 0 || cost < least) least = cost, best = b;
    }
  return best;
}

// All frames first .. last of one block, for tap `time`: adds to sums[panel][tap][strip][32 o][32 channels].
inline void sum_frames(const WeightTiles& t, const TileLine* dy, const WeightBlocks& b, int64_t row, int64_t column,
                       int64_t time, int64_t first, int64_t last, float* sums, bool begins) {
  const int64_t p0 = row * b.panels, p1 = min64(t.panels(), p0 + b.panels), c0 = column * b.channels,
                channels = min64(b.channels, t.in - c0), groups = ceil_div(channels, 16), strips = b.channels / 32,
                steps = t.steps(), taps = t.taps(), reach = t.tap_distance(taps - 1);
  // Steps whose x is staged at once, and the pairs that they see: each frame's last steps see `reach` more.
  const int64_t beyond = ceil_div(reach, 2) + 1,
                most = max64(WeightTiles::kTogether, (WeightTiles::kStageBytes / (groups * 128) - beyond) / 16),
                group = most * 16 + (most / steps + 2) * beyond;
  TileLine* staged = static_cast<TileLine*>(scratch(size_t(2 * groups * group) * 64, kSlotA));
  std::vector<WeightStep> at;
  at.reserve(size_t(most));
  int64_t pairs = 0;  // staged
  [[maybe_unused]] TileScope scope;
  auto multiply = [&] {
    const int64_t count = int64_t(at.size());
    for (int64_t s = 0; s < count; s += WeightTiles::kTogether) {
      const int64_t n = min64(count - s, WeightTiles::kTogether);
      for (int64_t p = p0; p < p1; ++p) {
        const TileLine* panel = dy + p * steps * WeightTiles::kPanel;
        const bool low = t.out - p * WeightTiles::kPanel <= 16;
        // The next panel comes from L3 while this one is used.
        const char* ahead = reinterpret_cast<const char*>(panel + at[size_t(s)].dy + steps * WeightTiles::kPanel);
        const int64_t ahead_step = ceil_div(WeightTiles::kPanel, taps * strips) * 64;
        for (int64_t tap = 0; tap < taps; ++tap) {
          const int64_t distance = t.tap_distance(tap);
          const TileLine* from = staged + distance % 2 * groups * group + distance / 2;
          for (int64_t i = 0; i < ceil_div(groups, 2); ++i) {
            float* c = sums + (((p - p0) * taps + tap) * strips + i) * 1024;
            const bool narrow = 2 * i + 1 == groups;
            const auto run = low ? (narrow ? &sum_positions<1, 1> : &sum_positions<1, 2>)
                                 : (narrow ? &sum_positions<2, 1> : &sum_positions<2, 2>);
            run(at.data() + s, n, panel, from + 2 * i * group, group, c, begins, ahead, ahead_step);
            ahead += n * ahead_step;
          }
        }
      }
      begins = false;
    }
    at.clear();
    pairs = 0;
  };
  for (int64_t frame = first; frame < last; ++frame) {
    const BFloat16* x = t.frame_of_x(frame, time);
    if (!x) continue;
    for (int64_t step = 0; step < steps;) {
      const int64_t n = min64(steps - step, most - int64_t(at.size())), count = n * 16 + beyond;
      t.stage(staged + pairs, group, x, step * WeightTiles::kStep, count, c0, channels);
      for (int64_t i = 0; i < n; ++i)
        at.push_back({((frame - first) * t.panels() * steps + step + i) * WeightTiles::kPanel, pairs + 16 * i});
      pairs += count, step += n;
      if (int64_t(at.size()) == most) multiply();
    }
  }
  if (!at.empty()) multiply();
  if (begins) __builtin_memset(sums, 0, size_t(b.sums(taps)) * sizeof(float));
}

// dw from a block's sums.
inline void store_block(const WeightTiles& t, const WeightBlocks& b, int64_t row, int64_t column, int64_t time,
                        const float* sums) {
  const int64_t o0 = row * b.panels * WeightTiles::kPanel, o1 = min64(t.out, o0 + b.panels * WeightTiles::kPanel),
                c0 = column * b.channels, channels = min64(b.channels, t.in - c0), strips = b.channels / 32,
                taps = t.taps();
  const int last = t.dw.ndim - 1;
  const int64_t* stride = t.dw.strides;
  visit_stored(t.dw.dtype, [&](auto tag) {
    using D = typename decltype(tag)::type;
    for (int64_t o = o0; o < o1; ++o) {
      D* to = t.dw.as<D>() + (t.first_out + o) * stride[0] + c0 * stride[1] + (last > 3 ? time * stride[2] : 0);
      const float* from = sums + (o - o0) / WeightTiles::kPanel * taps * strips * 1024 + (o - o0) % 32 * 32;
      auto at = [&](int64_t tap) {
        return tap / t.g.kernel[2] * stride[last - 1] + tap % t.g.kernel[2] * stride[last];
      };
      if (stride[1] == 1) {
        for (int64_t tap = 0; tap < taps; ++tap)
          for (int64_t c = 0; c < channels; ++c)
            store_one<D>(to + at(tap), c, from[(tap * strips + c / 32) * 1024 + c % 32]);
      } else {
        for (int64_t c = 0; c < channels; ++c)
          for (int64_t tap = 0; tap < taps; ++tap)
            store_one<D>(to + c * stride[1], at(tap), from[(tap * strips + c / 32) * 1024 + c % 32]);
      }
    }
  });
}

inline void weight_of_group(const WeightTiles& t) {
  const WeightBlocks b = choose_blocks(t);
  const int64_t steps = t.steps(), frame_lines = t.panels() * steps * WeightTiles::kPanel;
  // Frames whose packed dy is held at once. Where these are not all, sums wait for the next ones.
  const int64_t together = max64(1, min64(t.frames(), WeightTiles::kPackedBytes / (frame_lines * 64)));
  const bool whole = together >= t.frames();
  const int64_t tasks = b.rows * b.columns * t.g.kernel[0];
  TileLine* dy = static_cast<TileLine*>(scratch(size_t(together * frame_lines) * 64, kSlotPackedB));
  float* waiting =
      whole ? nullptr : static_cast<float*>(scratch(size_t(tasks * b.sums(t.taps())) * sizeof(float), kSlotGradient));
  for (int64_t f0 = 0; f0 < t.frames() || f0 == 0; f0 += together) {
    const int64_t f1 = min64(t.frames(), f0 + together);
    parallel_for((f1 - f0) * steps, max64(1, 4096 / t.out), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) t.pack_dy(dy + i / steps * frame_lines, f0 + i / steps, i % steps);
    });
    parallel_for_guided(tasks, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t time = i / (b.rows * b.columns), row = i / b.columns % b.rows, column = i % b.columns;
        float* sums = waiting ? waiting + i * b.sums(t.taps())
                              : static_cast<float*>(scratch(size_t(b.sums(t.taps())) * sizeof(float), kSlotSums));
        sum_frames(t, dy, b, row, column, time, f0, f1, sums, f0 == 0);
        if (f1 == t.frames()) store_block(t, b, row, column, time, sums);
      }
    });
  }
}

inline void weights_on_tiles(const ConvBackwardWeights& f) {
  const ConvGeometry g = ConvGeometry::of(f.x, f.dweight, f.dy, f.shape);
  const int64_t groups = f.shape.groups, in = f.dweight.sizes[1], out = f.dweight.sizes[0] / groups;
  const BFloat16 *x = laid_input<BFloat16>(f.x, kSlotX), *dy = laid_input<BFloat16>(f.dy, kSlotY),
                 *zeros = zero_row<BFloat16>(max64(in, out));
  for (int64_t i = 0; i < groups; ++i)
    weight_of_group({g, x + i * in, dy + i * out, zeros, f.x.sizes[1], f.dy.sizes[1], in, out, f.dweight, i * out});
  if (f.dbias) bias_gradient<float>(f.dbias, dy, g.out_pixels(), f.dy.sizes[1]);
}

}  // namespace SF_ISA
}  // namespace sf
