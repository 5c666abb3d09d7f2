// What forward and backward share about one call: sizes, strides, blocks of queries and masks.
// Included only by attention*.cpu.cpp and attention*.amx.cpp; everything lives in namespace sf::SF_ISA and inlines.
//
// The queries of the G = Hq / Hkv heads that share a key head are one list of G * Lq rows, cut into blocks.
// So a decoding step with one query per head still fills the lanes, and keys are read once for all of them.
#pragma once
#include "scaffolding/ops/attention/attention_tile.h"
#include "scaffolding/ops/attention/kernel.h"

namespace sf {
namespace SF_ISA {

// A [B, H, L, C] tensor with unit stride in its last dimension.
template <class T> struct Heads {
  T* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;
  Heads() = default;
  SF_INLINE explicit Heads(const TensorView& t) {
    if (t.defined()) data = t.as<T>(), batch = t.strides[0], head = t.strides[1], row = t.strides[2];
  }
  SF_INLINE T* at(int64_t b, int64_t h, int64_t l) const { return data + b * batch + h * head + l * row; }
};

struct Problem {
  int64_t B, Hq, Hkv, G, Lq, Lk, D, Dv;
  bool causal;
  bool negate;   // scale < 0: queries are packed negated, so that a larger product is always a larger score
  float factor;  // |scale| * log2(e): scores are in powers of two from the product on
  const TensorView* mask;
  int64_t mask_strides[4];

  template <class Args>
  SF_INLINE explicit Problem(const Args& a)
      : B(a.q.sizes[0]),
        Hq(a.q.sizes[1]),
        Hkv(a.k.sizes[1]),
        G(Hkv ? Hq / Hkv : 0),
        Lq(a.q.sizes[2]),
        Lk(a.k.sizes[2]),
        D(a.q.sizes[3]),
        Dv(a.v.sizes[3]),
        causal(a.is_causal),
        negate(a.scale < 0),
        factor(float((a.scale < 0 ? -a.scale : a.scale) * 1.4426950408889634)),
        mask(a.mask.defined() ? &a.mask : nullptr) {
    for (int d = 0; d < 4; ++d) {
      int from = mask ? d - 4 + mask->ndim : -1;
      mask_strides[d] = from < 0 || mask->sizes[from] == 1 ? 0 : mask->strides[from];
    }
  }
  SF_INLINE int64_t rows() const { return G * Lq; }
  SF_INLINE int64_t blocks(int64_t queries = kQueries) const { return (rows() + queries - 1) / queries; }
};

// Where the N rows of a block are. Lanes past `count` repeat the last row's position; their results are dropped.
template <int N> struct QueryBlockOf {
  int count = 0;
  int64_t b = 0, first = 0, first_head = 0;  // first: row number within the group of heads
  int32_t lowest = 0, highest = 0;           // positions, for causal
  bool one_mask_row = false;                 // every lane reads the same mask row
  alignas(64) int32_t position[N];           // query index i of each lane
  int64_t mask_offset[N];

  SF_INLINE void locate(const Problem& p, int64_t batch, int64_t kv_head, int64_t block) {
    b = batch, first = block * N, first_head = kv_head * p.G;
    count = int(smaller(N, p.rows() - first));
    one_mask_row = true;
    lowest = INT32_MAX, highest = -1;
    for (int r = 0; r < N; ++r) {
      int64_t i = query(p, r);
      position[r] = int32_t(i);
      lowest = i < lowest ? int32_t(i) : lowest;
      highest = i > highest ? int32_t(i) : highest;
      mask_offset[r] = b * p.mask_strides[0] + head(p, r) * p.mask_strides[1] + i * p.mask_strides[2];
      one_mask_row &= mask_offset[r] == mask_offset[0];
    }
  }
  SF_INLINE int64_t row(int r) const { return first + (r < count ? r : count - 1); }
  SF_INLINE int64_t head(const Problem& p, int r) const { return first_head + row(r) / p.Lq; }
  SF_INLINE int64_t query(const Problem& p, int r) const { return row(r) % p.Lq; }
  template <class T> SF_INLINE void pointers(const Problem& p, const Heads<T>& t, T** out) const {
    for (int r = 0; r < N; ++r) out[r] = t.at(b, head(p, r), query(p, r));
  }
  // Keys that some row of the block may see.
  SF_INLINE int64_t key_end(const Problem& p) const { return p.causal ? smaller(p.Lk, int64_t(highest) + 1) : p.Lk; }
  SF_INLINE bool needs_mask(const Problem& p, int64_t k0, int64_t kn) const {
    return p.mask || (p.causal && k0 + kn - 1 > lowest);
  }
};
using QueryBlock = QueryBlockOf<kQueries>;

// Additive mask values in powers of two. -inf stays -inf; finite values stay finite, so that a row filled with
// float32's lowest number (a common way to write "masked") keeps its uniform weights.
SF_INLINE vf in_powers_of_two(vf x) {
  vf scaled = x * vf(kLog2e);
  return select(x == vf(kNegativeInfinity), x, max(vf(kLowest), scaled));
}
template <class T> SF_INLINE float mask_value(T x) {
  return to_float(x) == kNegativeInfinity ? kNegativeInfinity
         : to_float(x) * kLog2e < kLowest ? kLowest
                                          : to_float(x) * kLog2e;
}
SF_INLINE float mask_value(bool x) { return x ? 0.0f : kNegativeInfinity; }

// kLanes mask values of one row, from element j on, of which the first n exist.
template <class T> SF_INLINE vf mask_values(const T* row, int64_t stride, int n) {
  if (stride == 1 && n == kLanes) return in_powers_of_two(load(row));
  alignas(64) float t[kLanes];
  for (int i = 0; i < kLanes; ++i) t[i] = i < n ? mask_value(row[i * stride]) : 0.0f;
  return load(t);
}
SF_INLINE vf mask_values(const bool* row, int64_t stride, int n) {
  alignas(64) float t[kLanes];
  for (int i = 0; i < kLanes; ++i) t[i] = i < n && !row[i * stride] ? kNegativeInfinity : 0.0f;
  return load(t);
}

// s[kn][N] = s * factor + mask, in powers of two, -inf where a query may not see the key.
// Called only for tiles that a mask touches; the others leave the factor to the exponential's multiply-add.
template <class T, int N>
static void add_mask(float* s, const Problem& p, const QueryBlockOf<N>& block, int64_t k0, int64_t kn) {
  const T* base = p.mask->as<T>();
  int64_t step = p.mask_strides[3];
  if (block.one_mask_row) {  // a key padding mask: one value for the whole row of S^T
    const T* row = base + block.mask_offset[0] + k0 * step;
    for (int64_t k = 0; k < kn; ++k) {
      vf m(mask_value(row[k * step]));
      for (int j = 0; j < N; j += kLanes) {
        float* x = s + k * N + j;
        store(x, load(x) + m);
      }
    }
    return;
  }
  for (int g = 0; g < N; g += kLanes) {
    for (int64_t k = 0; k < kn; k += kLanes) {
      int n = int(smaller(kLanes, kn - k));
      vf_raw r[kLanes];
      for (int i = 0; i < kLanes; ++i) r[i] = mask_values(base + block.mask_offset[g + i] + (k0 + k) * step, step, n).v;
      transpose(r);
      for (int i = 0; i < n; ++i) {
        float* x = s + (k + i) * N + g;
        store(x, load(x) + vf(r[i]));
      }
    }
  }
}

template <int N>
static void apply_mask(float* s, const Problem& p, const QueryBlockOf<N>& block, int64_t k0, int64_t kn) {
  for (int64_t i = 0; i < kn * N; i += kLanes) store(s + i, load(s + i) * vf(p.factor));
  if (p.mask) switch (p.mask->dtype) {
      case kBool: add_mask<bool>(s, p, block, k0, kn); break;
      case kFloat32: add_mask<float>(s, p, block, k0, kn); break;
      case kFloat16: add_mask<Half>(s, p, block, k0, kn); break;
      default: add_mask<BFloat16>(s, p, block, k0, kn); break;
    }
  if (!p.causal || k0 + kn - 1 <= block.lowest) return;
  for (int j = 0; j < N; j += kLanes) {
    vi_raw position;
    std::memcpy(&position, block.position + j, sizeof position);
    for (int64_t k = k0 > block.lowest ? 0 : block.lowest + 1 - k0; k < kn; ++k) {
      float* x = s + k * N + j;
      store(x, select(vm{vi_raw(position >= int32_t(k0 + k))}, load(x), vf(kNegativeInfinity)));
    }
  }
}

// x[length][N] * factor[N] into `count` rows of `length`, less those that are null.
template <int N, class T>
SF_INLINE void write_turned(T* const* rows, int count, const float* x, int64_t length, const float* factor) {
  for (int g = 0; g < count; g += kLanes)
    for (int64_t d = 0; d < length; d += kLanes) {
      vf_raw r[kLanes];
      for (int i = 0; i < kLanes; ++i) r[i] = (load(x + (d + i) * N + g) * load(factor + g)).v;
      transpose(r);
      int n = int(smaller(kLanes, length - d));
      for (int i = 0; i < kLanes && g + i < count; ++i)
        if (rows[g + i]) store_n(rows[g + i] + d, r[i], n);
    }
}
// log(sum of 2^(score - maximum)) of a row whose maximum is in powers of two.
SF_INLINE float log_sum(float maximum, float sum) {
  return sum == 0.0f ? 0.0f : maximum == kLowest ? kLowest : (maximum + __builtin_log2f(sum)) * kLn2;
}

// Dtypes and strides the native kernels take; the op has checked the shapes.
SF_INLINE bool rows_are_dense(const TensorView& t) { return !t.defined() || t.sizes[3] <= 1 || t.strides[3] == 1; }
template <class Args> SF_INLINE bool supports_inputs(const Args& a) {
  bool dtypes = (a.q.dtype == kFloat32 || is_reduced(a.q.dtype)) && a.k.dtype == a.q.dtype && a.v.dtype == a.q.dtype;
  bool mask_dtype = a.mask.dtype == kBool || a.mask.dtype == kFloat32 || is_reduced(a.mask.dtype);
  bool mask = !a.mask.defined() || (a.mask.ndim <= 4 && mask_dtype);
  return dtypes && mask && rows_are_dense(a.q) && rows_are_dense(a.k) && rows_are_dense(a.v);
}

}  // namespace SF_ISA
}  // namespace sf
