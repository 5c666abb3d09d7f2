// Forward attention on CPU: one pass over the keys with an online softmax (Milakov & Gimelshein 2018; Dao et al. 2022).
//
// A task is up to kMaxBlocks blocks of kQueries queries of one (batch, key head). Per task, in this thread's scratch:
//   Q^T[D][kQueries] and O^T[Dv][kQueries] of every block   L2; 24 KB per block for D = Dv = 64
//   one tile of kKeys keys and values, packed if need be    L2; 32 + 32 KB, shared by the blocks of the task
//   S^T[kKeys][kQueries], turned into P in place            L1; 24 KB
// For each tile and block: S^T = K Q^T (the column maxima are taken while the tile is in registers), masks, P = 2^(S -
// m), O^T = O^T * rescale + V^T P. Nothing grows with Lq * Lk.
//
// Share of the FMA peak measured beside it (4 B H Lq Lk D FLOP; Zen 5, one thread, heads interleaved in memory):
//                       float32 avx512   bfloat16 avx512bf16   float32 avx2
//   h8  n4096 d40             84 %               80 %               81 %
//   h8  n4096 d64             86 %               88 %               84 %
//   h10 n1024 d64             87 %               87 %               85 %
// The rest is the exponential (8 instructions per vector of scores beside 2 D FMA), packing and loading O^T.
#include "scaffolding/backend/cpu/bf16_dot.h"
#include "scaffolding/core/parallel_guided.h"
#include "scaffolding/core/scratch.h"
#include "scaffolding/ops/attention/attention_problem.h"

namespace sf {
namespace SF_ISA {
namespace {

constexpr int64_t kKeys = 128;              // keys per tile
constexpr int kMaxBlocks = 16;              // blocks that share a packed tile; 4 instead cost 4 % at d40, 2 % at d64
constexpr int64_t kBlockBytes = 256 << 10;  // Q^T and O^T of a task stay within a small L2
constexpr int64_t kNearRows = 128;          // elements between rows that are read in place

// A new maximum is taken over only when it exceeds the old one by 2^8: until then P may be as large as 256, which costs
// no accuracy in floating point, and O^T is not rescaled. After the first tile rescaling is rare.
constexpr float kMaximumSlack = 8.0f;

template <class U> struct ForwardBlock : QueryBlock {
  U* qt;                                // [packed(D)][kQueries]
  float* ot;                            // [round_up(Dv, kLanes)][kQueries]
  alignas(64) float maximum[kQueries];  // in powers of two
  alignas(64) float sum[kQueries];
};

template <class U> struct KeyTile {
  int64_t first, count;
  const U* k;  // A(i, t) = k[i * ldk + t]
  int64_t ldk;
  const U* v;  // A(i, t) = v[t * ldv + i]
  int64_t ldv;
};

// s[count][kQueries] = K Q^T; top = the columns' maxima, of use when no mask follows.
template <class U, int NV>
SF_INLINE void score(float* s, const KeyTile<U>& tile, const U* qt, int64_t depth, vf (&top)[NV]) {
  for (int j = 0; j < NV; ++j) top[j] = vf(kNegativeInfinity);
  for (int64_t i0 = 0; i0 < tile.count; i0 += kRows) {
    vf c[kRows][NV];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) c[i][j] = vf(0.0f);
    tile_product<false>(c, tile.k + i0 * tile.ldk, tile.ldk, qt, kQueries, depth);
    float* rows = s + i0 * kQueries;
    if (i0 + kRows <= tile.count) {
      // Two by two and without a test for each row, maxima stay in registers: at d40 4 % of the whole.
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) {
        vf most = max(c[0][j], c[1][j]);
#pragma GCC unroll 8
        for (int i = 2; i < kRows; i += 2) most = max(most, max(c[i][j], c[i + 1][j]));
        top[j] = max(top[j], most);
      }
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) store(rows + i * kQueries + j * kLanes, c[i][j]);
      continue;
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      if (i0 + i >= tile.count) break;
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) {
        top[j] = max(top[j], c[i][j]);
        store(rows + i * kQueries + j * kLanes, c[i][j]);
      }
    }
  }
}

// P = 2^(s * factor - maximum) in place; adds the columns to sum.
template <int NV>
SF_INLINE void exponentiate(float* s, int64_t count, vf factor, const vf (&minus)[NV], vf (&sum)[NV], const float*) {
#pragma GCC unroll 2
  for (int64_t k = 0; k < count; ++k, s += kQueries)
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) {
      vf e = exp2_at_most<5>(fma(load(s + j * kLanes), factor, minus[j]));
      sum[j] += e;
      store(s + j * kLanes, e);
    }
}
#if defined(__AVX512BF16__)
// Two rows become one row of pairs, written over rows that were already read.
template <int NV>
SF_INLINE void exponentiate(float* s, int64_t count, vf factor, const vf (&minus)[NV], vf (&sum)[NV], const Pair*) {
  Pair* out = reinterpret_cast<Pair*>(s);
  for (int64_t k = 0; k < count; k += 2, s += 2 * kQueries, out += kQueries)
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) {
      vf low = exp2_of_pairs(fma(load(s + j * kLanes), factor, minus[j])), high(0.0f);
      if (k + 1 < count) high = exp2_of_pairs(fma(load(s + kQueries + j * kLanes), factor, minus[j]));
      sum[j] += low + high;
      store_units(out + j * kLanes, join(low, high));
    }
}
#endif

template <class U, int NV> void attend(const Problem& p, ForwardBlock<U>& block, const KeyTile<U>& tile, float* s) {
  vf top[NV], minus[NV], sum[NV], factor(p.factor);
  score(s, tile, block.qt, units<U>(p.D), top);
  if (block.needs_mask(p, tile.first, tile.count)) {
    apply_mask(s, p, block, tile.first, tile.count);
    factor = vf(1.0f);
    for (int j = 0; j < NV; ++j) {
      top[j] = vf(kNegativeInfinity);
      for (int64_t k = 0; k < tile.count; ++k) top[j] = max(top[j], load(s + k * kQueries + j * kLanes));
    }
  }
  alignas(64) float rescale[kQueries];
  bool moved = false;
  for (int j = 0; j < NV; ++j) {
    vf old = load(block.maximum + j * kLanes), seen = top[j] * factor;
    vm grown = seen > old + vf(kMaximumSlack);
    vf now = select(grown, seen, old);
    for (int i = 0; i < kLanes; ++i) moved |= grown.m[i] != 0;
    store(block.maximum + j * kLanes, now);
    vf shrink = exp2_at_most<5>(old - now);
    store(rescale + j * kLanes, shrink);
    minus[j] = -now;
    sum[j] = load(block.sum + j * kLanes) * shrink;
  }
  exponentiate(s, tile.count, factor, minus, sum, static_cast<const U*>(nullptr));
  for (int j = 0; j < NV; ++j) store(block.sum + j * kLanes, sum[j]);

  const U* weights = reinterpret_cast<const U*>(s);
  for (int64_t d = 0; d < p.Dv; d += kRows) {
    vf c[kRows][NV];
    float* o = block.ot + d * kQueries;
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) c[i][j] = load(o + i * kQueries + j * kLanes);
    if (moved) {
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) c[i][j] *= load(rescale + j * kLanes);
    }
    tile_product<true>(c, tile.v + d, tile.ldv, weights, kQueries, units<U>(tile.count));
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) store(o + i * kQueries + j * kLanes, c[i][j]);
  }
}

// y = O^T / sum, back in rows; lse.
template <class T, class U> void finish(const Problem& p, const ForwardBlock<U>& block, const Heads<T>& y, float* lse) {
  T* rows[kQueries];
  block.pointers(p, y, rows);
  alignas(64) float inverse[kQueries];
  for (int g = 0; g < kQueries; g += kLanes) {
    vf sum = load(block.sum + g);
    store(inverse + g, select(sum == vf(0.0f), vf(0.0f), vf(1.0f) / sum));
  }
  write_turned<kQueries>(rows, block.count, block.ot, p.Dv, inverse);
  if (!lse) return;
  for (int r = 0; r < block.count; ++r)
    lse[(block.b * p.Hq + block.head(p, r)) * p.Lq + block.query(p, r)] = log_sum(block.maximum[r], block.sum[r]);
}

template <class T> SF_INLINE void prefetch_row(const T* row, int64_t length) {
  for (int64_t at = 0; at < length; at += 64 / int64_t(sizeof(T))) __builtin_prefetch(row + at, 0, 2);
}

template <class T, class U> void forward_typed(const AttentionForward& a) {
  Problem p(a);
  Heads<const T> q(a.q), k(a.k), v(a.v);
  Heads<T> y(a.y);
  float* lse = a.lse.defined() ? a.lse.as<float>() : nullptr;
  int64_t q_units = packed<U>(p.D) * kQueries, o_floats = round_up(p.Dv, kLanes) * kQueries;
  int64_t keys = smaller(kKeys, round_up(p.Lk, kRows));
  int64_t k_units = packed<U>(p.D) * keys, v_units = round_up(p.Dv, kLanes) * units<U>(keys);

  // Few long tasks when there is work for everybody, many short ones otherwise.
  int64_t blocks = p.blocks(), heads = p.B * p.Hkv;
  int64_t group = smaller(kMaxBlocks, kBlockBytes / ((q_units + o_floats) * 4));
  group = smaller(group, blocks * heads / (4 * num_threads()));
  if (group < 1) group = 1;
  int64_t groups = (blocks + group - 1) / group;
  if (groups > 0) group = (blocks + groups - 1) / groups;  // equally long: a short last group would pack for few

  // float32 keys and values can be read where they are, if no tile of kRows reads past a row or past the last key.
  // Rows far apart (heads interleaved in memory) fall on few cache sets: they are packed,
  // unless hardly anybody reads them.
  // A single wide head (an image autoencoder's: D = 512) is dense as it is;
  // packing it for each few queries cost a tenth.
  auto near = [](int64_t row, int64_t length) { return row <= kNearRows || row < length + kLanes; };
  bool use_rows = p.Dv % kRows == 0 && ((near(k.row, p.D) && near(v.row, p.Dv)) || blocks == 1);

  parallel_for_guided(heads * groups, [&](int64_t begin, int64_t end) {
    bool in_place = false;
    U* qt = static_cast<U*>(scratch((q_units + o_floats) * group * 4, 0));
    float* ot = reinterpret_cast<float*>(qt + q_units * group);
    U* kv = static_cast<U*>(scratch((k_units + v_units) * 4, 1));
    float* s = static_cast<float*>(scratch(round_up(keys, 2) * kQueries * 4, 2));
    ForwardBlock<U> block[kMaxBlocks];
    const T* rows[kQueries];
    for (int64_t task = begin; task < end; ++task) {
      int64_t bh = task / groups, nth = task % groups, b = bh / p.Hkv, h = bh % p.Hkv;
      // Causal work grows along the rows: from both ends inwards, any run of tasks has its fair share.
      if (p.causal) nth = nth % 2 ? groups - 1 - nth / 2 : nth / 2;
      int n = int(smaller(group, blocks - nth * group));
      int64_t key_end = 0;
      for (int i = 0; i < n; ++i) {
        ForwardBlock<U>& x = block[i];
        x.locate(p, b, h, nth * group + i);
        x.qt = qt + i * q_units, x.ot = ot + i * o_floats;
        x.pointers(p, q, rows);
        pack_transposed(x.qt, rows, x.count, p.D, p.negate);
        std::memset(x.ot, 0, o_floats * sizeof(float));
        for (int r = 0; r < kQueries; ++r) x.maximum[r] = kLowest, x.sum[r] = 0;
        key_end = key_end > x.key_end(p) ? key_end : x.key_end(p);
      }
      for (int64_t k0 = 0; k0 < key_end; k0 += kKeys) {
        KeyTile<U> tile{k0, smaller(kKeys, key_end - k0), kv, packed<U>(p.D), kv + k_units, round_up(p.Dv, kLanes)};
        const T *kt = k.at(b, h, k0), *vt = v.at(b, h, k0);
        if constexpr (std::is_same_v<T, float>) in_place = use_rows && tile.count % kRows == 0;
        if (in_place) {
          tile.k = reinterpret_cast<const U*>(kt), tile.ldk = k.row;
          tile.v = reinterpret_cast<const U*>(vt), tile.ldv = v.row;
        } else {
          pack_rows(
              kv, [&](int64_t i) { return kt + i * k.row; }, tile.count, round_up(tile.count, kRows), p.D);
          pack_depth(
              kv + k_units, [&](int64_t i) { return vt + i * v.row; }, tile.count, p.Dv);
        }
        const int64_t next = smaller(kKeys, key_end - k0 - kKeys);
        for (int i = 0; i < n; ++i) {
          // Rows of the next tile, which may be pages apart, come meanwhile.
          for (int64_t row = next * i / n; row < next * (i + 1) / n; ++row) {
            prefetch_row(kt + (kKeys + row) * k.row, p.D);
            prefetch_row(vt + (kKeys + row) * v.row, p.Dv);
          }
          if (k0 >= block[i].key_end(p)) continue;
          int vectors = (block[i].count + kLanes - 1) / kLanes;
          if (vectors == 1) attend<U, 1>(p, block[i], tile, s);
          else if (vectors == 2) attend<U, 2>(p, block[i], tile, s);
          else attend<U, kVectors>(p, block[i], tile, s);
        }
      }
      for (int i = 0; i < n; ++i) finish(p, block[i], y, lse);
    }
  });
}

void forward(const AttentionForward& a) {
  if (a.q.dtype == kFloat32) return forward_typed<float, float>(a);
  if (a.q.dtype == kFloat16) return forward_typed<Half, float>(a);
#if defined(__AVX512BF16__)
  if (cpu::bf16_dot_pays()) return forward_typed<BFloat16, Pair>(a);
#endif
  forward_typed<BFloat16, float>(a);
}

bool supports(const AttentionForward& a) { return supports_inputs(a) && a.y.dtype == a.q.dtype && rows_are_dense(a.y); }

}  // namespace

SF_KERNEL(attention_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, forward, supports)

}  // namespace SF_ISA
}  // namespace sf
