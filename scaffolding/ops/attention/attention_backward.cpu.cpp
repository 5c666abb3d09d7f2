// Backward attention on CPU: P is recomputed from lse, so nothing of size Lq * Lk is ever kept (Dao et al. 2022,
// section 3).
//
//   P = exp(score - lse)   dP = dy v^T   dS = P * (dP - delta), delta[i] = sum_d dy[i, d] y[i, d]
//   dv = P^T dy            dk = scale dS^T q            dq = scale dS k            dmask = dS
//
// A task is one (batch, key head), or every n-th key tile of one when there are fewer heads than threads. It packs its
// keys and values once and keeps float32 sums of dk and dv for them (L3 at worst; read and written once per group of
// queries). The loop is: for each group of up to kGroup query blocks, for each key tile,
//   per block   S^T = K Q^T -> P^T, dP^T = V dY^T -> dS^T, dQ^T += K^T dS^T     queries along the lanes, as in forward
//   per group   dV += P^T dY, dK += dS^T Q                                      head dimension along the lanes
// P^T and dS^T[kKeys][kGroup * kQueries] stay in L2. Five products per score, all on the micro-kernel of forward.
//
// Share of the FMA peak measured beside it (10 B H Lq Lk D FLOP; Zen 5, one thread, heads interleaved in memory):
//                       float32 avx512   bfloat16 avx512bf16   float32 avx2
//   h8  n4096 d40             82 %               82 %               88 %
//   h8  n4096 d64             90 %               90 %               92 %
//   h10 n1024 d64             86 %               88 %               89 %
// d40 pays for dK and dV, whose 40 columns fill three vectors of 16 lanes only to five sixths.
#include "scaffolding/ops/attention/attention_backward.h"
#include "scaffolding/backend/cpu/bf16_dot.h"
#include "scaffolding/core/parallel_guided.h"

namespace sf {
namespace SF_ISA {
namespace {

constexpr int64_t kKeys = 128;                 // keys per tile; 64 is 2 % slower at d64
constexpr int kGroup = 2;                      // query blocks per group: dK and dV are summed over 96 queries at a time
constexpr int64_t kWidth = kGroup * kQueries;  // queries in a group

// A row of P^T or dS^T as the left operand of a product that sums over queries.
template <class U> struct Weights { using type = float; };
template <> struct Weights<Pair> { using type = BFloat16; };

template <class U> struct BackwardBlock : QueryBlock, RowStatistics<kQueries> {
  U* qt;       // [packed(D)][kQueries]
  U* dyt;      // [packed(Dv)][kQueries]
  float* dqt;  // [round_up(D, kLanes)][kQueries]
};

// Sizes, in units of 4 bytes, of the packed pieces.
template <class U> struct Layout {
  int64_t keys, key_units;
  // one tile of K as rows, K summed over keys (shared with rows for floats), V as rows
  int64_t k_rows, k_depth, v_rows;
  int64_t dk, dv;  // sums of one tile
  int64_t width_d, width_dv;
  int64_t qt, dyt, dqt, q_depth, dy_depth;
  SF_INLINE explicit Layout(const Problem& p) {
    keys = smaller(kKeys, round_up(p.Lk, kRows));
    width_d = round_up(p.D, kLanes), width_dv = round_up(p.Dv, kLanes);
    k_rows = keys * packed<U>(p.D), v_rows = keys * packed<U>(p.Dv);
    k_depth = kPerUnit<U> == 1 ? 0 : units<U>(keys) * width_d;
    dk = keys * width_d, dv = keys * width_dv;
    qt = packed<U>(p.D) * kQueries, dyt = packed<U>(p.Dv) * kQueries, dqt = width_d * kQueries;
    q_depth = units<U>(kWidth) * width_d, dy_depth = units<U>(kWidth) * width_dv;
  }
  SF_INLINE int64_t tile() const { return k_rows + k_depth + v_rows + dk + dv; }
  SF_INLINE int64_t group() const { return kGroup * (qt + dyt + dqt) + q_depth + dy_depth; }
};

// One key tile of a task: packed operands and sums.
template <class U> struct KeyTile {
  int64_t first, count;
  U *k, *k_depth, *v;
  float *dk, *dv;
  SF_INLINE KeyTile(const Layout<U>& l, float* base, int64_t nth, int64_t k0, int64_t n) : first(k0), count(n) {
    base += nth * l.tile();
    k = reinterpret_cast<U*>(base);
    k_depth = l.k_depth ? k + l.k_rows : k;
    v = k + l.k_rows + l.k_depth;
    dk = base + l.k_rows + l.k_depth + l.v_rows;
    dv = dk + l.dk;
  }
};

// The score tile of one block and what becomes of it.
template <class U> struct Buffers {
  using W = typename Weights<U>::type;
  float* s;        // [kKeys][kQueries]: score, then P, of one block
  W* p;            // [kKeys][kWidth] of the group
  W* ds;           // [kKeys][kWidth]
  Pair* ds_depth;  // [kKeys / 2][kQueries], pairs only: dS of one block as the operand of a sum over keys
  SF_INLINE static int64_t bytes() {
    return kKeys * kQueries * 4 + 2 * kKeys * kWidth * int64_t(sizeof(W)) + kKeys * kQueries * 2;
  }
  SF_INLINE explicit Buffers(float* base) {
    s = base;
    p = reinterpret_cast<W*>(s + kKeys * kQueries);
    ds = p + kKeys * kWidth;
    ds_depth = reinterpret_cast<Pair*>(ds + kKeys * kWidth);
  }
};

template <int NV> SF_INLINE void clear(vf (&c)[kRows][NV]) {
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) c[i][j] = vf(0.0f);
}

// P^T and dS^T of one block and tile into column `column` of the group's buffers; dQ^T.
template <class U, int NV>
void differentiate(const Problem& p, const BackwardBlock<U>& block, const KeyTile<U>& tile, const Buffers<U>& buf,
                   int64_t column, bool want_ds, bool want_dq, bool keep_ds) {
  constexpr int kDegree = kExpDegree<U>;
  float* s = buf.s;
  int64_t rounded = round_up(tile.count, kRows);
  for (int64_t i0 = 0; i0 < rounded; i0 += kRows) {
    vf c[kRows][NV];
    clear(c);
    tile_product<false>(c, tile.k + i0 * packed<U>(p.D), packed<U>(p.D), block.qt, kQueries, units<U>(p.D));
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) store(s + (i0 + i) * kQueries + j * kLanes, c[i][j]);
  }
  vf factor(p.factor);
  if (block.needs_mask(p, tile.first, tile.count)) {
    apply_mask(s, p, block, tile.first, tile.count);
    factor = vf(1.0f);
  }
  for (int64_t k = 0; k < rounded; ++k)
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) {
      float* x = s + k * kQueries + j * kLanes;
      // Rows past the last key have score 0, which is not "no weight".
      vf e =
          k < tile.count ? exp2_at_most<kDegree>(fma(load(x), factor, load(block.minus_lse + j * kLanes))) : vf(0.0f);
      store(x, e);
      store(buf.p + k * kWidth + column + j * kLanes, e);
    }
  if (!want_ds) return;

  for (int64_t i0 = 0; i0 < rounded; i0 += kRows) {
    vf c[kRows][NV];
    clear(c);
    tile_product<false>(c, tile.v + i0 * packed<U>(p.Dv), packed<U>(p.Dv), block.dyt, kQueries, units<U>(p.Dv));
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) {
      vf delta = load(block.delta + j * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        float* x = s + (i0 + i) * kQueries + j * kLanes;
        c[i][j] = load(x) * (c[i][j] - delta);
        store(buf.ds + (i0 + i) * kWidth + column + j * kLanes, c[i][j]);
        if (keep_ds) store(x, c[i][j]);
      }
#if defined(__AVX512BF16__)
      if constexpr (kPerUnit<U> == 2)
#pragma GCC unroll 8
        for (int i = 0; i < kRows; i += 2)
          store_units(buf.ds_depth + (i0 + i) / 2 * kQueries + j * kLanes, join(c[i][j], c[i + 1][j]));
#endif
    }
  }
  if (!want_dq) return;

  const U* ds;
  int64_t ld;
  if constexpr (kPerUnit<U> == 1) ds = buf.ds + column, ld = kWidth;
  else ds = buf.ds_depth, ld = kQueries;
  for (int64_t d = 0; d < p.D; d += kRows) {
    vf c[kRows][NV];
    float* o = block.dqt + d * kQueries;
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) c[i][j] = load(o + i * kQueries + j * kLanes);
    tile_product<true>(c, tile.k_depth + d, round_up(p.D, kLanes), ds, ld, units<U>(tile.count));
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) store(o + i * kQueries + j * kLanes, c[i][j]);
  }
}

// sum[keys][width] += w[keys][rows] x[rows][width], NV vectors of the width.
template <class U, int NV>
SF_INLINE void accumulate_columns(float* sum, const U* w, const U* x, int64_t keys, int64_t depth, int64_t width) {
  for (int64_t k = 0; k < keys; k += kRows) {
    vf c[kRows][NV];
    float* o = sum + k * width;
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) c[i][j] = load(o + i * width + j * kLanes);
    tile_product<false>(c, w + k * units<U>(kWidth), units<U>(kWidth), x, width, depth);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) store(o + i * width + j * kLanes, c[i][j]);
  }
}
template <class U>
void accumulate(float* sum, const typename Weights<U>::type* weights, const U* x, int64_t keys, int64_t rows,
                int64_t width) {
  const U* w = reinterpret_cast<const U*>(weights);
  int64_t depth = units<U>(rows);
  for (int64_t left = width / kLanes; left > 0;) {
    // Four vectors as 2 + 2: 3 + 1 would leave a tile of one vector, which the loads bound.
    int n = left == 4 ? 2 : int(smaller(left, kVectors));
    if (n == 1) accumulate_columns<U, 1>(sum, w, x, keys, depth, width);
    else if (n == 2) accumulate_columns<U, 2>(sum, w, x, keys, depth, width);
    else accumulate_columns<U, kVectors>(sum, w, x, keys, depth, width);
    sum += n * kLanes, x += n * kLanes, left -= n;
  }
}

// dqt[D][kQueries] * scale into rows of dq (when the task is the only one for its head)
// or of its share of the partial sums.
template <class T, class U>
void write_dq(const Problem& p, const BackwardBlock<U>& block, float scale, T* const* rows) {
  alignas(64) float factor[kQueries];
  for (float& x : factor) x = scale;
  write_turned<kQueries>(rows, block.count, block.dqt, p.D, factor);
}

// Packs the queries of block x and everything backward needs of them; depth operands at row `at` of the group.
template <class T, class U>
void load_block(const Problem& p, const BackwardTensors<T>& t, const Layout<U>& l, BackwardBlock<U>& x, U* q_depth,
                U* dy_depth) {
  const T *q[kQueries], *dy[kQueries], *y[kQueries];
  x.pointers(p, t.q, q), x.pointers(p, t.dy, dy), x.pointers(p, t.y, y);
  pack_transposed(x.qt, q, x.count, p.D, p.negate);
  pack_transposed(x.dyt, dy, x.count, p.Dv, false);
  pack_depth(
      q_depth, [&](int64_t i) { return q[i]; }, x.count, p.D);
  pack_depth(
      dy_depth, [&](int64_t i) { return dy[i]; }, x.count, p.Dv);
  std::memset(x.dqt, 0, l.dqt * sizeof(float));
  load_statistics(p, t, x, y, dy, x);
}

template <class T, class U> void backward_typed(const AttentionBackward& a) {
  Problem p(a);
  BackwardTensors<T> t(a);
  Layout<U> l(p);
  bool want_dq = t.dq.data, want_dk = t.dk.data, want_dv = t.dv.data, want_ds = want_dq || want_dk || t.dmask;
  int64_t heads = p.B * p.Hkv, blocks = p.blocks(), tiles = (p.Lk + kKeys - 1) / kKeys, threads = num_threads();

  int64_t shares = tasks_per_head(heads, tiles, threads);
  int64_t partial_floats = shares > 1 && want_dq ? p.rows() * l.width_d : 0;
  float* partial =
      partial_floats ? static_cast<float*>(scratch(size_t(heads * shares * partial_floats) * 4, 3)) : nullptr;

  parallel_for_guided(heads * shares, [&](int64_t begin, int64_t end) {
    int64_t most = (tiles + shares - 1) / shares;
    float* owned = static_cast<float*>(scratch(size_t(most * l.tile()) * 4, 0));
    U* group = static_cast<U*>(scratch(size_t(l.group()) * 4, 1));
    Buffers<U> buf(static_cast<float*>(scratch(size_t(Buffers<U>::bytes()), 2)));
    U *q_depth = group + kGroup * (l.qt + l.dyt + l.dqt), *dy_depth = q_depth + l.q_depth;
    BackwardBlock<U> block[kGroup];
    for (int64_t task = begin; task < end; ++task) {
      int64_t bh = task / shares, share = task % shares, b = bh / p.Hkv, h = bh % p.Hkv;
      // Every shares-th tile: under a causal mask the shares are then equally long.
      auto tile_at = [&](int64_t nth) {
        int64_t k0 = (share + nth * shares) * kKeys;
        return KeyTile<U>(l, owned, nth, k0, smaller(kKeys, p.Lk - k0));
      };
      int64_t mine = (tiles - share + shares - 1) / shares;
      for (int64_t nth = 0; nth < mine; ++nth) {
        KeyTile<U> x = tile_at(nth);
        int64_t rounded = round_up(x.count, kRows);
        auto k_row = [&](int64_t i) { return t.k.at(b, h, x.first + i); };
        pack_rows(x.k, k_row, x.count, rounded, p.D);
        if constexpr (kPerUnit<U> == 2) pack_depth(x.k_depth, k_row, x.count, p.D);
        pack_rows(
            x.v, [&](int64_t i) { return t.v.at(b, h, x.first + i); }, x.count, rounded, p.Dv);
        std::memset(x.dk, 0, (l.dk + l.dv) * sizeof(float));
      }

      for (int64_t first = 0; first < blocks; first += kGroup) {
        int n = int(smaller(kGroup, blocks - first));
        int64_t rows = 0;
        for (int i = 0; i < n; ++i) {
          BackwardBlock<U>& x = block[i];
          x.locate(p, b, h, first + i);
          x.qt = group + i * (l.qt + l.dyt + l.dqt), x.dyt = x.qt + l.qt,
          x.dqt = reinterpret_cast<float*>(x.dyt + l.dyt);
          load_block(p, t, l, x, q_depth + units<U>(rows) * l.width_d, dy_depth + units<U>(rows) * l.width_dv);
          rows += x.count;
        }
        for (int64_t nth = 0; nth < mine; ++nth) {
          KeyTile<U> tile = tile_at(nth);
          int64_t rounded = round_up(tile.count, kRows);
          bool any = false;
          for (int i = 0; i < n; ++i) any |= tile.first < block[i].key_end(p);
          for (int i = 0; i < n; ++i) {
            const BackwardBlock<U>& x = block[i];
            bool seen = tile.first < x.key_end(p);
            if (seen) {
              int vectors = (x.count + kLanes - 1) / kLanes;
              if (vectors == 1) differentiate<U, 1>(p, x, tile, buf, i * kQueries, want_ds, want_dq, t.dmask);
              else if (vectors == 2) differentiate<U, 2>(p, x, tile, buf, i * kQueries, want_ds, want_dq, t.dmask);
              else differentiate<U, kVectors>(p, x, tile, buf, i * kQueries, want_ds, want_dq, t.dmask);
            } else if (any) {
              for (int64_t k = 0; k < rounded; ++k) {
                std::memset(static_cast<void*>(buf.p + k * kWidth + i * kQueries), 0, kQueries * sizeof(*buf.p));
                std::memset(static_cast<void*>(buf.ds + k * kWidth + i * kQueries), 0, kQueries * sizeof(*buf.ds));
              }
            }
            if (t.dmask) write_dmask(p, x, seen ? buf.s : nullptr, tile.first, tile.count, t.dmask);
          }
          if (any && want_dv) accumulate<U>(tile.dv, buf.p, dy_depth, rounded, rows, l.width_dv);
          if (any && want_dk) accumulate<U>(tile.dk, buf.ds, q_depth, rounded, rows, l.width_d);
        }
        for (int i = 0; want_dq && i < n; ++i) {
          if (partial) {
            float* at[kQueries];
            for (int r = 0; r < kQueries; ++r) at[r] = partial + task * partial_floats + block[i].row(r) * l.width_d;
            write_dq(p, block[i], t.scale, at);
          } else {
            T* at[kQueries];
            block[i].pointers(p, t.dq, at);
            write_dq(p, block[i], t.scale, at);
          }
        }
      }
      for (int64_t nth = 0; nth < mine; ++nth) {
        KeyTile<U> x = tile_at(nth);
        if (want_dk) write_rows(t.dk, b, h, x.dk, x.first, x.count, p.D, l.width_d, t.scale);
        if (want_dv) write_rows(t.dv, b, h, x.dv, x.first, x.count, p.Dv, l.width_dv, 1.0f);
      }
    }
  });

  if (partial) sum_partial_dq(p, t.dq, partial, shares, l.width_d);
}

void backward(const AttentionBackward& a) {
  if (a.q.dtype == kFloat32) return backward_typed<float, float>(a);
  if (a.q.dtype == kFloat16) return backward_typed<Half, float>(a);
#if defined(__AVX512BF16__)
  if (cpu::bf16_dot_pays()) return backward_typed<BFloat16, Pair>(a);
#endif
  backward_typed<BFloat16, float>(a);
}

}  // namespace

SF_KERNEL(attention_backward, DeviceType::CPU, "native", SF_ISA_PRIORITY, backward, supports_gradients)

}  // namespace SF_ISA
}  // namespace sf
