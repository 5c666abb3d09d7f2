// A Winograd convolution, from tiles to tiles. Included only by *.cpu.cpp files; everything lives in namespace
// sf::SF_ISA.
//
// Data flow. Tiles of x are transformed to v[point][channels][tile][c] (L3). Then a task takes a strip of output
// channels: it transforms a block of input channels of its weights at a time into u[point][c][strip] (L2; a transformed
// weight never goes to memory, where it would be four times the size of the weight), multiplies each point's plane
// into m[point][tile][strip], and after the last channels transforms m back and stores y with bias, residual and
// activation. While a product runs, the next tiles come to L1 and the next weights to L2. With few tiles the transform
// would be most of the work: winograd_few.h.
// Of a video, a round takes some places of tiles at all times. A frame of x is transformed once and multiplied by every
// frame of the kernel, u[point][frame][c][strip]; those products are one sum.
// An input that is to be normalised or enlarged first passes a band of rows at a time through a buffer (L3).
#pragma once
#include "scaffolding/core/parallel_guided.h"
#include "scaffolding/ops/conv/winograd_8.h"
#include "scaffolding/ops/conv/winograd_few.h"
#include "scaffolding/ops/conv/winograd_tiles.h"

namespace sf {
namespace SF_ISA {

// Rows of a round, [time][place], whose times see the same frames of the kernel: the others lie before the video or
// behind it. A product is made of such rows only, and nothing is multiplied by zeros in time.
struct Segment {
  int64_t first, rows, tap, taps;
  SF_INLINE int64_t panels() const { return ceil_div(rows, kStridedRows); }
};
class Segments {
 public:
  // Of rows first .. first + rows of the result, `places` at a time; x has `frames`, `lead` zero ones before them.
  Segments(int64_t first, int64_t rows, int64_t places, int64_t frames, int64_t taps, int64_t lead) {
    for (int64_t row = first, end = first + rows; row < end;) {
      const int64_t time = row / places, next = min64(end, (time + 1) * places);
      const int64_t tap = max64(0, lead - time), seen = min64(taps, frames + lead - time) - tap;
      if (count_ == 0 || last().tap != tap || last().taps != seen) list_[count_++] = {row, 0, tap, seen};
      last().rows += next - row;
      row = next;
    }
    for (const Segment& s : *this) panels_ += s.panels();
  }
  SF_INLINE const Segment* begin() const { return list_; }
  SF_INLINE const Segment* end() const { return list_ + count_; }
  SF_INLINE int64_t panels() const { return panels_; }

 private:
  SF_INLINE Segment& last() { return list_[count_ - 1]; }
  Segment list_[2 * kMostTaps];
  int64_t count_ = 0, panels_ = 0;
};

// Zeros before x.
struct Before {
  int64_t down, across, time = 0;
};

SF_INLINE int64_t depth_block_of(int64_t channels, int64_t taps, int64_t most) {
  return ceil_div(channels / 16, ceil_div(channels * taps, most)) * 16;
}

// Strips x parts of the tiles, at least `least`, so that no thread waits long for another: the fewest parts that keep
// threads 90 % busy.
inline int64_t parts_for(int64_t strips, int64_t tiles, int64_t least) {
  const int64_t threads = num_threads();
  for (int64_t parts = least; parts < 8; ++parts) {
    const int64_t tasks = strips * parts;
    if (tasks * 10 >= ceil_div(tasks, threads) * threads * 9 || tiles / (parts + 1) < 2 * kStridedRows) return parts;
  }
  return max64(8, least);
}

// What happens to x on the way to its convolution.
struct Preparation {
  int64_t repeat = 1;
  const float *gain = nullptr, *offset = nullptr;  // [N][C]: silu(x * gain + offset), or as it is

  // Rows first .. first + count of picture n, enlarged.
  template <class T> void fill(const Image<T>& x, int64_t n, int64_t first, int64_t count, float* band) const {
    const int64_t C = x.channels, width = x.width * repeat;
    const float *g = gain ? gain + n * C : nullptr, *o = gain ? offset + n * C : nullptr;
    parallel_for(count, max64(1, 16384 / (width * C)), [=, this](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* from = x.data + (n * x.height + (first + r) / repeat) * x.width * C;
        float* to = band + r * width * C;
        for (int64_t p = 0; p < x.width; ++p, from += C)
          for (int64_t k = 0; k < repeat; ++k, to += C)
            for (int64_t c = 0; c < C; c += L) {
              vf v = load(from + c);
              store(to + c, g ? activate(Activation::Silu, fma(v, load(g + c), load(o + c))) : v);
            }
      }
    });
  }
  template <class T> void fill_pictures(const Image<T>& x, int64_t first, int64_t count, float* band) const {
    const int64_t height = x.height * repeat;
    for (int64_t i = 0; i < count; ++i)
      fill(x, first + i, 0, height, band + i * height * x.width * repeat * x.channels);
  }
};

#if defined(__AVX512F__)
// a pass: 150 KB of v, 16 vectors of outputs with 300 KB of sums, in L2
constexpr int64_t kFewTiles = 8, kFewDepth = 128, kFewOutputs = 16;

template <class T, class W>
static void convolve_few(const Image<T>& x, const Filter<W>& w, const Output<T>& y, const Before& pad,
                         const Preparation* prepared) {
  const Tiles tiles = tiles_of(x.batch, y.height, y.width);
  const int64_t channels = x.channels, count = tiles.count(), groups = ceil_div(count, kFewGroup);
  float* v = static_cast<float*>(scratch(size_t(channels / kFewChannels * groups * kFewSums) * 4, kSlotInput));
  const FewPlanes planes{v, groups};
  if (count % kFewGroup)  // tiles that are not there: what lies in memory may be slow to multiply by
    for (int64_t c = 0; c < channels; c += kFewChannels)
      __builtin_memset(planes.at(groups * kFewGroup - kFewGroup, c), 0, kFewSums * 4);
  if (prepared) {
    const int64_t repeat = prepared->repeat, height = x.height * repeat, width = x.width * repeat;
    float* band = static_cast<float*>(scratch(size_t(x.batch * height * width * channels) * 4, kSlotX));
    prepared->fill_pictures(x, 0, x.batch, band);
    transform_tiles<InputTiles<Form4>>(Image<float>{band, x.batch, height, width, channels}, {tiles, 0, count},
                                       pad.down, pad.across, planes);
  } else {
    transform_tiles<InputTiles<Form4>>(x, {tiles, 0, count}, pad.down, pad.across, planes);
  }
  parallel_for(y.channels / L, 1, [&](int64_t begin, int64_t end) {
    float* halves = static_cast<float*>(scratch(size_t(kFewChannels * 18 * L) * 4, kSlotWeight));
    float* m = static_cast<float*>(scratch(size_t(kFewOutputs * groups * kFewSums) * 4, kSlotProducts));
    for (int64_t j0 = begin; j0 < end; j0 += kFewOutputs) {
      const int64_t j1 = min64(end, j0 + kFewOutputs);
      for (int64_t c0 = 0; c0 < channels; c0 += kFewDepth) {
        const int64_t depth = min64(kFewDepth, channels - c0);
        for (int64_t j = j0; j < j1; ++j) {
          // The rows of weights after these come while these are multiplied.
          const bool last = j + 1 == j1, more = c0 + depth < channels;
          const int64_t j_next = !last  ? j + 1
                                 : more ? j0
                                        : min64(j1, y.channels / L - 1),
                        c_next = !last  ? c0
                                 : more ? c0 + depth
                                        : 0;
          const int64_t row_bytes = min64(kFewDepth, channels - c_next) * 9 * int64_t(sizeof(W)),
                        calls = depth / kFewChannels * groups * kInput;
          int64_t call = 0;
          for (int64_t c = c0; c < c0 + depth; c += kFewChannels) {
            transform_columns(w, j * L, c, halves);
            for (int64_t g = 0; g < groups; ++g)
              for (int r = 0; r < kInput; ++r, ++call) {
                const int64_t bytes = ceil_div(L * row_bytes, calls), at = call * bytes,
                              o = min64(L - 1, at / row_bytes);
                product_few(halves + r * kFewChannels * 3 * L,
                            planes.at(g * kFewGroup, c) + r * kInput * FewPlanes::plane,
                            m + ((j - j0) * groups + g) * kFewSums + r * kInput * FewPlanes::plane, c > 0,
                            {reinterpret_cast<const char*>(w.at(j_next * L + o, c_next)) + at - o * row_bytes,
                             ceil_div(bytes, kFewChannels)});
              }
          }
        }
      }
      for (int64_t j = j0; j < j1; ++j)
        for (int64_t t = 0; t < count; ++t) {
          int64_t n, r, c;
          tiles.place(t, n, r, c);
          store_tile<Form4>(y, n, r, c, j * L, 1,
                            m + ((j - j0) * groups + t / kFewGroup) * kFewSums + t % kFewGroup * L, FewPlanes::plane);
        }
    }
  });
}
#endif

template <class Form, class T, class W>
static void convolve_as(const Image<T>& x, const Filter<W>& w, const Output<T>& y, const Before& pad,
                        const Preparation* prepared) {
  constexpr int kTile = Form::kTile, kPoints = Form::kPoints;
  const Tiles tiles = tiles_of(x.batch, y.height, y.width, kTile);
  const int64_t channels = x.channels, depth_block = depth_block_of(channels, w.taps, Form::kChannelBlock);
  const int64_t row = ceil_div(channels, depth_block) * depth_block,
                fit = Form::kTransformedBytes / (kPoints * row * 4);
  // A round's places take their tiles at every time along.
  const int64_t most = max64(1, max64(fit, max64(Form::kLeastTiles, min64(Form::kFairTiles, 3 * fit))) / x.frames);
  // Rounds of tiles: as many as fit. With a preparation, whole pictures, or whole rows of tiles of one.
  const int64_t picture = tiles.down * tiles.across, pictures = max64(1, min64(x.batch, most / picture));
  const int64_t piece = prepared ? pictures * picture : tiles.count(), unit = prepared ? tiles.across : 1;
  const int64_t rounds = ceil_div(piece, max64(unit, most / unit * unit)),
                per_round = ceil_div(ceil_div(piece, unit), rounds) * unit;
  const int64_t plane = plane_of(per_round * x.frames * row), strips = ceil_div(y.channels, NR),
                u_plane = plane_of(w.taps * depth_block * NR);
  float* v = static_cast<float*>(scratch(size_t(kPoints * plane) * 4, kSlotInput));
  const int64_t repeat = prepared ? prepared->repeat : 1, height = x.height * repeat, width = x.width * repeat;
  float* band = nullptr;
  if (prepared)
    band = static_cast<float*>(scratch(
        size_t((pictures > 1 ? pictures * height : per_round / unit * kTile + 2) * width * channels) * 4, kSlotX));
  for (int64_t t0 = 0, count = 0; t0 < tiles.count(); t0 += count) {
    count = min64(per_round, min64(piece - t0 % piece, tiles.count() - t0));
    const Planes planes{v, plane, depth_block, count * x.frames};
    if (prepared && pictures > 1) {
      prepared->fill_pictures(x, t0 / picture, count / picture, band);
      transform_tiles<InputTiles<Form>>(Image<float>{band, count / picture, height, width, channels}, {tiles, 0, count},
                                        pad.down, pad.across, planes);
    } else if (prepared) {
      int64_t n, row0, col;
      tiles.place(t0, n, row0, col);
      const int64_t down = count / unit, first = max64(0, row0 - pad.down),
                    last = min64(height, row0 + down * kTile + 2 - pad.down);
      prepared->fill(x, n, first, last - first, band);
      transform_tiles<InputTiles<Form>>(Image<float>{band, 1, last - first, width, channels},
                                        {{1, down, tiles.across, kTile}, 0, count}, pad.down + first - row0, pad.across,
                                        planes);
    } else {
      transform_tiles<InputTiles<Form>>(x, {tiles, t0, count}, pad.down, pad.across, planes);
    }
    const int64_t all_rows = count * y.frames, parts = parts_for(strips, all_rows, ceil_div(all_rows, Form::kMostRows));
    parallel_for_guided(strips * parts, [&](int64_t begin, int64_t end) {
      const int64_t m_plane = plane_of(ceil_div(all_rows, parts) * NR);
      float* u = static_cast<float*>(scratch(size_t(kPoints * u_plane) * 4, kSlotWeight));
      float* m = static_cast<float*>(scratch(size_t(kPoints * m_plane) * 4, kSlotProducts));
      auto cols_of = [&](int64_t task) { return int(min64(NR, y.channels - task % strips * NR)); };
      for (int64_t task = begin; task < end; ++task) {
        const int64_t p = task / strips, o0 = task % strips * NR, first = all_rows * p / parts,
                      rows = all_rows * (p + 1) / parts - first;
        const Segments segments(first, rows, count, x.frames, w.taps, pad.time);
        const int64_t calls = kPoints * segments.panels(), per_row = calls / NR;
        const int vecs = cols_of(task) <= L ? 1 : kTileVecs;
        for (int64_t c0 = 0; c0 < channels; c0 += depth_block) {
          const int64_t depth = min64(depth_block, channels - c0), frame = count * depth_block;
          transform_filter<Form>(w, o0, cols_of(task), c0, depth, u, u_plane);
          // The weights that are transformed next: each row of them is asked for in per_row calls.
          const bool more = c0 + depth < channels;
          const int64_t next = more ? task : min64(task + 1, end - 1), c_next = more ? c0 + depth : 0;
          const int64_t row_bytes = min64(depth_block, channels - c_next) * w.numbers() * int64_t(sizeof(W));
          const bool ahead = w.contiguous() && cols_of(next) == NR && per_row > 0;
          const int64_t call_bytes = ahead ? ceil_div(row_bytes, per_row) : 0;
          int64_t next_row = ahead ? 0 : NR, of_row = 0;
          const float* block = planes.at(0, c0);
          for (int64_t point = 0; point < kPoints; ++point) {
            int64_t left = segments.panels();
            for (const Segment& s : segments) {
              // panels of so many rows, and one more each where they do not come out even
              const int64_t panels = s.panels(), even = s.rows / panels, longer = s.rows % panels;
              const int64_t weight_step = ceil_div(call_bytes, depth * s.taps);
              int64_t r0 = s.first;
              for (int64_t q = 0; q < panels; ++q) {
                const int mr = int(even + (q < longer));
                const float* from = block + point * plane + (r0 + (s.tap - pad.time) * count) * depth_block;
                // of the last tap: rows that no tap before has read
                const float* then = --left > 0 ? from + (s.taps - 1) * frame + mr * depth_block
                                               : block + (point + 1 < kPoints ? point + 1 : 0) * plane +
                                                     max64(0, first - pad.time * count) * depth_block;
                Ahead weights{reinterpret_cast<const char*>(from), 0};
                if (next_row < NR) {
                  weights = {
                      reinterpret_cast<const char*>(w.at(next % strips * NR + next_row, c_next)) + of_row * call_bytes,
                      weight_step};
                  if (++of_row == per_row) of_row = 0, ++next_row;
                }
                product_for(mr, vecs)(depth, {from, depth_block, frame, s.taps},
                                      u + point * u_plane + s.tap * depth * NR, m + point * m_plane + (r0 - first) * NR,
                                      c0 > 0, {reinterpret_cast<const char*>(then), ceil_div(mr * 4, s.taps)}, weights);
                r0 += mr;
              }
            }
          }
        }
        for (int64_t t = 0; t < rows; ++t) {
          int64_t n, r, c;
          tiles.place(t0 + (first + t) % count, n, r, c);
          store_tile<Form>(y, n * y.frames + (first + t) / count, r, c, o0, vecs, m + t * NR, m_plane);
        }
      }
    });
  }
}

// Of 16 weights: transforming them, and for each point of a tile a multiply-add of two per cycle.
template <class Form> SF_INLINE int64_t cycles_of(int64_t pictures, int64_t height, int64_t width) {
  return Form::kWeightCycles + tiles_of(pictures, height, width, Form::kTile).count() * Form::kPoints / 2;
}

template <class T, class W>
static void convolve(const Image<T>& x, const Filter<W>& w, const Output<T>& y, const Before& pad,
                     const Preparation* prepared = nullptr) {
  const int64_t pictures = x.batch * y.frames;
#if defined(__AVX512F__)
  if (tiles_of(pictures, y.height, y.width).count() <= kFewTiles && w.frames == 1 && x.frames == 1 && w.contiguous())
    return convolve_few(x, w, y, pad, prepared);
#endif
  if constexpr (std::is_same_v<T, BFloat16>)
    if (cycles_of<Form8>(pictures, y.height, y.width) < cycles_of<Form4>(pictures, y.height, y.width))
      return convolve_as<Form8>(x, w, y, pad, prepared);
  convolve_as<Form4>(x, w, y, pad, prepared);
}

}  // namespace SF_ISA
}  // namespace sf
