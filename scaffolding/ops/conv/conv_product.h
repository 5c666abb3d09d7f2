// A convolution as a matrix product whose operands are packed straight from the tensors:
// no unfolded input is ever stored.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
//
// Rows are output pixels, k runs over (tap, channel): a row of the unfolded input is one pointer per tap, to the pixel
// under that tap or to zeros outside. Channels are rounded up to whole units, so a unit never spans two taps.
#pragma once
#include "scaffolding/ops/conv/staged_rows.h"

namespace sf {
namespace SF_ISA {

// Which pixel lies under which tap. kForward: rows are output pixels and the gathered tensor is x. Else rows are input
// pixels and the gathered tensor is dy, where only taps that meet the stride's grid find a pixel.
template <class Src, bool kForward> struct Gather {
  const ConvGeometry* g;
  const Src* data;   // channels-last, first channel of the group
  int64_t pixel;     // stride between pixels: all channels
  const Src* zeros;  // a row of zeros for the padding

  // The place of a row, computed once for all taps.
  struct Place {
    int64_t image, pixel[3], at[3];
  };
  SF_INLINE void see(Place& p, int i) const {
    p.at[i] = kForward ? p.pixel[i] * g->stride[i] - g->padding[i] : p.pixel[i] + g->padding[i];
  }
  SF_INLINE Place place(int64_t row) const {
    const int64_t* size = kForward ? g->out : g->in;
    Place p;
    for (int i = 2; i >= 0; --i) {
      p.pixel[i] = row % size[i];
      row /= size[i];
      see(p, i);
    }
    p.image = row;
    return p;
  }
  // The next row, without a division.
  SF_INLINE void advance(Place& p) const {
    const int64_t* size = kForward ? g->out : g->in;
    for (int i = 2; i >= 0; --i) {
      const bool within = ++p.pixel[i] < size[i];
      if (!within) p.pixel[i] = 0;
      see(p, i);
      if (within) return;
    }
    ++p.image;
  }
  // How far a tap is from a place, computed once for all rows: its divisions cost more than a row of few channels.
  struct Step {
    int64_t by[3];
  };
  SF_INLINE Step step(int64_t tap) const {
    const int64_t sign = kForward ? 1 : -1;
    return {{sign * g->dilation[0] * (tap / (g->kernel[1] * g->kernel[2])),
             sign * g->dilation[1] * (tap / g->kernel[2] % g->kernel[1]),
             sign * g->dilation[2] * (tap % g->kernel[2])}};
  }
  SF_INLINE const Src* under(const Place& p, const Step& s) const {
    const int64_t* size = kForward ? g->in : g->out;
    int64_t index = p.image;
    for (int i = 0; i < 3; ++i) {
      int64_t at = p.at[i] + s.by[i];
      if (!kForward && g->stride[i] > 1) {
        if (at < 0 || at % g->stride[i]) return zeros;
        at /= g->stride[i];
      }
      if (at < 0 || at >= size[i]) return zeros;
      index = index * size[i] + at;
    }
    return data + index * pixel;
  }
};

// A weight by (tap, o, c) whatever its layout.
template <class Src> struct TapWeight {
  const Src* data;
  int64_t tap, o, c;  // strides
};

// Calls f(offset in values from k0, tap, channel, values) for each run of one tap in k0 .. k0 + values.
template <class F> SF_INLINE void for_taps(int64_t k0, int64_t values, int64_t channels, int64_t padded, const F& f) {
  for (int64_t k = k0; k < k0 + values;) {
    const int64_t tap = k / padded, c = k % padded, n = min64(padded - c, k0 + values - k);
    f(k - k0, tap, c, min64(n, channels - c));
    k += n;
  }
}

// Output pixels x (tap, channel) x output channels; with kForward false, the gradient of the input.
template <class K, class S, bool kForward, class E = Epilogue> struct ConvProduct {
  using Src = S;
  int64_t m, n, k;
  E e;
  Gather<Src, kForward> from;
  int64_t channels, padded;  // of the gathered tensor, per group
  TapWeight<Src> w;
  bool* rest = nullptr;              // watch_packing()
  StagedRows<Src, kForward> staged;  // instead of `from`, where data is not null

  void pack_a(typename K::Unit* dst, int64_t row, int rows, int64_t k0, int64_t values) const {
    typename Gather<Src, kForward>::Place at[K::kPanelRows];
    const Src* p[K::kPanelRows];
    at[0] = from.place(row);
    for (int i = 1; i < rows; ++i) from.advance(at[i] = at[i - 1]);
    for_taps(k0, values, channels, padded, [&](int64_t offset, int64_t tap, int64_t c, int64_t count) {
      const auto step = from.step(tap);
      for (int i = 0; i < rows; ++i) p[i] = from.under(at[i], step) + c;
      pack_rows<typename K::Left>(dst + offset / K::kDepth * rows, rows, p, rows, count);
    });
    watch_packing<K>(rest);
  }
  void pack_b(typename K::Unit* dst, int64_t col, int cols, int64_t k0, int64_t values) const {
    const int64_t ws = kForward ? w.o : w.c, ks = kForward ? w.c : w.o;
    for_taps(k0, values, channels, padded, [&](int64_t offset, int64_t tap, int64_t c, int64_t count) {
      pack<K>(dst + offset / K::kDepth * kTileCols<K>, kTileCols<K>, w.data + tap * w.tap + c * ks + col * ws, ws, ks,
              cols, count);
    });
    watch_packing<K>(rest);
  }
};

// Gradient of the weight: output channels x pixels x (tap, input channel), the last rounded up per tap to whole strips.
template <class K, class S> struct ConvWeightProduct {
  using Src = S;
  int64_t m, n, k;
  Epilogue e;
  Gather<Src, true> from;
  int64_t channels, padded;
  const Src* dy;  // first output channel of the group
  int64_t dy_pixel;
  int64_t first_pixel;  // k counts from here
  bool* rest = nullptr;

  void pack_a(typename K::Unit* dst, int64_t row, int rows, int64_t k0, int64_t values) const {
    pack<typename K::Left>(dst, rows, dy + (first_pixel + k0) * dy_pixel + row, 1, dy_pixel, rows, values);
    watch_packing<K>(rest);
  }
  void pack_b(typename K::Unit* dst, int64_t col, int, int64_t k0, int64_t values) const {
    const Src* p[64];
    const int64_t tap = col / padded, c = col % padded;
    const auto step = from.step(tap);
    auto place = from.place(first_pixel + k0);
    for (int64_t i = 0; i < values; i += 64) {
      const int64_t count = min64(values - i, 64);
      for (int64_t j = 0; j < count; ++j, from.advance(place)) p[j] = from.under(place, step) + c;
      pack_columns<K>(dst + i / K::kDepth * kTileCols<K>, kTileCols<K>, p, int(min64(channels - c, kTileCols<K>)),
                      count);
    }
    watch_packing<K>(rest);
  }
};

}  // namespace SF_ISA
}  // namespace sf
