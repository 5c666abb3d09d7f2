// 3x3 convolutions of stride 1 in float32 by Winograd's F(4x4, 3x3): 36 multiplications per tile where direct summation
// takes 144. Works on channels-last memory as it is, on contiguous memory by way of a copy;
// nothing is kept between calls.
// bfloat16, channels-last, widens to float32 on the way in and is rounded on the way out: a quarter of the
// multiplications is less than vdpbf16ps saves (Zen 5, two cores, Stable Diffusion's 3x3 layers: 1150 GFLOP/s against
// 680 of a direct sum in bfloat16).
//
// Data flow. Tiles of x are transformed to v[point][128 channels][tile][c] (L3). Then a task takes a strip of output
// channels: it transforms 128 input channels of its weights at a time into u[point][c][strip] (L2; a transformed weight
// never goes to memory, where it would be four times the size of the weight), multiplies each of the 36 planes into
// m[point][tile][strip], and after the last channels transforms m back and stores y with bias, residual and activation.
// While a product runs, the next tiles come to L1 and the next weights to L2. With few tiles the transform would be
// most of the work: winograd_few.h.
// An input that is to be normalised or enlarged first passes a band of rows at a time through a buffer (L3).
// The gradient of x is the same convolution with weights turned round; the gradient of the weight multiplies
// transformed x by transformed dy over tiles, 64 x 64 channels at a time, and transforms the sums back.
#include "scaffolding/ops/conv/kernel.h"

// avx512bf16 has nothing more to offer to float32; it stands in where a build leaves avx512 out.
#if defined(SF_ISA_PRIORITY) && \
    (SF_ISA_PRIORITY == 1 || SF_ISA_PRIORITY == 2 || (SF_ISA_PRIORITY == 3 && defined(SF_WITHOUT_AVX512)))
#include "scaffolding/ops/conv/winograd_few.h"
#include "scaffolding/ops/conv/winograd_tiles.h"

namespace sf {
namespace SF_ISA {

constexpr int64_t kChannelBlock = 128;  // u: 36 * 128 * 32 * 4 = 590 KB of a 1 MB L2
// v of one round of tiles: 128 channels at 256x256 take 18 ms, 28 with 16 MB
constexpr int64_t kTransformedBytes = int64_t(6) << 20;
constexpr int64_t kLeastTiles = 64,
                  kFairTiles = 128;  // with few tiles, transforming the weights anew for each round costs more
constexpr int64_t kGradientBlock = 64;
enum WinogradSlot {
  kSlotInput = 8,
  kSlotGradient = 9,
  kSlotWeight = 10,
  kSlotProducts = 11,
  kSlotTotal = 12,
  kSlotX = 13,
  kSlotY = 14,
  kSlotResidual = 15
};

// Strips x parts of the tiles, so that no thread waits long for another: the fewest parts that keep threads 90 % busy.
static int64_t parts_for(int64_t strips, int64_t tiles) {
  const int64_t threads = num_threads();
  for (int64_t parts = 1; parts < 8; ++parts) {
    const int64_t tasks = strips * parts;
    if (tasks * 10 >= ceil_div(tasks, threads) * threads * 9 || tiles / (parts + 1) < 2 * kStridedRows) return parts;
  }
  return 8;
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

template <class T>
static void convolve_few(const Image<T>& x, const Filter<T>& w, const Output<T>& y, int64_t pad_y, int64_t pad_x,
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
    transform_tiles<6>(Image<float>{band, x.batch, height, width, channels}, tiles, pad_y, pad_x, 0, count, planes);
  } else {
    transform_tiles<6>(x, tiles, pad_y, pad_x, 0, count, planes);
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
          const int64_t row_bytes = min64(kFewDepth, channels - c_next) * 9 * int64_t(sizeof(T)),
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
          store_tile(y, n, r, c, j * L, 1, m + ((j - j0) * groups + t / kFewGroup) * kFewSums + t % kFewGroup * L,
                     FewPlanes::plane);
        }
    }
  });
}
#endif

template <class T>
static void convolve(const Image<T>& x, const Filter<T>& w, const Output<T>& y, int64_t pad_y, int64_t pad_x,
                     const Preparation* prepared = nullptr) {
  const Tiles tiles = tiles_of(x.batch, y.height, y.width);
#if defined(__AVX512F__)
  if (tiles.count() <= kFewTiles && w.contiguous()) return convolve_few(x, w, y, pad_y, pad_x, prepared);
#endif
  const int64_t channels = x.channels, blocks = ceil_div(channels, kChannelBlock),
                depth_block = ceil_div(channels / 16, blocks) * 16;
  const int64_t row = blocks * depth_block, fit = kTransformedBytes / (kPoints * row * 4);
  const int64_t most = max64(fit, max64(kLeastTiles, min64(kFairTiles, 3 * fit)));
  // Rounds of tiles: as many as fit. With a preparation, whole pictures, or whole rows of tiles of one.
  const int64_t picture = tiles.down * tiles.across, pictures = max64(1, min64(x.batch, most / picture));
  const int64_t piece = prepared ? pictures * picture : tiles.count(), unit = prepared ? tiles.across : 1;
  const int64_t rounds = ceil_div(piece, max64(unit, most / unit * unit)),
                per_round = ceil_div(ceil_div(piece, unit), rounds) * unit;
  const int64_t plane = plane_of(per_round * row), strips = ceil_div(y.channels, NR),
                u_plane = plane_of(depth_block * NR);
  float* v = static_cast<float*>(scratch(size_t(kPoints * plane) * 4, kSlotInput));
  const int64_t repeat = prepared ? prepared->repeat : 1, height = x.height * repeat, width = x.width * repeat;
  float* band = nullptr;
  if (prepared)
    band = static_cast<float*>(scratch(
        size_t((pictures > 1 ? pictures * height : per_round / unit * kTile + 2) * width * channels) * 4, kSlotX));
  for (int64_t t0 = 0, count = 0; t0 < tiles.count(); t0 += count) {
    count = min64(per_round, min64(piece - t0 % piece, tiles.count() - t0));
    const Planes planes{v, plane, depth_block, count};
    if (prepared && pictures > 1) {
      prepared->fill_pictures(x, t0 / picture, count / picture, band);
      transform_tiles<6>(Image<float>{band, count / picture, height, width, channels}, tiles, pad_y, pad_x, 0, count,
                         planes);
    } else if (prepared) {
      int64_t n, row0, col;
      tiles.place(t0, n, row0, col);
      const int64_t rows = count / unit, first = max64(0, row0 - pad_y),
                    last = min64(height, row0 + rows * kTile + 2 - pad_y);
      prepared->fill(x, n, first, last - first, band);
      transform_tiles<6>(Image<float>{band, 1, last - first, width, channels}, {1, rows, tiles.across},
                         pad_y + first - row0, pad_x, 0, count, planes);
    } else {
      transform_tiles<6>(x, tiles, pad_y, pad_x, t0, t0 + count, planes);
    }
    const int64_t parts = parts_for(strips, count);
    parallel_for(strips * parts, 1, [&](int64_t begin, int64_t end) {
      const int64_t m_plane = plane_of(ceil_div(count, parts) * NR);
      float* u = static_cast<float*>(scratch(size_t(kPoints * u_plane) * 4, kSlotWeight));
      float* m = static_cast<float*>(scratch(size_t(kPoints * m_plane) * 4, kSlotProducts));
      auto cols_of = [&](int64_t task) { return int(min64(NR, y.channels - task % strips * NR)); };
      for (int64_t task = begin; task < end; ++task) {
        const int64_t p = task / strips, o0 = task % strips * NR, first = count * p / parts,
                      rows = count * (p + 1) / parts - first;
        const int64_t panels = ceil_div(rows, kStridedRows), calls = kPoints * panels, per_row = calls / NR;
        const int vecs = cols_of(task) <= L ? 1 : kTileVecs;
        for (int64_t c0 = 0; c0 < channels; c0 += depth_block) {
          const int64_t depth = min64(depth_block, channels - c0);
          transform_filter(w, o0, cols_of(task), c0, depth, u, u_plane);
          // The weights that are transformed next: each row of them is asked for in per_row calls.
          const bool more = c0 + depth < channels;
          const int64_t next = more ? task : min64(task + 1, end - 1), c_next = more ? c0 + depth : 0;
          const int64_t row_bytes = min64(depth_block, channels - c_next) * 9 * int64_t(sizeof(T));
          const bool ahead = w.contiguous() && cols_of(next) == NR && per_row > 0;
          for (int64_t call = 0; call < calls; ++call) {
            const int64_t point = call / panels, q = call % panels, r0 = rows * q / panels;
            const int mr = int(rows * (q + 1) / panels - r0);
            const float* from = planes.at(first + r0, c0) + point * plane;
            const float* then = q + 1 < panels ? from + mr * depth_block
                                               : planes.at(first, c0) + (point + 1 < kPoints ? point + 1 : 0) * plane;
            Ahead weights{reinterpret_cast<const char*>(from), 0};
            if (ahead && call < per_row * NR)
              weights = {reinterpret_cast<const char*>(w.at(next % strips * NR + call / per_row, c_next)) +
                             call % per_row * row_bytes / per_row,
                         ceil_div(row_bytes, per_row * depth)};
            product_for(mr, vecs)(depth, from, depth_block, u + point * u_plane, m + point * m_plane + r0 * NR, c0 > 0,
                                  {reinterpret_cast<const char*>(then), mr * 4}, weights);
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

template <class T> static void forward_laid(const ConvForward& f, const T* x, T* y, const T* residual) {
  const int64_t* s = f.weight.strides;
  const Image<T> image{x, f.x.sizes[0], f.x.sizes[2], f.x.sizes[3], f.x.sizes[1]};
  const Output<T> out{y,
                      f.y.sizes[2],
                      f.y.sizes[3],
                      f.y.sizes[1],
                      f.bias ? f.bias.data : nullptr,
                      f.bias ? f.bias.dtype : kFloat32,
                      residual,
                      f.act};
  convolve<T>(image, {f.weight.as<const T>(), s[0], s[1], s[2], s[3], false}, out, f.shape.padding[0],
              f.shape.padding[1]);
}
static void forward_float(const ConvForward& f) {
  const Laid lx(f.x, kSlotX, true), ly(f.y, kSlotY, false), lr(f.residual, kSlotResidual, true);
  forward_laid<float>(f, lx.data(), ly.data(), f.residual ? lr.data() : nullptr);
  ly.write_back();
}
static void forward(const ConvForward& f) {
  if (f.x.dtype == kFloat32) return forward_float(f);
  forward_laid<BFloat16>(f, f.x.as<const BFloat16>(), f.y.as<BFloat16>(),
                         f.residual ? f.residual.as<const BFloat16>() : nullptr);
}

// gain and offset of every channel: group_norm as one multiplication and one addition.
static void fold_norm(const PreparedConvForward& f, float* gain, float* offset) {
  const int64_t N = f.conv.x.sizes[0], C = f.conv.x.sizes[1], wide = C / f.groups;
  const float *mean = f.mean.as<const float>(), *rstd = f.rstd.as<const float>();
  const float *weight = f.norm_weight.as<const float>(), *bias = f.norm_bias.as<const float>();
  for (int64_t i = 0; i < N * C; ++i) {
    const int64_t c = i % C, group = i / C * f.groups + c / wide;
    const double a = double(rstd[group]) * double(weight[c]);
    gain[i] = float(a);
    offset[i] = float(double(bias[c]) - double(mean[group]) * a);
  }
}

// A residual of one pixel is added to all pixels.
static bool is_shift(const ConvForward& f) {
  return f.residual && f.residual.sizes[2] == 1 && f.residual.sizes[3] == 1 && f.y.sizes[2] * f.y.sizes[3] > 1;
}

static void forward_prepared(const PreparedConvForward& p) {
  const ConvForward& f = p.conv;
  const Image<float> x{f.x.as<const float>(), f.x.sizes[0], f.x.sizes[2], f.x.sizes[3], f.x.sizes[1]};
  const int64_t* s = f.weight.strides;
  const Output<float> y{f.y.as<float>(),
                        f.y.sizes[2],
                        f.y.sizes[3],
                        f.y.sizes[1],
                        f.bias ? f.bias.data : nullptr,
                        kFloat32,
                        f.residual && !is_shift(f) ? f.residual.as<const float>() : nullptr,
                        f.act,
                        is_shift(f) ? f.residual.as<const float>() : nullptr};
  Preparation prepared{p.repeat};
  if (p.mean) {
    float* folded = static_cast<float*>(scratch(size_t(2 * x.batch * x.channels) * 4, kSlotY));
    fold_norm(p, folded, folded + x.batch * x.channels);
    prepared.gain = folded, prepared.offset = folded + x.batch * x.channels;
  }
  convolve<float>(x, {f.weight.as<const float>(), s[0], s[1], s[2], s[3], false}, y, f.shape.padding[0],
                  f.shape.padding[1], &prepared);
}

template <class T> static void backward_data_laid(const ConvBackwardData& f, const T* dy, T* dx) {
  const int64_t* s = f.weight.strides;
  const Image<T> image{dy, f.dy.sizes[0], f.dy.sizes[2], f.dy.sizes[3], f.dy.sizes[1]};
  const Output<T> out{dx, f.dx.sizes[2], f.dx.sizes[3], f.dx.sizes[1], nullptr, kFloat32, nullptr, Activation::None};
  convolve<T>(image, {f.weight.as<const T>(), s[1], s[0], s[2], s[3], true}, out, 2 - f.shape.padding[0],
              2 - f.shape.padding[1]);
}
static void backward_data(const ConvBackwardData& f) {
  if (f.dy.dtype == kBFloat16) return backward_data_laid<BFloat16>(f, f.dy.as<const BFloat16>(), f.dx.as<BFloat16>());
  const Laid ly(f.dy, kSlotY, true), lx(f.dx, kSlotX, false);
  backward_data_laid<float>(f, ly.data(), lx.data());
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
    // 16 channels of 9 taps lie together: transpose, and let each channel's store overwrite what the one before
    // spilled.
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

static void bias_gradient(const TensorView& db, const Image<float>& dy) {
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
  const Image<float> x{lx.data(), f.x.sizes[0], f.x.sizes[2], f.x.sizes[3], f.x.sizes[1]};
  const Image<float> dy{ly.data(), f.dy.sizes[0], f.dy.sizes[2], f.dy.sizes[3], f.dy.sizes[1]};
  const Tiles tiles = tiles_of(dy.batch, dy.height, dy.width);
  const int64_t in = x.channels, out = dy.channels, total = tiles.count(), x_row = in + 16, dy_row = out + 16;
  // One round of tiles when both transforms fit in L3 or so; else sums of all 64 x 64 blocks wait for the next round.
  // Rounds pay at once where the sums are small.
  const int64_t bytes = kPoints * (x_row + dy_row) * 4;
  const int64_t round_bytes = in * out * kPoints * 4 <= kTransformedBytes ? kTransformedBytes : 8 * kTransformedBytes;
  const int64_t rounds = ceil_div(total * bytes, round_bytes), per_round = ceil_div(total, rounds);
  const int64_t x_plane = plane_of(per_round * x_row), dy_plane = plane_of(per_round * dy_row);
  const int64_t down = ceil_div(out, kGradientBlock), across = ceil_div(in, kGradientBlock),
                block = plane_of(kGradientBlock * kGradientBlock);
  float* xt = static_cast<float*>(scratch(size_t(kPoints * x_plane) * 4, kSlotInput));
  float* dyt = static_cast<float*>(scratch(size_t(kPoints * dy_plane) * 4, kSlotGradient));
  // Threads share the blocks; where these are few, the points of each.
  const int64_t blocks = down * across;
  const bool by_point = num_threads() > 1 && blocks < 4 * num_threads();
  float* sums =
      by_point || rounds > 1 ? static_cast<float*>(scratch(size_t(blocks * kPoints * block) * 4, kSlotTotal)) : nullptr;
  auto rows_of = [&](int64_t task) { return min64(kGradientBlock, out - task / across * kGradientBlock); };
  auto multiply = [&](int64_t task, int point, int64_t count, bool add, float* u) {
    const int64_t o0 = task / across * kGradientBlock, c0 = task % across * kGradientBlock;
    const int64_t rows = rows_of(task), cols = min64(kGradientBlock, in - c0), panels = ceil_div(rows, kStridedRows);
    for (int64_t c = 0; c < cols; c += NR)
      for (int64_t q = 0; q < panels; ++q) {
        const int64_t r0 = rows * q / panels;
        const int mr = int(rows * (q + 1) / panels - r0);
        float* to = u + point * block + r0 * kGradientBlock + c;
        tile_for<MulF32, false>(mr, cols - c <= L ? 1 : kTileVecs)(
            count, dyt + point * dy_plane + o0 + r0, 1, dy_row, xt + point * x_plane + c0 + c, x_row, to,
            kGradientBlock, add ? to : nullptr, kGradientBlock, nullptr, 0);
      }
  };
  auto finish = [&](int64_t task, int64_t row, const float* u) {
    const int64_t o0 = task / across * kGradientBlock, c0 = task % across * kGradientBlock,
                  cols = min64(kGradientBlock, in - c0);
    for (int64_t c = 0; c < cols; c += L)
      store_weight(f.dweight, o0 + row, c0 + c, u + row * kGradientBlock + c, block);
  };
  for (int64_t t0 = 0; t0 < total; t0 += per_round) {
    const int64_t count = min64(per_round, total - t0);
    const bool last = t0 + per_round >= total;
    transform_tiles<6>(x, tiles, f.shape.padding[0], f.shape.padding[1], t0, t0 + count,
                       Planes{xt, x_plane, x_row, count});
    transform_tiles<4>(dy, tiles, 0, 0, t0, t0 + count, Planes{dyt, dy_plane, dy_row, count});
    if (by_point) {
      parallel_for(blocks * kPoints, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          multiply(i / kPoints, int(i % kPoints), count, t0 > 0, sums + i / kPoints * kPoints * block);
      });
    } else {
      parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
        float* mine = sums ? nullptr : static_cast<float*>(scratch(size_t(kPoints * block) * 4, kSlotProducts));
        for (int64_t task = begin; task < end; ++task) {
          float* u = sums ? sums + task * kPoints * block : mine;
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
          finish(task, row, sums + task * kPoints * block);
    });
  if (f.dbias) bias_gradient(f.dbias, dy);
}

// Cycles per 16 weights, as measured with AVX-512: transforming them costs about 110, each tile 36 multiply-adds of two
// per cycle; direct, each output pixel costs 9.
static bool worth(int64_t batch, int64_t height, int64_t width) {
  const int64_t winograd = 110 + tiles_of(batch, height, width).count() * kPoints / 2,
                direct = batch * height * width * 9 / 2;
  return winograd * 6 < direct * 5;
}
static bool shape_ok(const TensorView& w, const ConvShape& s) {
  return w.ndim == 4 && w.sizes[2] == 3 && w.sizes[3] == 3 && s.stride[0] == 1 && s.stride[1] == 1 &&
         s.dilation[0] == 1 && s.dilation[1] == 1 && s.groups == 1 && s.padding[0] <= 2 && s.padding[1] <= 2 &&
         w.sizes[0] % 16 == 0 && w.sizes[1] % 16 == 0;
}
static bool float_image(const TensorView& t) {
  return !t || (t.dtype == kFloat32 && (t.is_channels_last() || t.is_contiguous()));
}

static bool bf16_image(const TensorView& t) { return !t || (t.dtype == kBFloat16 && t.is_channels_last()); }

static bool supports_forward(const ConvForward& f) {
  const bool floats =
      float_image(f.x) && float_image(f.y) && float_image(f.residual) && (!f.bias || f.bias.dtype == kFloat32);
  const bool halves = !floats && bf16_image(f.x) && bf16_image(f.y) && bf16_image(f.residual);
  return (floats || halves) && shape_ok(f.weight, f.shape) && worth(f.y.sizes[0], f.y.sizes[2], f.y.sizes[3]);
}
static bool supports_prepared(const PreparedConvForward& f) {
  auto last = [](const TensorView& t) { return !t || t.is_channels_last(); };
  return f.conv.x.dtype == kFloat32 && last(f.conv.x) && last(f.conv.y) && last(f.conv.residual) &&
         supports_forward(f.conv);
}
static bool supports_data(const ConvBackwardData& f) {
  const bool floats = float_image(f.dy) && float_image(f.dx), halves = !floats && bf16_image(f.dy) && bf16_image(f.dx);
  return (floats || halves) && shape_ok(f.weight, f.shape) && worth(f.dx.sizes[0], f.dx.sizes[2], f.dx.sizes[3]);
}
static bool supports_weights(const ConvBackwardWeights& f) {
  return float_image(f.x) && float_image(f.dy) && f.dweight.dtype == kFloat32 &&
         (!f.dbias || f.dbias.dtype == kFloat32) && shape_ok(f.dweight, f.shape) &&
         worth(f.dy.sizes[0], f.dy.sizes[2], f.dy.sizes[3]);
}

}  // namespace SF_ISA

SF_KERNEL(conv_forward, DeviceType::CPU, "winograd", 20 + SF_ISA_PRIORITY, SF_ISA::forward, SF_ISA::supports_forward)
SF_KERNEL(prepared_conv_forward, DeviceType::CPU, "winograd", 20 + SF_ISA_PRIORITY, SF_ISA::forward_prepared,
          SF_ISA::supports_prepared)
SF_KERNEL(conv_backward_data, DeviceType::CPU, "winograd", 20 + SF_ISA_PRIORITY, SF_ISA::backward_data,
          SF_ISA::supports_data)
SF_KERNEL(conv_backward_weights, DeviceType::CPU, "winograd", 20 + SF_ISA_PRIORITY, SF_ISA::backward_weights,
          SF_ISA::supports_weights)

}  // namespace sf
#endif
