// 3x3 convolutions of stride 1 in float32 by Winograd's F(4x4, 3x3): 36 multiplications per tile where direct summation
// takes 144. Works on channels-last memory as it is, on contiguous memory by way of a copy; nothing is kept between calls.
//
// Data flow. Tiles of x are transformed to v[point][tile][c] (L3). Then a task takes a strip of output channels: it
// transforms 128 input channels of its weights at a time into u[point][c][strip] (L2; a transformed weight never goes to
// memory, where it would be four times the size of the weight), multiplies each of the 36 planes into m[point][tile][strip],
// and after the last channels transforms m back and stores y with bias, residual and activation.
// The gradient of x is the same convolution with weights turned round; the gradient of the weight multiplies transformed x
// by transformed dy over tiles, 64 x 64 channels at a time, and transforms the sums back.
#include "scaffolding/ops/conv/kernel.h"

// avx512bf16 has nothing more to offer to float32; it stands in where a build leaves avx512 out.
#if defined(SF_ISA_PRIORITY) && (SF_ISA_PRIORITY == 1 || SF_ISA_PRIORITY == 2 || (SF_ISA_PRIORITY == 3 && defined(SF_WITHOUT_AVX512)))
#include "scaffolding/ops/conv/winograd.h"
#include "scaffolding/ops/matmul/packed_gemm.h"

namespace sf {
namespace SF_ISA {

constexpr int L = kLanes, NR = kTileCols<MulF32>;
constexpr int64_t kChannelBlock = 128;                   // u: 36 * 128 * 32 * 4 = 590 KB of a 1 MB L2
constexpr int64_t kTransformedBytes = int64_t(6) << 20;  // v of one round of tiles: 128 channels at 256x256 take 18 ms, 28 with 16 MB
constexpr int64_t kGradientBlock = 64;
enum WinogradSlot { kSlotInput = 8, kSlotGradient = 9, kSlotWeight = 10, kSlotProducts = 11, kSlotTotal = 12, kSlotX = 13, kSlotY = 14, kSlotResidual = 15 };

// Distance of two planes in floats: whole cache lines, and never a multiple of 4 KB, where 36 planes would share L1 sets.
SF_INLINE int64_t plane_of(int64_t floats) {
  const int64_t lines = ceil_div(floats, 16);
  return (lines + (lines % 64 == 0)) * 16;
}

struct Tiles {
  int64_t batch, down, across;
  SF_INLINE int64_t count() const { return batch * down * across; }
  SF_INLINE void place(int64_t tile, int64_t& n, int64_t& row, int64_t& col) const {
    col = tile % across * kTile;
    row = tile / across % down * kTile;
    n = tile / (across * down);
  }
};
SF_INLINE Tiles tiles_of(int64_t batch, int64_t height, int64_t width) { return {batch, ceil_div(height, kTile), ceil_div(width, kTile)}; }

// to[col * rows + row] = from[row * cols + col] for a block of at most L x L, in registers where it is a whole one.
SF_INLINE void transpose_block(const float* from, float* to, int64_t rows, int64_t cols, int64_t r0, int64_t c0) {
  if (r0 + L <= rows && c0 + L <= cols) {
    MulF32::Vec v[L];
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) v[i] = load(from + (r0 + i) * cols + c0).v;
    transpose<MulF32::Vec, L>(v);
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) store_vec<MulF32>(to + (c0 + i) * rows + r0, v[i]);
    return;
  }
  for (int64_t r = r0; r < min64(r0 + L, rows); ++r)
    for (int64_t c = c0; c < min64(c0 + L, cols); ++c) to[c * rows + r] = from[r * cols + c];
}

// to[i][col][row] = from[i][row][col] for count matrices. Four blocks in a row along the side whose rows are long: each of these is on a page of its own.
static void transpose_each(const float* from, float* to, int64_t count, int64_t rows, int64_t cols) {
  if (count * rows * cols == 0) return;
  constexpr int64_t kSide = 4 * L;
  const bool across = cols > rows;
  const int64_t parts = ceil_div(across ? cols : rows, kSide);
  parallel_for(count * parts, max64(1, 4096 / (kSide * min64(rows, cols))), [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const float* a = from + at / parts * rows * cols;
      float* b = to + at / parts * rows * cols;
      const int64_t first = at % parts * kSide, last = min64(first + kSide, across ? cols : rows);
      for (int64_t k = 0; k < (across ? rows : cols); k += L)
        for (int64_t j = first; j < last; j += L) transpose_block(a, b, rows, cols, across ? k : j, across ? j : k);
    }
  });
}

// An activation of the call as channels-last memory: its own bytes, or a copy.
class Laid {
 public:
  Laid(const TensorView& t, int slot, bool read) : plain_(t.as<float>()), data_(plain_) {
    if (!t || t.is_channels_last()) return;
    count_ = t.sizes[0], channels_ = t.sizes[1], pixels_ = t.sizes[2] * t.sizes[3];
    data_ = static_cast<float*>(scratch(size_t(t.numel()) * 4, slot));
    if (read) transpose_each(plain_, data_, count_, channels_, pixels_);
  }
  SF_INLINE float* data() const { return data_; }
  void write_back() const {
    if (data_ != plain_) transpose_each(data_, plain_, count_, pixels_, channels_);
  }

 private:
  float *plain_, *data_;
  int64_t count_ = 0, channels_ = 0, pixels_ = 0;
};

struct Image {  // channels-last
  const float* data;
  int64_t batch, height, width, channels;
};

// out[point][tile - t0][c] for tiles t0 .. t1 of the image; a tile starts at (row - pad, col - pad). kSize 6: B' d B of the
// input; kSize 4: A y A' of the gradient.
template <int kSize>
static void transform_tiles(const Image& x, const Tiles& tiles, int64_t pad_y, int64_t pad_x, int64_t t0, int64_t t1, float* out, int64_t row, int64_t plane) {
  parallel_for(t1 - t0, max64(1, 2048 / x.channels), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      int64_t n, r0, c0;
      tiles.place(t0 + t, n, r0, c0);
      r0 -= pad_y, c0 -= pad_x;
      const float* base = x.data + ((n * x.height + r0) * x.width + c0) * x.channels;
      const bool inside = r0 >= 0 && c0 >= 0 && r0 + kSize <= x.height && c0 + kSize <= x.width;
      uint64_t valid = 0;  // bit 8 r + c: the pixel is in the image
      for (int r = 0; r < kSize; ++r)
        for (int c = 0; c < kSize; ++c)
          if (r0 + r >= 0 && r0 + r < x.height && c0 + c >= 0 && c0 + c < x.width) valid |= uint64_t(1) << (8 * r + c);
      float* to = out + t * row;
      const int64_t down = x.width * x.channels;
      for (int64_t ch = 0; ch < x.channels; ch += L) {
        auto store_point = [&](int r, int c, vf v) { store(to + (r * kInput + c) * plane + ch, v); };
        auto load_inside = [&](int r, int c) { return load(base + r * down + c * x.channels + ch); };
        auto load_edge = [&](int r, int c) { return valid >> (8 * r + c) & 1 ? load(base + r * down + c * x.channels + ch) : vf(0.f); };
        if constexpr (kSize == 6) {
          auto one = [](const vf(&a)[6], vf(&b)[6]) __attribute__((always_inline)) { transform_input(a, b); };
          if (inside) transform_2d<6, 6>(load_inside, store_point, one);
          else transform_2d<6, 6>(load_edge, store_point, one);
        } else {
          auto one = [](const vf(&a)[4], vf(&b)[6]) __attribute__((always_inline)) { transform_gradient(a, b); };
          if (inside) transform_2d<4, 6>(load_inside, store_point, one);
          else transform_2d<4, 6>(load_edge, store_point, one);
        }
      }
    }
  });
}

// The weight of y[o] from x[c] by tap; turned: the taps in reverse, for the gradient of x.
struct Filter {
  const float* data;
  int64_t out, in, down, across;  // strides
  bool turned;
};

// u[point][c - c0][strip] for input channels c0 .. c0 + depth and the strip of output channels from o0.
[[gnu::noinline]] static void transform_filter(const Filter& w, int64_t o0, int cols, int64_t c0, int64_t depth, float* u, int64_t plane) {
  constexpr int64_t kGroup = 8;  // raw weights of 8 channels: 9 KB, in L1
  alignas(64) float raw[kGroup * 9 * NR + 64];
  const int vecs = cols <= L ? 1 : kTileVecs;
  for (int64_t c = 0; c < depth; c += kGroup) {
    const int64_t n = min64(kGroup, depth - c);
    const float* from = w.data + o0 * w.out + (c0 + c) * w.in;
    int64_t by_channel = 9 * NR, by_tap = NR;
    if (w.across == 1 && w.down == 3 && w.in == 9) {
      pack<MulF32>(raw, NR, from, w.out, 1, cols, n * 9);
    } else if (w.across == 1 && w.down == 3) {
      // Rows far apart, read a kilobyte at a time: the hardware's prefetcher sees no stream.
      for (int64_t i = kGroup; i < min64(2 * kGroup, depth - c); ++i)
        for (int64_t line = 0; line < cols * w.out; line += 16) __builtin_prefetch(from + i * w.in + line);
      for (int64_t i = 0; i < n; ++i) pack<MulF32>(raw + i * 9 * NR, NR, from + i * w.in, w.out, 1, cols, 9);
    } else {
      by_channel = NR, by_tap = kGroup * NR;
      for (int t = 0; t < 9; ++t) pack<MulF32>(raw + t * by_tap, NR, from + t / 3 * w.down + t % 3 * w.across, w.out, w.in, cols, n);
    }
    for (int64_t i = 0; i < n; ++i)
      for (int j = 0; j < vecs; ++j) {
        const float* g = raw + i * by_channel + j * L;
        float* to = u + (c + i) * NR + j * L;
        const int64_t last = w.turned ? 8 : 0, step = w.turned ? -by_tap : by_tap;
        auto one = [](const vf(&a)[3], vf(&b)[6]) __attribute__((always_inline)) { transform_weight(a, b); };
        transform_2d<3, 6>([&](int r, int s) { return load(g + last * by_tap + (r * 3 + s) * step); },
                           [&](int r, int s, vf v) { store(to + (r * kInput + s) * plane, v); }, one);
      }
  }
}

struct Output {
  float* data;
  int64_t height, width, channels;
  const float* bias;      // [channels] or null
  const float* residual;  // as data, or null
  Activation act;
};

// y of one tile and one strip from m[point][strip].
[[gnu::noinline]] static void store_tile(const Output& y, int64_t n, int64_t row, int64_t col, int64_t o0, int vecs, const float* m, int64_t plane) {
  const int rows = int(min64(kTile, y.height - row)), cols = int(min64(kTile, y.width - col));
  const int64_t first = ((n * y.height + row) * y.width + col) * y.channels + o0;
  for (int j = 0; j < vecs; ++j) {
    vf out[kTile][kTile];
    const float* from = m + j * L;
    // Rows first here: m is 6x6 and out is 4x4.
    vf half[kTile][kInput];
#pragma GCC unroll 6
    for (int c = 0; c < kInput; ++c) {
      vf a[6], b[4];
#pragma GCC unroll 6
      for (int r = 0; r < kInput; ++r) a[r] = load(from + (r * kInput + c) * plane);
      transform_output(a, b);
#pragma GCC unroll 4
      for (int r = 0; r < kTile; ++r) half[r][c] = b[r];
    }
#pragma GCC unroll 4
    for (int r = 0; r < kTile; ++r) transform_output(half[r], out[r]);
    const vf bias = y.bias ? load(y.bias + o0 + j * L) : vf(0.f);
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

// Strips x parts of the tiles, so that no thread waits long for another: the fewest parts that keep threads 90 % busy.
static int64_t parts_for(int64_t strips, int64_t tiles) {
  const int64_t threads = num_threads();
  for (int64_t parts = 1; parts < 8; ++parts) {
    const int64_t tasks = strips * parts;
    if (tasks * 10 >= ceil_div(tasks, threads) * threads * 9 || tiles / (parts + 1) < 2 * kStridedRows) return parts;
  }
  return 8;
}

static void convolve(const Image& x, const Filter& w, const Output& y, int64_t pad_y, int64_t pad_x) {
  const Tiles tiles = tiles_of(x.batch, y.height, y.width);
  const int64_t channels = x.channels, row = channels + 16;  // + a line: rows a power of two apart share cache sets
  const int64_t total = tiles.count(), most = max64(64, kTransformedBytes / (kPoints * row * 4));
  const int64_t rounds = ceil_div(total, most), per_round = ceil_div(total, rounds);
  const int64_t plane = plane_of(per_round * row), strips = ceil_div(y.channels, NR);
  const int64_t depth_block = ceil_div(channels, ceil_div(channels, kChannelBlock));
  const int64_t u_plane = plane_of(depth_block * NR);
  float* v = static_cast<float*>(scratch(size_t(kPoints * plane) * 4, kSlotInput));
  for (int64_t t0 = 0; t0 < total; t0 += per_round) {
    const int64_t count = min64(per_round, total - t0);
    transform_tiles<6>(x, tiles, pad_y, pad_x, t0, t0 + count, v, row, plane);
    const int64_t parts = parts_for(strips, count);
    parallel_for(strips * parts, 1, [&](int64_t begin, int64_t end) {
      const int64_t m_plane = plane_of(ceil_div(count, parts) * NR);
      float* u = static_cast<float*>(scratch(size_t(kPoints * u_plane) * 4, kSlotWeight));
      float* m = static_cast<float*>(scratch(size_t(kPoints * m_plane) * 4, kSlotProducts));
      for (int64_t task = begin; task < end; ++task) {
        const int64_t o0 = task / parts * NR, p = task % parts, first = count * p / parts, rows = count * (p + 1) / parts - first;
        const int cols = int(min64(NR, y.channels - o0)), vecs = cols <= L ? 1 : kTileVecs;
        const int64_t panels = ceil_div(rows, kStridedRows);
        for (int64_t c0 = 0; c0 < channels; c0 += depth_block) {
          const int64_t depth = min64(depth_block, channels - c0);
          transform_filter(w, o0, cols, c0, depth, u, u_plane);
          for (int point = 0; point < kPoints; ++point)
            for (int64_t q = 0; q < panels; ++q) {
              const int64_t r0 = rows * q / panels;
              const int mr = int(rows * (q + 1) / panels - r0);
              float* to = m + point * m_plane + r0 * NR;
              tile_for<MulF32, false>(mr, vecs)(depth, v + point * plane + (first + r0) * row + c0, row, 1, u + point * u_plane, NR, to, NR, c0 ? to : nullptr,
                                                NR, nullptr, 0);
            }
        }
        for (int64_t t = 0; t < rows; ++t) {
          int64_t n, r, c;
          tiles.place(t0 + first + t, n, r, c);
          store_tile(y, n, r, c, o0, vecs, m + t * NR, m_plane);
        }
      }
    });
  }
}

static void forward(const ConvForward& f) {
  const Laid lx(f.x, kSlotX, true), ly(f.y, kSlotY, false), lr(f.residual, kSlotResidual, true);
  const Image x{lx.data(), f.x.sizes[0], f.x.sizes[2], f.x.sizes[3], f.x.sizes[1]};
  const int64_t* s = f.weight.strides;
  const Output y{ly.data(), f.y.sizes[2], f.y.sizes[3], f.y.sizes[1], f.bias ? f.bias.as<const float>() : nullptr, f.residual ? lr.data() : nullptr, f.act};
  convolve(x, {f.weight.as<const float>(), s[0], s[1], s[2], s[3], false}, y, f.shape.padding[0], f.shape.padding[1]);
  ly.write_back();
}

static void backward_data(const ConvBackwardData& f) {
  const Laid ly(f.dy, kSlotY, true), lx(f.dx, kSlotX, false);
  const Image dy{ly.data(), f.dy.sizes[0], f.dy.sizes[2], f.dy.sizes[3], f.dy.sizes[1]};
  const int64_t* s = f.weight.strides;
  const Output dx{lx.data(), f.dx.sizes[2], f.dx.sizes[3], f.dx.sizes[1], nullptr, nullptr, Activation::None};
  convolve(dy, {f.weight.as<const float>(), s[1], s[0], s[2], s[3], true}, dx, 2 - f.shape.padding[0], 2 - f.shape.padding[1]);
  lx.write_back();
}

// dweight[o][c0 ..] for one o and one vector of input channels, from sums u[point].
[[gnu::noinline]] static void store_weight(const TensorView& dw, int64_t o, int64_t c0, const float* u, int64_t plane) {
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
  const int64_t* s = dw.strides;
  float* to = dw.as<float>() + o * s[0] + c0 * s[1];
  if (s[1] == 1) {
    for (int t = 0; t < 9; ++t) store(to + t / 3 * s[2] + t % 3 * s[3], g[t / 3][t % 3]);
    return;
  }
  if (L == 16 && s[3] == 1 && s[2] == 3 && s[1] == 9) {
    // 16 channels of 9 taps lie together: transpose, and let each channel's store overwrite what the one before spilled.
    MulF32::Vec r[L];
#pragma GCC unroll 16
    for (int t = 0; t < L; ++t) r[t] = t < 9 ? g[t < 9 ? t / 3 : 0][t % 3].v : MulF32::Vec{};
    transpose<MulF32::Vec, L>(r);
    alignas(64) float together[L * 9 + L];
#pragma GCC unroll 16
    for (int c = 0; c < L; ++c) store_vec<MulF32>(together + c * 9, r[c]);
    __builtin_memcpy(to, together, sizeof(float) * L * 9);
    return;
  }
  for (int t = 0; t < 9; ++t)
    for (int c = 0; c < L; ++c) to[c * s[1] + t / 3 * s[2] + t % 3 * s[3]] = g[t / 3][t % 3][c];
}

static void bias_gradient(const TensorView& db, const Image& dy) {
  const int64_t pixels = dy.batch * dy.height * dy.width;
  parallel_for(dy.channels / L, max64(1, 32768 / max64(1, pixels)), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin * L; c < end * L; c += L) {
      vf sum[4] = {vf(0.f), vf(0.f), vf(0.f), vf(0.f)};
      for (int64_t p = 0; p < pixels; ++p) sum[p & 3] += load(dy.data + p * dy.channels + c);
      store(db.as<float>() + c, sum[0] + sum[1] + (sum[2] + sum[3]));
    }
  });
}

static void backward_weights(const ConvBackwardWeights& f) {
  const Laid lx(f.x, kSlotX, true), ly(f.dy, kSlotY, true);
  const Image x{lx.data(), f.x.sizes[0], f.x.sizes[2], f.x.sizes[3], f.x.sizes[1]};
  const Image dy{ly.data(), f.dy.sizes[0], f.dy.sizes[2], f.dy.sizes[3], f.dy.sizes[1]};
  const Tiles tiles = tiles_of(dy.batch, dy.height, dy.width);
  const int64_t in = x.channels, out = dy.channels, total = tiles.count(), x_row = in + 16, dy_row = out + 16;
  // One round of tiles when both transforms fit in L3 or so; else sums of all 64 x 64 blocks wait for the next round.
  // Rounds pay at once where the sums are small.
  const int64_t bytes = kPoints * (x_row + dy_row) * 4;
  const int64_t round_bytes = in * out * kPoints * 4 <= kTransformedBytes ? kTransformedBytes : 8 * kTransformedBytes;
  const int64_t rounds = ceil_div(total * bytes, round_bytes), per_round = ceil_div(total, rounds);
  const int64_t x_plane = plane_of(per_round * x_row), dy_plane = plane_of(per_round * dy_row);
  const int64_t down = ceil_div(out, kGradientBlock), across = ceil_div(in, kGradientBlock), block = plane_of(kGradientBlock * kGradientBlock);
  float* xt = static_cast<float*>(scratch(size_t(kPoints * x_plane) * 4, kSlotInput));
  float* dyt = static_cast<float*>(scratch(size_t(kPoints * dy_plane) * 4, kSlotGradient));
  float* sums = rounds > 1 ? static_cast<float*>(scratch(size_t(down * across * kPoints * block) * 4, kSlotTotal)) : nullptr;
  for (int64_t t0 = 0; t0 < total; t0 += per_round) {
    const int64_t count = min64(per_round, total - t0);
    const bool last = t0 + per_round >= total;
    transform_tiles<6>(x, tiles, f.shape.padding[0], f.shape.padding[1], t0, t0 + count, xt, x_row, x_plane);
    transform_tiles<4>(dy, tiles, 0, 0, t0, t0 + count, dyt, dy_row, dy_plane);
    parallel_for(down * across, 1, [&](int64_t begin, int64_t end) {
      float* mine = sums ? nullptr : static_cast<float*>(scratch(size_t(kPoints * block) * 4, kSlotProducts));
      for (int64_t task = begin; task < end; ++task) {
        float* u = sums ? sums + task * kPoints * block : mine;
        const int64_t o0 = task / across * kGradientBlock, c0 = task % across * kGradientBlock;
        const int64_t rows = min64(kGradientBlock, out - o0), cols = min64(kGradientBlock, in - c0), panels = ceil_div(rows, kStridedRows);
        for (int point = 0; point < kPoints; ++point)
          for (int64_t c = 0; c < cols; c += NR)
            for (int64_t q = 0; q < panels; ++q) {
              const int64_t r0 = rows * q / panels;
              const int mr = int(rows * (q + 1) / panels - r0);
              float* to = u + point * block + r0 * kGradientBlock + c;
              tile_for<MulF32, false>(mr, cols - c <= L ? 1 : kTileVecs)(count, dyt + point * dy_plane + o0 + r0, 1, dy_row, xt + point * x_plane + c0 + c,
                                                                         x_row, to, kGradientBlock, t0 ? to : nullptr, kGradientBlock, nullptr, 0);
            }
        if (last)
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = 0; c < cols; c += L) store_weight(f.dweight, o0 + r, c0 + c, u + r * kGradientBlock + c, block);
      }
    });
  }
  if (f.dbias) bias_gradient(f.dbias, dy);
}

// Cycles per 16 weights, as measured with AVX-512: transforming them costs about 110, each tile 36 multiply-adds of two
// per cycle; direct, each output pixel costs 9.
static bool worth(int64_t batch, int64_t height, int64_t width) {
  const int64_t winograd = 110 + tiles_of(batch, height, width).count() * kPoints / 2, direct = batch * height * width * 9 / 2;
  return winograd * 6 < direct * 5;
}
static bool shape_ok(const TensorView& w, const ConvShape& s) {
  return w.ndim == 4 && w.sizes[2] == 3 && w.sizes[3] == 3 && s.stride[0] == 1 && s.stride[1] == 1 && s.dilation[0] == 1 && s.dilation[1] == 1 &&
         s.groups == 1 && s.padding[0] <= 2 && s.padding[1] <= 2 && w.sizes[0] % 16 == 0 && w.sizes[1] % 16 == 0;
}
static bool float_image(const TensorView& t) { return !t || (t.dtype == kFloat32 && (t.is_channels_last() || t.is_contiguous())); }

static bool supports_forward(const ConvForward& f) {
  return float_image(f.x) && float_image(f.y) && float_image(f.residual) && (!f.bias || f.bias.dtype == kFloat32) && shape_ok(f.weight, f.shape) &&
         worth(f.y.sizes[0], f.y.sizes[2], f.y.sizes[3]);
}
static bool supports_data(const ConvBackwardData& f) {
  return float_image(f.dy) && float_image(f.dx) && shape_ok(f.weight, f.shape) && worth(f.dx.sizes[0], f.dx.sizes[2], f.dx.sizes[3]);
}
static bool supports_weights(const ConvBackwardWeights& f) {
  return float_image(f.x) && float_image(f.dy) && f.dweight.dtype == kFloat32 && (!f.dbias || f.dbias.dtype == kFloat32) && shape_ok(f.dweight, f.shape) &&
         worth(f.dy.sizes[0], f.dy.sizes[2], f.dy.sizes[3]);
}

}  // namespace SF_ISA

SF_KERNEL(conv_forward, DeviceType::CPU, "winograd", 20 + SF_ISA_PRIORITY, SF_ISA::forward, SF_ISA::supports_forward)
SF_KERNEL(conv_backward_data, DeviceType::CPU, "winograd", 20 + SF_ISA_PRIORITY, SF_ISA::backward_data, SF_ISA::supports_data)
SF_KERNEL(conv_backward_weights, DeviceType::CPU, "winograd", 20 + SF_ISA_PRIORITY, SF_ISA::backward_weights, SF_ISA::supports_weights)

}  // namespace sf
#endif
