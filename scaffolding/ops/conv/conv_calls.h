// A convolution and its gradients as matrix products of one arithmetic. Activations are brought to channels-last when
// they are not, weights to [tap][o][c].
// Included only by *.cpu.cpp and *.amx.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include <optional>

#include "scaffolding/backend/cpu/packed_weights.h"
#include "scaffolding/ops/conv/conv_1x1.h"
#include "scaffolding/ops/conv/conv_product.h"
#include "scaffolding/ops/conv/conv_rows.h"

namespace sf {
namespace SF_ISA {

constexpr uint32_t kFormat = 10 + SF_ISA_PRIORITY * 10;  // in PackedKey: + 0 forward, + 1 backward
enum ConvSlot { kSlotX = 8, kSlotY, kSlotResidual, kSlotTaps, kSlotZeros, kSlotGradient, kSlotPackedB, kSlotSteps };

// dst[i] = element i of t in channels-last order, or the other way round.
template <class T, bool kBack> static void copy_channels_last(T* laid, const TensorView& t) {
  const int64_t batch = t.sizes[0], channels = t.sizes[1];
  int64_t pixels = 1;
  for (int i = 2; i < t.ndim; ++i) pixels *= t.sizes[i];
  constexpr int64_t kBlock = 32;  // pixels x channels that stay in L1 while rows become columns
  parallel_for(batch * ceil_div(pixels, kBlock), 8, [&](int64_t begin, int64_t end) {
    for (int64_t q = begin; q < end; ++q) {
      const int64_t n = q / ceil_div(pixels, kBlock), p0 = q % ceil_div(pixels, kBlock) * kBlock,
                    p1 = min64(pixels, p0 + kBlock);
      int64_t offset[kBlock];
      for (int64_t p = p0; p < p1; ++p) {
        int64_t rest = p, o = n * t.strides[0];
        for (int i = t.ndim - 1; i > 1; --i) o += rest % t.sizes[i] * t.strides[i], rest /= t.sizes[i];
        offset[p - p0] = o;
      }
      for (int64_t c0 = 0; c0 < channels; c0 += kBlock)
        for (int64_t p = p0; p < p1; ++p) {
          T* l = laid + (n * pixels + p) * channels;
          T* plain = t.as<T>() + offset[p - p0];
          for (int64_t c = c0; c < min64(channels, c0 + kBlock); ++c) {
            if (kBack) plain[c * t.strides[1]] = l[c];
            else l[c] = plain[c * t.strides[1]];
          }
        }
    }
  });
}

template <class T> static const T* laid_input(const TensorView& t, int slot) {
  if (t.is_channels_last()) return t.as<const T>();
  T* p = static_cast<T*>(scratch(size_t(t.numel()) * sizeof(T) + 64, slot));
  copy_channels_last<T, false>(p, t);
  return p;
}
template <class T> static T* laid_output(const TensorView& t, int slot) {
  return t.is_channels_last() ? t.as<T>() : static_cast<T*>(scratch(size_t(t.numel()) * sizeof(T) + 64, slot));
}

template <class T> static T* zero_row(int64_t channels) {
  const size_t bytes = size_t(channels) * sizeof(T) + 64;
  void* p = scratch(bytes, kSlotZeros);
  __builtin_memset(p, 0, bytes);
  return static_cast<T*>(p);
}

// [tap][o][c] of weight[o, c, *kernel]; in place where c is already the fastest.
template <class T> static TapWeight<T> by_tap(const TensorView& w) {
  const int64_t out = w.sizes[0], in = w.sizes[1];
  int64_t taps = 1, step = -1;
  bool regular = true;  // taps lie at one stride
  for (int i = w.ndim - 1; i > 1; --i) {
    if (w.sizes[i] == 1) continue;
    if (step < 0) step = w.strides[i];
    regular = regular && w.strides[i] == step * taps;
    taps *= w.sizes[i];
  }
  if (regular && (w.strides[1] == 1 || in == 1 || taps == 1))
    return {w.as<const T>(), step < 0 ? 0 : step, w.strides[0], w.strides[1]};
  T* p = static_cast<T*>(scratch(size_t(out * in * taps) * sizeof(T), kSlotTaps));
  parallel_for(out, max64(1, 16384 / (in * taps)), [&](int64_t begin, int64_t end) {
    constexpr int64_t kTogether = 64;  // channels whose taps stay in L1
    for (int64_t o = begin; o < end; ++o)
      for (int64_t c0 = 0; c0 < in; c0 += kTogether)
        for (int64_t t = 0; t < taps; ++t) {
          const int64_t n = min64(kTogether, in - c0), step_c = w.strides[1];
          int64_t rest = t, at = o * w.strides[0] + c0 * step_c;
          if (regular) at += t * step;
          else
            for (int i = w.ndim - 1; i > 1; --i) at += rest % w.sizes[i] * w.strides[i], rest /= w.sizes[i];
          const T* from = w.as<const T>() + at;
          T* to = p + (t * out + o) * in + c0;
          for (int64_t c = 0; c < n; ++c) to[c] = from[c * step_c];
        }
  });
  return {p, out * in, in, 1};
}

// Numbers from one channel's taps to the next where a weight lies as usual, [o][c][taps] with taps together; else 0.
SF_INLINE int64_t taps_together(const TensorView& w) {
  int64_t taps = 1;
  for (int i = w.ndim - 1; i > 1; --i) {
    if (w.sizes[i] != 1 && w.strides[i] != taps) return 0;
    taps *= w.sizes[i];
  }
  return taps > 1 && taps <= 27 && w.strides[1] == taps ? taps : 0;
}

// The whole of b from a weight whose taps lie together: all taps of a few channels are turned at once. Memory is
// read front to back, and nothing is laid out in between. first: output channel of strip 0.
inline constexpr int64_t kTurned = 16 * 9;  // numbers of a row that are turned at once, in the first cache
template <class K> inline constexpr int64_t kTurnedUnits = kTurned* kTileCols<K> + kPackSlack;
template <class K, class W>
static void pack_taps(const TensorView& w, int64_t taps, int64_t first, int64_t out, const PackedShape<K>& s,
                      typename K::Unit* dst) {
  constexpr int NR = kTileCols<K>;
  constexpr int64_t kPart = 64;  // channels of a task
  const int64_t in = w.sizes[1], parts = ceil_div(in, kPart), row = w.strides[0], group = max64(1, kTurned / taps);
  parallel_for(s.strips * parts, max64(1, (1 << 16) / (kPart * taps * NR)), [&](int64_t begin, int64_t end) {
    alignas(64) typename K::Unit raw[kTurnedUnits<K>];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t strip = task / parts, c1 = min64(in, (task % parts + 1) * kPart), o = strip * NR;
      const int cols = int(min64(NR, out - o));
      const W* from = w.as<const W>() + (first + o) * row;
      for (int64_t c = task % parts * kPart; c < c1; c += group) {
        const int64_t n = min64(group, c1 - c), bytes = n * taps * int64_t(sizeof(W));
        for (int i = 0; i < cols; ++i)  // the next ones: rows are too far apart for the processor to see a stream
          for (int64_t line = 0; line < bytes; line += 64)
            __builtin_prefetch(reinterpret_cast<const char*>(from + i * row + c * taps) + bytes + line);
        pack<K>(raw, NR, from + c * taps, row, 1, cols, n * taps);
        for (int64_t t = 0; t < taps; ++t)
          for (int64_t i = 0; i < n; ++i) {
            const int64_t k = t * in + c + i, block = k / s.block_units;
            __builtin_memcpy(dst + s.offset(block, strip) + (k - block * s.block_units) * NR, raw + (i * taps + t) * NR,
                             NR * sizeof(raw[0]));
          }
      }
    }
  });
}

// With few pixels a product costs what reading its weight does: one whose packed copy is not kept is packed and
// multiplied a part at a time, which stays in a cache between the two.
constexpr int64_t kFewPixels = 128, kPackedPart = 8 << 20;  // bytes

// The rest of a convolution once its product is described: pack b (or find it packed), multiply. pack(shape, to, first)
// writes the columns of b from that one on.
template <class K, class P, class F> static void multiply_conv(const P& p, const cpu::PackedKey& key, const F& pack) {
  if (p.m == 0 || p.n == 0) return;
  using Unit = typename K::Unit;
  const PackedShape<K> s(p.k, p.n);
  const cpu::PackedWeight kept(key, s.bytes(), [&](void* to) {
    pack(s, static_cast<Unit*>(to), 0);
    remember_rest<K>(p, s, to);
  });
  if (void* b = kept.get()) {
    recall_rest<K>(p, s, b);
    return multiply_prepacked<K>(p, s, static_cast<const Unit*>(b));
  }
  const int64_t per_strip = max64(1, int64_t(s.bytes()) / s.strips),
                strips = p.m <= kFewPixels ? max64(8, kPackedPart / per_strip) : s.strips,
                chunk = strips * kTileCols<K>;
  for (int64_t c0 = 0; c0 < p.n; c0 += chunk) {
    P part = p;
    part.n = min64(chunk, p.n - c0);
    part.e = columns(p.e, c0);
    const PackedShape<K> shape(p.k, part.n);
    Unit* b = static_cast<Unit*>(scratch(shape.bytes(), kSlotPackedB));
    pack(shape, b, c0);
    multiply_prepacked<K>(part, shape, b);
  }
}

template <class K>
static cpu::PackedKey key_of(const TensorView& w, uint64_t version, int64_t groups, int64_t group, bool forward) {
  cpu::PackedKey key{w.data, version, kFormat + uint32_t(forward ? 0 : 1), {int64_t(w.dtype), groups, group}};
  key.layout[3] = w.sizes[0], key.layout[4] = w.sizes[1];
  for (int i = 2; i < w.ndim; ++i) key.layout[3 + i] = w.sizes[i];
  key.layout[8] = w.strides[0], key.layout[9] = w.strides[1];
  key.unit = sizeof(typename K::Unit);
  return key;
}

// How results see the gathered tensor where it can be staged. steps[k]: of each unit of k, in the order in which b is
// packed.
template <class K, class T, bool kForward>
static StagedRows<T, kForward> staged_rows(const Gather<T, kForward>& from, int64_t channels, int64_t padded) {
  StagedRows<T, kForward> s;
  if constexpr (requires { K::kStages; }) {
    const ConvGeometry& g = *from.g;
    if (g.stride[1] * g.stride[2] != 1) return s;
    int64_t span[3];
    for (int i : {1, 2}) {
      span[i] = (g.kernel[i] - 1) * g.dilation[i];
      s.before[i - 1] = kForward ? g.padding[i] : span[i] - g.padding[i];
      if (s.before[i - 1] < 0) return s;
    }
    s.g = &g;
    s.pixel = from.pixel, s.channels = channels, s.padded = padded;
    s.line = s.results()[2] + span[2], s.reach = span[1] * s.line + span[2];
    for (int64_t rows = 1024; rows >= K::kPanelRows; rows /= 2) {
      s.block = rows + 2 * K::kRowStep;
      if (s.most_bytes(s.block) <= K::kStageBytes) break;
    }
    if (s.most_bytes(s.block) > 2 * K::kStageBytes) return s;  // kernels of many taps
    int32_t* steps = static_cast<int32_t*>(scratch(size_t(g.taps * padded / K::kDepth) * sizeof(int32_t), kSlotSteps));
    s.steps = steps;
    for (int64_t tap = 0; tap < g.taps; ++tap) {
      const int64_t i = tap / g.kernel[2] % g.kernel[1] * g.dilation[1], j = tap % g.kernel[2] * g.dilation[2],
                    t = tap / (g.kernel[1] * g.kernel[2]);
      const int64_t at = t * s.plane(s.block) + (kForward ? i : span[1] - i) * s.line + (kForward ? j : span[2] - j);
      for (int64_t c = 0; c < padded; c += K::kDepth) *steps++ = int32_t(at * padded + c);
    }
    s.data = from.data;
  }
  return s;
}

template <class K, class T> static void forward(const ConvForward& f, bool* rest = nullptr) {
  if constexpr (std::is_same_v<K, MulF32>)
    if (is_product_of_pixels(f)) return multiply_pixels(f);
  const ConvGeometry g = ConvGeometry::of(f.x, f.weight, f.y, f.shape);
  const int64_t groups = f.shape.groups, in = f.weight.sizes[1], out = f.weight.sizes[0] / groups,
                channels = f.y.sizes[1];
  const T* x = laid_input<T>(f.x, kSlotX);
  const T* residual = f.residual ? laid_input<T>(f.residual, kSlotResidual) : nullptr;
  T* y = laid_output<T>(f.y, kSlotY);
  const T* zeros = zero_row<T>(in);
  for (int64_t i = 0; i < groups; ++i) {
    Epilogue e{};
    e.c = y + i * out, e.c_row = channels, e.c_type = f.y.dtype;
    e.act = f.act, e.alpha = 1;
    if (f.bias) e.bias = advance(f.bias.data, f.bias.dtype, i * out), e.bias_type = f.bias.dtype;
    if (residual) e.residual = residual + i * out, e.residual_row = channels, e.residual_type = f.residual.dtype;
    const int64_t padded = ceil_div(in, K::kDepth) * K::kDepth;
    ConvProduct<K, T, true> p{
        g.out_pixels(), out, g.taps * padded, e, {&g, x + i * in, f.x.sizes[1], zeros}, in, padded, {}, rest};
    p.staged = staged_rows<K>(p.from, p.channels, padded);
    if (p.staged.data) p.m = g.batch * p.staged.results()[0] * p.staged.per_frame();
    std::optional<TapWeight<T>> w;  // laid out once, where it has to be
    auto pack_weight = [&](const PackedShape<K>& s, typename K::Unit* to, int64_t c0) {
      const int64_t first = i * out + c0, columns = min64(s.strips * kTileCols<K>, out - c0);
      if constexpr (K::kDepth == 1)
        if (const int64_t taps = taps_together(f.weight)) {
          if constexpr (std::is_same_v<T, float>) {
            if (f.weight.dtype == kFloat16) return pack_taps<K, Half>(f.weight, taps, first, columns, s, to);
            if (f.weight.dtype == kBFloat16) return pack_taps<K, BFloat16>(f.weight, taps, first, columns, s, to);
          }
          return pack_taps<K, T>(f.weight, taps, first, columns, s, to);
        }
      if (!w) w = by_tap<T>(f.weight);
      auto described = p;
      described.n = columns;
      described.w = {w->data + first * w->o, w->tap, w->o, w->c};
      pack_whole_b<K>(described, s, to);
    };
    multiply_conv<K>(p, key_of<K>(f.weight, f.weight_version, groups, i, true), pack_weight);
  }
  if (!f.y.is_channels_last()) copy_channels_last<T, true>(y, f.y);
}

template <class K, class T> static void backward_data(const ConvBackwardData& f, bool* rest = nullptr) {
  if constexpr (std::is_same_v<K, MulF32>)
    if (is_product_of_frames(f)) return multiply_frames(f);
  const ConvGeometry g = ConvGeometry::of(f.dx, f.weight, f.dy, f.shape);
  const int64_t groups = f.shape.groups, in = f.weight.sizes[1], out = f.weight.sizes[0] / groups,
                channels = f.dx.sizes[1];
  const T* dy = laid_input<T>(f.dy, kSlotY);
  T* dx = laid_output<T>(f.dx, kSlotX);
  const T* zeros = zero_row<T>(out);
  for (int64_t i = 0; i < groups; ++i) {
    Epilogue e{};
    e.c = dx + i * in, e.c_row = channels, e.c_type = f.dx.dtype, e.alpha = 1;
    const int64_t padded = ceil_div(out, K::kDepth) * K::kDepth;
    ConvProduct<K, T, false> p{
        g.in_pixels(), in, g.taps * padded, e, {&g, dy + i * out, f.dy.sizes[1], zeros}, out, padded, {}, rest};
    p.staged = staged_rows<K>(p.from, p.channels, padded);
    if (p.staged.data) p.m = g.batch * p.staged.results()[0] * p.staged.per_frame();
    std::optional<TapWeight<T>> w;
    auto pack_weight = [&](const PackedShape<K>& s, typename K::Unit* to, int64_t c0) {
      if (!w) w = by_tap<T>(f.weight);
      auto described = p;
      described.n = min64(s.strips * kTileCols<K>, in - c0);
      described.w = {w->data + i * out * w->o + c0 * w->c, w->tap, w->o, w->c};
      pack_whole_b<K>(described, s, to);
    };
    multiply_conv<K>(p, key_of<K>(f.weight, f.weight_version, groups, i, false), pack_weight);
  }
  if (!f.dx.is_channels_last()) copy_channels_last<T, true>(dx, f.dx);
}

template <class D, class A> SF_INLINE void store_one(void* to, int64_t i, A x) {
  if constexpr (sizeof(D) == sizeof(A)) static_cast<D*>(to)[i] = D(x);
  else static_cast<D*>(to)[i] = from_float<D>(float(x));
}
template <class F> SF_INLINE void visit_stored(DType t, const F& f) {
  switch (t) {
    case kFloat64: return f(type_tag<double>{});
    case kBFloat16: return f(type_tag<BFloat16>{});
    case kFloat16: return f(type_tag<Half>{});
    default: return f(type_tag<float>{});
  }
}

// dweight[o, c, tap] from sums[o][tap][padded c].
template <class A>
static void store_weight(const TensorView& dw, const A* sums, int64_t first, int64_t out, int64_t in, int64_t padded,
                         int64_t taps) {
  const int64_t stride = dw.strides[1];
  parallel_for(out, max64(1, 16384 / (in * taps)), [&](int64_t begin, int64_t end) {
    visit_stored(dw.dtype, [&](auto tag) {
      using D = typename decltype(tag)::type;
      for (int64_t o = begin; o < end; ++o)
        for (int64_t t = 0; t < taps; ++t) {
          int64_t rest = t, at = (first + o) * dw.strides[0];
          for (int i = dw.ndim - 1; i > 1; --i) at += rest % dw.sizes[i] * dw.strides[i], rest /= dw.sizes[i];
          D* to = dw.as<D>() + at;
          const A* from = sums + (o * taps + t) * padded;
          for (int64_t c = 0; c < in; ++c) store_one<D>(to, c * stride, from[c]);
        }
    });
  });
}

template <class A, class T>
static void bias_gradient(const TensorView& db, const T* dy, int64_t pixels, int64_t channels) {
  // Channels are dealt to threads: no sums to merge. Blocks of channels stay in registers over a column of pixels.
  parallel_for(ceil_div(channels, 64), max64(1, (1 << 14) / max64(1, pixels)), [&](int64_t begin, int64_t end) {
    for (int64_t q = begin; q < end; ++q) {
      const int64_t c0 = q * 64, n = min64(64, channels - c0);
      A sum[64] = {};
      for (int64_t p = 0; p < pixels; ++p)
        for (int64_t c = 0; c < n; ++c) {
          if constexpr (sizeof(T) == sizeof(A)) sum[c] += dy[p * channels + c0 + c];
          else sum[c] += to_float(dy[p * channels + c0 + c]);
        }
      visit_stored(db.dtype, [&](auto tag) {
        for (int64_t c = 0; c < n; ++c)
          store_one<typename decltype(tag)::type>(db.data, (c0 + c) * db.strides[0], sum[c]);
      });
    }
  });
}

template <class K, class T> static void backward_weights(const ConvBackwardWeights& f, bool* rest = nullptr) {
  if constexpr (std::is_same_v<K, MulF32>)
    if (is_sum_of_rows(f)) return sum_rows(f);
  using Acc = typename K::Acc;
  const ConvGeometry g = ConvGeometry::of(f.x, f.dweight, f.dy, f.shape);
  const int64_t groups = f.shape.groups, in = f.dweight.sizes[1], out = f.dweight.sizes[0] / groups,
                pixels = g.out_pixels();
  const T* x = laid_input<T>(f.x, kSlotX);
  const T* dy = laid_input<T>(f.dy, kSlotY);
  const T* zeros = zero_row<T>(in);
  const int64_t padded = ceil_div(in, kTileCols<K>) * kTileCols<K>, columns = g.taps * padded;
  Acc* sums = static_cast<Acc*>(scratch(size_t(out * columns) * sizeof(Acc), kSlotGradient));
  // Pixels go in chunks whose unfolded input fits in L3 with room to spare.
  const int64_t chunk =
      max64(K::kDepth * K::kDepthBlock, (int64_t(16) << 20) / (columns * int64_t(sizeof(T))) /
                                            (K::kDepth * K::kDepthBlock) * (K::kDepth * K::kDepthBlock));
  for (int64_t i = 0; i < groups; ++i) {
    if (pixels == 0) __builtin_memset(sums, 0, size_t(out * columns) * sizeof(Acc));
    for (int64_t p0 = 0; p0 < pixels; p0 += chunk) {
      Epilogue e{};
      e.c = sums, e.c_row = columns, e.c_type = kAccType<K>, e.alpha = 1, e.beta = p0 ? 1 : 0;
      ConvWeightProduct<K, T> p{out,
                                columns,
                                min64(chunk, pixels - p0),
                                e,
                                {&g, x + i * in, f.x.sizes[1], zeros},
                                in,
                                padded,
                                dy + i * out,
                                f.dy.sizes[1],
                                p0,
                                rest};
      if (p.m == 0 || p.n == 0) continue;
      const PackedShape<K> shape(p.k, p.n);
      auto* b = static_cast<typename K::Unit*>(scratch(shape.bytes(), kSlotPackedB));
      pack_whole_b<K>(p, shape, b);
      multiply_prepacked<K>(p, shape, b);
    }
    store_weight(f.dweight, sums, i * out, out, in, padded, g.taps);
  }
  if (f.dbias) bias_gradient<Acc>(f.dbias, dy, pixels, f.dy.sizes[1]);
}

}  // namespace SF_ISA
}  // namespace sf
