// grid_sample on the CPU. Places are turned into taps, pixels with weights, a block of them at a time; each channel
// then gathers its block by the same taps, which stay in the first-level cache.
#include "scaffolding/backend/cpu/simd_rows.h"
#include "scaffolding/ops/grid_sample/kernel.h"

namespace sf {
namespace SF_ISA {
namespace {

constexpr int kBlock = 128;

// Along one dimension: pixels (-1: outside), their weights, and how those change with the grid's number.
template <class T> struct Axis {
  alignas(64) int32_t at[4][kBlock];
  alignas(64) T weight[4][kBlock], slope[4][kBlock];
};
template <class T> struct Taps {
  alignas(64) int32_t at[16][kBlock];  // pixel of a plane, or -1
  alignas(64) T weight[16][kBlock];
};

template <class V> struct Side {
  V last;       // the last pixel
  V low, span;  // reflections: the first border, and from border to border
  bool flat;    // nothing lies between the borders
};

// The place c inside; its slope is multiplied by how the result changes with c.
template <GridSample::Padding P, class V> SF_INLINE V padded(V c, V& slope, const Side<V>& s) {
  V zero(0.0);
  if constexpr (P == GridSample::Reflection) {
    V from = c - s.low;
    slope = select(from < zero, -slope, slope);
    from = abs(from);
    V turns = floor(from / s.span), rest = from - turns * s.span;
    auto back = turns - V(2.0) * floor(turns * V(0.5)) != zero;
    slope = s.flat ? zero : select(back, -slope, slope);
    c = s.flat ? zero : select(back, s.span - rest, rest) + s.low;
  }
  if constexpr (P != GridSample::Zeros) {
    slope = select((c > zero) & (c < s.last), slope, zero);
    c = select(c > zero, select(c < s.last, c, s.last), zero);  // NaN is 0
  }
  return c;
}
// From a grid's numbers to places along dimension d.
template <class T> struct Scale {
  using V = Vec<T>;
  V factor, centre;
  Side<V> side;
  SF_INLINE Scale(const GridSample& g, int d)
      : factor((g.align_corners ? T(g.size[d]) - 1 : T(g.size[d])) / 2),
        centre((T(g.size[d]) - 1) / 2),
        side{V(T(g.size[d]) - 1), V(g.align_corners ? T(0) : T(-0.5)),
             V(g.align_corners ? T(g.size[d]) - 1 : T(g.size[d])), g.align_corners && g.size[d] == 1} {}
  // kPadded: not of Cubic, whose pixels are padded one by one. Far outside instead of NaN and infinities.
  template <GridSample::Padding P, bool kPadded> SF_INLINE V place(V number, V& slope) const {
    const V far(T(1 << 30));
    slope = factor;
    V c = fma(number, factor, centre);
    if constexpr (kPadded) c = padded<P>(c, slope, side);
    return select((c < far) & (c > -far), c, V(T(-100)));
  }
};
// A whole number as a pixel, -1 outside.
template <class V> SF_INLINE V pixel(V c, V last) { return select((c >= V(0.0)) & (c <= last), c, V(-1.0)); }

template <class T, GridSample::Mode M, int D, GridSample::Padding P>
void axis(const GridSample& g, int d, const T* grid, int n, Axis<T>& a) {
  using V = Vec<T>;
  constexpr int W = M == GridSample::Nearest ? 1 : M == GridSample::Linear ? 2 : 4;
  constexpr T A = T(-0.75);  // Keys' cubic convolution, as in torch
  alignas(64) T numbers[kBlock], at[W][kBlock];
  int whole = (n + kVec<T> - 1) / kVec<T> * kVec<T>;
  for (int i = 0; i < n; ++i) numbers[i] = grid[i * D + d];
  for (int i = n; i < whole; ++i) numbers[i] = 0;
  const Scale<T> scale(g, d);
  const Side<V>& side = scale.side;
  V one(T(1));
  for (int i = 0; i < whole; i += kVec<T>) {
    V slope, c = scale.template place<P, M != GridSample::Cubic>(load(numbers + i), slope);
    if constexpr (M == GridSample::Nearest) {
      store(at[0] + i, pixel(round(c), side.last));
      store(a.weight[0] + i, one);
      store(a.slope[0] + i, V(T(0)));
    } else {
      V first = floor(c), t = c - first, u = one - t;
      if constexpr (M == GridSample::Linear) {
        store(at[0] + i, pixel(first, side.last));
        store(at[1] + i, pixel(first + one, side.last));
        store(a.weight[0] + i, u);
        store(a.weight[1] + i, t);
        store(a.slope[0] + i, -slope);
        store(a.slope[1] + i, slope);
      } else {
        for (int k = 0; k < 4; ++k) {
          V unused(T(0)), q = padded<P>(first + V(T(k - 1)), unused, side);
          store(at[k] + i, pixel(round(q), side.last));
        }
        // products of small factors: sums of the polynomials' terms would cancel
        auto near = [&](V x) __attribute__((always_inline)) { return fma(fma(V(A + 2), x, V(-A - 3)) * x, x, one); };
        auto near_slope = [&](V x) __attribute__((always_inline)) {
          return fma(V(3 * (A + 2)), x, V(-2 * (A + 3))) * x;
        };
        V three(T(3));
        store(a.weight[0] + i, V(A) * t * u * u);
        store(a.weight[1] + i, near(t));
        store(a.weight[2] + i, near(u));
        store(a.weight[3] + i, V(A) * u * t * t);
        store(a.slope[0] + i, slope * V(A) * u * (one - three * t));
        store(a.slope[1] + i, slope * near_slope(t));
        store(a.slope[2] + i, -slope * near_slope(u));
        store(a.slope[3] + i, slope * V(A) * t * (V(T(2)) - three * t));
      }
    }
  }
  for (int k = 0; k < W; ++k)
    for (int i = 0; i < n; ++i) a.at[k][i] = int32_t(at[k][i]);
}

template <class T, GridSample::Mode M, int D> void axis(const GridSample& g, int d, const T* grid, int n, Axis<T>& a) {
  switch (g.padding) {
    case GridSample::Zeros: return axis<T, M, D, GridSample::Zeros>(g, d, grid, n, a);
    case GridSample::Border: return axis<T, M, D, GridSample::Border>(g, d, grid, n, a);
    default: return axis<T, M, D, GridSample::Reflection>(g, d, grid, n, a);
  }
}

// Pixels along one dimension: 1, 2 or 4.
constexpr int width_of(GridSample::Mode m) { return m == GridSample::Nearest ? 1 : m == GridSample::Linear ? 2 : 4; }
template <GridSample::Mode M, int D>
inline constexpr int kTaps = D == 2 ? width_of(M) * width_of(M) : width_of(M) * width_of(M) * width_of(M);

template <class T, GridSample::Mode M, int D>
void axes(const GridSample& g, int64_t image, int64_t first, int n, Axis<T>* a) {
  const T* grid = static_cast<const T*>(g.grid) + (image * g.points + first) * D;
  for (int d = 0; d < D; ++d) axis<T, M, D>(g, d, grid, n, a[d]);
}

// Of the first n places; up to a whole vector more have no pixels.
template <class T, GridSample::Mode M, int D> void taps_of(const GridSample& g, const Axis<T>* a, int n, Taps<T>& t) {
  constexpr int W = width_of(M);
  int32_t row = int32_t(g.size[0]), slice = int32_t(g.size[0] * g.size[1]);
  for (int k = 0; k < kTaps<M, D>; ++k) {
    int kx = k % W, ky = k / W % W, kz = D == 3 ? k / (W * W) : 0;
    const int32_t *x = a[0].at[kx], *y = a[1].at[ky], *z = a[D - 1].at[kz];
    const T *wx = a[0].weight[kx], *wy = a[1].weight[ky], *wz = a[D - 1].weight[kz];
    for (int i = 0; i < n; ++i) {
      int32_t inside = D == 3 ? x[i] | y[i] | z[i] : x[i] | y[i];
      int32_t at = D == 3 ? (z[i] * slice + y[i] * row) + x[i] : y[i] * row + x[i];
      t.at[k][i] = inside < 0 ? -1 : at;
      t.weight[k][i] = D == 3 ? wx[i] * wy[i] * wz[i] : wx[i] * wy[i];
    }
    for (int i = n; i % kVec<T> != 0; ++i) t.at[k][i] = -1, t.weight[k][i] = 0;
  }
}

// 0 where there is no pixel.
SF_INLINE vf gathered(const float* x, const int32_t* at) {
#if defined(__AVX512F__)
  __m512i i = _mm512_loadu_si512(at);
  __mmask16 inside = _mm512_cmpge_epi32_mask(i, _mm512_setzero_si512());
  return (vf_raw)_mm512_mask_i32gather_ps(_mm512_setzero_ps(), inside, i, x, 4);
#elif defined(__AVX2__)
  __m256i i = _mm256_loadu_si256((const __m256i*)at);
  __m256 inside = _mm256_castsi256_ps(_mm256_cmpgt_epi32(i, _mm256_set1_epi32(-1)));
  return (vf_raw)_mm256_mask_i32gather_ps(_mm256_setzero_ps(), x, i, inside, 4);
#else
  vf v;
  for (int k = 0; k < kLanes; ++k) v.v[k] = at[k] < 0 ? 0 : x[at[k]];
  return v;
#endif
}
SF_INLINE double gathered(const double* x, const int32_t* at) { return *at < 0 ? 0 : x[*at]; }

#if defined(__AVX512F__)
// The first and the second of 16 pairs.
SF_INLINE void apart(__m512 low, __m512 high, __m512& one, __m512& two) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0),
                odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  one = _mm512_permutex2var_ps(low, even, high);
  two = _mm512_permutex2var_ps(low, odd, high);
}
// Of pairs side by side; those past the last one are zero.
SF_INLINE void load_pairs(const float* pairs, int count, __m512& one, __m512& two) {
  const uint32_t there = count >= 16 ? ~0u : (1u << 2 * count) - 1;
  apart(_mm512_maskz_loadu_ps(__mmask16(there), pairs), _mm512_maskz_loadu_ps(__mmask16(there >> 16), pairs + 16), one,
        two);
}
// Pixels `at` and those after them.
SF_INLINE void neighbours(const float* x, __m512i at, __m512& one, __m512& two) {
  apart(_mm512_castsi512_ps(_mm512_i32gather_epi64(_mm512_castsi512_si256(at), x, 4)),
        _mm512_castsi512_ps(_mm512_i32gather_epi64(_mm512_extracti64x4_epi64(at, 1), x, 4)), one, two);
}

// Two taps along one dimension, of 16 places.
struct TwoTaps {
  vf weight[2];
  __m512i at;          // the first pixel, which may be -1
  __mmask16 there[2];  // which of both lie in the picture
  template <GridSample::Padding P> SF_INLINE static TwoTaps of(const GridSample& g, int d, vf number) {
    vf slope, c = Scale<float>(g, d).place<P, true>(number, slope);
    const vf first = floor(c), t = c - first;
    const __m512i at = _mm512_cvttps_epi32((__m512)first.v), last = _mm512_set1_epi32(int(g.size[d]) - 1);
    auto inside = [&](__m512i i) __attribute__((always_inline)) { return _mm512_cmple_epu32_mask(i, last); };
    return {{vf(1.f) - t, t}, at, {inside(at), inside(_mm512_add_epi32(at, _mm512_set1_epi32(1)))}};
  }
};

// Bilinear, of pictures at least two pixels wide with few channels: without tables of taps, which would be most of the
// work, and plane after plane, one of which a cache holds. The same sums as by_pairs.
constexpr int64_t kFewChannels = 8, kManyPlaces = 1 << 15;
template <GridSample::Padding P> void bilinear(const GridSample& g, int64_t image, int64_t first, int64_t n) {
  const __m512i one = _mm512_set1_epi32(1), width = _mm512_set1_epi32(int(g.size[0]));
  const int64_t pixels = g.size[0] * g.size[1];
  for (int64_t c = 0; c < g.channels; ++c) {
    const float* plane = static_cast<const float*>(g.input) + (image * g.channels + c) * pixels;
    float* out = static_cast<float*>(g.out) + (image * g.channels + c) * g.points + first;
    const float* grid = static_cast<const float*>(g.grid) + (image * g.points + first) * 2;
    for (int64_t i = 0; i < n; i += 16) {
      const int count = n - i < 16 ? int(n - i) : 16;
      __m512 across, down;
      load_pairs(grid + 2 * i, count, across, down);
      const TwoTaps x = TwoTaps::of<P>(g, 0, (vf_raw)across), y = TwoTaps::of<P>(g, 1, (vf_raw)down);
      // A tap outside is left out of the pair that begins before it, or at the one after it.
      __m512i from = _mm512_maskz_add_epi32(x.there[1], x.at, one);
      from = _mm512_mask_sub_epi32(from, x.there[0], x.at, one);
      from = _mm512_mask_mov_epi32(from, x.there[0] & x.there[1], x.at);
      vf s(0.f);
#pragma GCC unroll 2
      for (int k = 0; k < 2; ++k) {
        const __m512i row = k ? _mm512_add_epi32(y.at, one) : y.at;
        __m512 left, right;
        neighbours(plane, _mm512_add_epi32(from, _mm512_maskz_mullo_epi32(y.there[k], row, width)), left, right);
        const __mmask16 l = x.there[0] & y.there[k], r = x.there[1] & y.there[k];
        s = fma(x.weight[0] * y.weight[k], vf((vf_raw)_mm512_maskz_mov_ps(l, _mm512_mask_blend_ps(r, right, left))), s);
        s = fma(x.weight[1] * y.weight[k], vf((vf_raw)_mm512_maskz_mov_ps(r, _mm512_mask_blend_ps(l, left, right))), s);
      }
      store_n(out + i, s, count);
    }
  }
}
inline bool by_bilinear(const GridSample& g) {
  if (g.channels_last || g.size[0] < 2 || g.channels > kFewChannels) return false;
  // As many blocks as threads at least; each_block's grain.
  const int64_t each = g.n * g.points / num_threads() / 16 * 16 + 16, places = each < kManyPlaces ? each : kManyPlaces,
                blocks = (g.points + places - 1) / places, work = places * (g.channels + 8);
  parallel_for(g.n * blocks, (1 << 15) / work + 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b % blocks * places, left = g.points - first, n = left < places ? left : places;
      switch (g.padding) {
        case GridSample::Zeros: bilinear<GridSample::Zeros>(g, b / blocks, first, n); break;
        case GridSample::Border: bilinear<GridSample::Border>(g, b / blocks, first, n); break;
        default: bilinear<GridSample::Reflection>(g, b / blocks, first, n);
      }
    }
  });
  return true;
}

// As by_planes, of pictures at least two pixels wide: two taps of a row that are neighbours come as one number of 64
// bits. A tap outside is left out of the pair that begins before it, or at the one after it. False, with nothing done,
// where taps are no neighbours: padding put them elsewhere.
template <int K> bool by_pairs(const GridSample& g, int64_t image, int64_t first, int n, const Taps<float>& t) {
  constexpr int kPairs = K / 2;
  alignas(64) int32_t at[kPairs][kBlock];
  __mmask16 left[kPairs][kBlock / 16], right[kPairs][kBlock / 16];  // which taps there are
  for (int k = 0; k < kPairs; ++k)
    for (int i = 0; i < n; i += 16) {
      const __m512i a = _mm512_load_si512(t.at[2 * k] + i), b = _mm512_load_si512(t.at[2 * k + 1] + i);
      const __mmask16 l = _mm512_cmpge_epi32_mask(a, _mm512_setzero_si512()),
                      r = _mm512_cmpge_epi32_mask(b, _mm512_setzero_si512());
      __m512i from = _mm512_maskz_mov_epi32(r, b);
      from = _mm512_mask_sub_epi32(from, l, a, _mm512_set1_epi32(1));
      if (_mm512_mask_cmpneq_epi32_mask(l & r, b, _mm512_add_epi32(a, _mm512_set1_epi32(1)))) return false;
      _mm512_store_si512(at[k] + i, _mm512_mask_mov_epi32(from, l & r, a));
      left[k][i / 16] = l, right[k][i / 16] = r;
    }
  int64_t pixels = g.size[0] * g.size[1] * g.size[2];
  for (int64_t c = 0; c < g.channels; ++c) {
    const float* x = static_cast<const float*>(g.input) + (image * g.channels + c) * pixels;
    float* y = static_cast<float*>(g.out) + (image * g.channels + c) * g.points + first;
    for (int i = 0; i < n; i += 16) {
      vf s(0.f);
#pragma GCC unroll 8
      for (int k = 0; k < kPairs; ++k) {
        __m512 one, two;
        neighbours(x, _mm512_load_si512(at[k] + i), one, two);
        const __mmask16 l = left[k][i / 16], r = right[k][i / 16];
        s = fma(load(t.weight[2 * k] + i), vf((vf_raw)_mm512_maskz_mov_ps(l, _mm512_mask_blend_ps(r, two, one))), s);
        s = fma(load(t.weight[2 * k + 1] + i), vf((vf_raw)_mm512_maskz_mov_ps(r, _mm512_mask_blend_ps(l, one, two))),
                s);
      }
      store_n(y + i, s, n - i < 16 ? n - i : 16);
    }
  }
  return true;
}
#elif defined(__AVX2__)
// Where all of 8 places' taps lie in the picture, two of a row that are neighbours come as one number of 64 bits: half
// the loads of gathers, which these processors split into one for each tap.
struct Neighbours {
  bool all[kBlock / 8];  // of the 8 places from 8 i on

  template <int K> Neighbours(int n, const Taps<float>& t, std::integral_constant<int, K>) {
    for (int i = 0; i < n; i += 8) {
      __m256i wrong = _mm256_setzero_si256();  // negative where a tap is outside, or no neighbour
      for (int k = 0; k < K; k += 2) {
        const __m256i one = _mm256_load_si256(reinterpret_cast<const __m256i*>(t.at[k] + i)),
                      two = _mm256_load_si256(reinterpret_cast<const __m256i*>(t.at[k + 1] + i));
        const __m256i next = _mm256_add_epi32(one, _mm256_set1_epi32(1));
        wrong = _mm256_or_si256(wrong, _mm256_or_si256(one, _mm256_cmpgt_epi32(next, two)));
        wrong = _mm256_or_si256(wrong, _mm256_cmpgt_epi32(two, next));
      }
      all[i / 8] = _mm256_movemask_ps(_mm256_castsi256_ps(wrong)) == 0;
    }
  }
};

// one and two: the pixels at[0 .. 8) and those after them.
SF_INLINE void pairs(const float* x, const int32_t* at, vf& one, vf& two) {
  auto of = [&](int i) __attribute__((always_inline)) {
    const __m128 low = _mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(x + at[i])));
    return _mm_loadh_pi(low, reinterpret_cast<const __m64*>(x + at[i + 1]));
  };
  const __m256 a = _mm256_insertf128_ps(_mm256_castps128_ps256(of(0)), of(4), 1),
               b = _mm256_insertf128_ps(_mm256_castps128_ps256(of(2)), of(6), 1);
  one = (vf_raw)_mm256_shuffle_ps(a, b, 0x88);
  two = (vf_raw)_mm256_shuffle_ps(a, b, 0xdd);
}

template <int K> void by_pairs(const GridSample& g, int64_t image, int64_t first, int n, const Taps<float>& t) {
  const Neighbours neighbours(n, t, std::integral_constant<int, K>());
  const int64_t pixels = g.size[0] * g.size[1] * g.size[2];
  for (int64_t c = 0; c < g.channels; ++c) {
    const float* x = static_cast<const float*>(g.input) + (image * g.channels + c) * pixels;
    float* y = static_cast<float*>(g.out) + (image * g.channels + c) * g.points + first;
    for (int i = 0; i < n; i += 8) {
      vf s(0.f);
      if (neighbours.all[i / 8]) {
#pragma GCC unroll 8
        for (int k = 0; k < K; k += 2) {
          vf one, two;
          pairs(x, t.at[k] + i, one, two);
          s = fma(load(t.weight[k + 1] + i), two, fma(load(t.weight[k] + i), one, s));
        }
      } else {
#pragma GCC unroll 16
        for (int k = 0; k < K; ++k) s = fma(load(t.weight[k] + i), gathered(x, t.at[k] + i), s);
      }
      store_n(y + i, s, n - i < 8 ? n - i : 8);
    }
  }
}
#endif

template <class T, int K> void by_planes(const GridSample& g, int64_t image, int64_t first, int n, const Taps<T>& t) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float> && K > 1)
    if (g.size[0] > 1 && by_pairs<K>(g, image, first, n, t)) return;
#elif defined(__AVX2__)
  if constexpr (std::is_same_v<T, float> && K > 1) return by_pairs<K>(g, image, first, n, t);
#endif
  int64_t pixels = g.size[0] * g.size[1] * g.size[2];
  for (int64_t c = 0; c < g.channels; ++c) {
    const T* x = static_cast<const T*>(g.input) + (image * g.channels + c) * pixels;
    T* y = static_cast<T*>(g.out) + (image * g.channels + c) * g.points + first;
    for (int i = 0; i < n; i += kVec<T>) {
      Vec<T> s = gathered(x, t.at[0] + i);
      if constexpr (K > 1) s *= load(t.weight[0] + i);
#pragma GCC unroll 16
      for (int k = 1; k < K; ++k) s = fma(load(t.weight[k] + i), gathered(x, t.at[k] + i), s);
      store_n(y + i, s, n - i < kVec<T> ? n - i : kVec<T>);
    }
  }
}

template <class T, int K> void by_pixels(const GridSample& g, int64_t image, int64_t first, int n, const Taps<T>& t) {
  int64_t pixels = g.size[0] * g.size[1] * g.size[2], channels = g.channels;
  const T* x = static_cast<const T*>(g.input) + image * pixels * channels;
  T* y = static_cast<T*>(g.out) + (image * g.points + first) * channels;
  for (int i = 0; i < n; ++i, y += channels) {
    const T* from[K];
    T weight[K];
    int inside = 0;
    for (int k = 0; k < K; ++k)
      if (t.at[k][i] >= 0) from[inside] = x + t.at[k][i] * channels, weight[inside++] = t.weight[k][i];
    for (int64_t c = 0; c < channels; c += kVec<T>) {
      int lanes = int(channels - c < kVec<T> ? channels - c : kVec<T>);
      Vec<T> s(Acc<T>(0));
      for (int k = 0; k < inside; ++k) s = fma(Vec<T>(Acc<T>(weight[k])), load_n(from[k] + c, lanes), s);
      store_n(y + c, s, lanes);
    }
  }
}

// f(image, first place, how many) for blocks of places, on all threads.
template <class F> SF_INLINE void each_block(const GridSample& g, const F& f) {
  int64_t blocks = (g.points + kBlock - 1) / kBlock, work = kBlock * (g.channels + 8);
  parallel_for(
      g.n * blocks, (1 << 15) / work + 1, [&](int64_t begin, int64_t end) __attribute__((always_inline)) {
        for (int64_t b = begin; b < end; ++b) {
          int64_t first = b % blocks * kBlock, left = g.points - first;
          f(b / blocks, first, int(left < kBlock ? left : kBlock));
        }
      });
}

template <class T, GridSample::Mode M, int D> void forward(const GridSample& g) {
  constexpr int K = kTaps<M, D>;
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float> && M == GridSample::Linear && D == 2)
    if (by_bilinear(g)) return;
#endif
  each_block(
      g, [&](int64_t image, int64_t first, int n) __attribute__((always_inline)) {
        Axis<T> a[D];
        Taps<T> t;
        axes<T, M, D>(g, image, first, n, a);
        taps_of<T, M, D>(g, a, n, t);
        if (g.channels_last) by_pixels<T, K>(g, image, first, n, t);
        else by_planes<T, K>(g, image, first, n, t);
      });
}

// Each plane of dx by one thread, in the order of the grid: sums do not depend on the number of threads.
template <class T, GridSample::Mode M, int D> void input_gradient(const GridSampleBackward& b) {
  constexpr int K = kTaps<M, D>;
  const GridSample& g = b.call;
  int64_t pixels = g.size[0] * g.size[1] * g.size[2];
  parallel_for(g.n * g.channels, (1 << 13) / g.points + 1, [&](int64_t begin, int64_t end) {
    Axis<T> a[D];
    Taps<T> t;
    for (int64_t plane = begin; plane < end;) {
      int64_t image = plane / g.channels, stop = (image + 1) * g.channels;
      if (stop > end) stop = end;
      for (int64_t first = 0; first < g.points; first += kBlock) {
        int n = int(g.points - first < kBlock ? g.points - first : kBlock);
        axes<T, M, D>(g, image, first, n, a);
        taps_of<T, M, D>(g, a, n, t);
        for (int64_t p = plane; p < stop; ++p) {
          T* dx = static_cast<T*>(b.dx) + p * pixels;
          const T* dy = static_cast<const T*>(b.dy) + p * g.points + first;
          for (int i = 0; i < n; ++i)
#pragma GCC unroll 16
            for (int k = 0; k < K; ++k)
              if (t.at[k][i] >= 0) dx[t.at[k][i]] += t.weight[k][i] * dy[i];
        }
      }
      plane = stop;
    }
  });
}

// First what each tap's pixels give over all channels, then how its weight changes with the place.
template <class T, GridSample::Mode M, int D> void grid_gradient(const GridSampleBackward& b) {
  constexpr int K = kTaps<M, D>, W = width_of(M);
  const GridSample& g = b.call;
  int64_t pixels = g.size[0] * g.size[1] * g.size[2];
  each_block(
      g, [&](int64_t image, int64_t first, int n) __attribute__((always_inline)) {
        Axis<T> a[D];
        Taps<T> t, sums;
        axes<T, M, D>(g, image, first, n, a);
        taps_of<T, M, D>(g, a, n, t);
        __builtin_memset(sums.weight, 0, sizeof sums.weight);
        for (int64_t c = 0; c < g.channels; ++c) {
          const T* x = static_cast<const T*>(g.input) + (image * g.channels + c) * pixels;
          const T* dy = static_cast<const T*>(b.dy) + (image * g.channels + c) * g.points + first;
          for (int i = 0; i < n; i += kVec<T>) {
            Vec<T> d = load_n(dy + i, n - i < kVec<T> ? n - i : kVec<T>);
#pragma GCC unroll 16
            for (int k = 0; k < K; ++k) {
              T* sum = sums.weight[k] + i;
              store(sum, fma(d, gathered(x, t.at[k] + i), load(sum)));
            }
          }
        }
        T* dgrid = static_cast<T*>(b.dgrid) + (image * g.points + first) * D;
        for (int d = 0; d < D; ++d)
          for (int i = 0; i < n; ++i) {
            T total = 0;
            for (int k = 0; k < K; ++k) {
              int at[3] = {k % W, k / W % W, D == 3 ? k / (W * W) : 0};
              T w = sums.weight[k][i];
              for (int e = 0; e < D; ++e) w *= e == d ? a[e].slope[at[e]][i] : a[e].weight[at[e]][i];
              total += w;
            }
            dgrid[i * D + d] = total;
          }
      });
}

// f(T{}, mode, dimensions as constants)
template <class F> SF_INLINE void visit(const GridSample& g, const F& f) {
  auto by_mode = [&](auto t) __attribute__((always_inline)) {
    using T = decltype(t);
    bool flat = g.dims == 2;
    if (g.mode == GridSample::Cubic) f.template operator()<T, GridSample::Cubic, 2>();
    else if (g.mode == GridSample::Nearest)
      flat ? f.template operator()<T, GridSample::Nearest, 2>() : f.template operator()<T, GridSample::Nearest, 3>();
    else flat ? f.template operator()<T, GridSample::Linear, 2>() : f.template operator()<T, GridSample::Linear, 3>();
  };
  if (g.dtype == kFloat64) by_mode(double());
  else by_mode(float());
}

void grid_sample(const GridSample& g) {
  visit(
      g, [&]<class T, GridSample::Mode M, int D>() __attribute__((always_inline)) { forward<T, M, D>(g); });
}
void grid_sample_backward(const GridSampleBackward& b) {
  visit(
      b.call, [&]<class T, GridSample::Mode M, int D>() __attribute__((always_inline)) {
        if (b.dx) input_gradient<T, M, D>(b);
        if (b.dgrid) grid_gradient<T, M, D>(b);
      });
}

SF_KERNEL(grid_sample_kernel, DeviceType::CPU, "native", SF_ISA_PRIORITY, grid_sample, nullptr)
SF_KERNEL(grid_sample_backward_kernel, DeviceType::CPU, "native", SF_ISA_PRIORITY, grid_sample_backward, nullptr)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
