// Backward attention of bfloat16 on the processor's tiles, in the order of attention_backward.cpu.cpp: a task has the
// sums of dk and dv of its keys; the loop is over groups of queries, their key tiles, and the blocks of the group.
//   S^T = K Q^T, dP^T = V dY^T   [kPart keys][kWide queries], in L1   -> P^T, dS^T in bfloat16
//   dV += P^T dY, dK += dS^T Q   tiles of P^T and dS^T as rows
//   dQ^T += K^T dS^T             tiles of dS^T as pairs of keys
// Blocks of 64 queries, or tiles of 64 or 256 keys, are as fast.
#include "scaffolding/ops/attention/attention_backward.h"
#include "scaffolding/core/parallel_guided.h"
#include "scaffolding/ops/attention/attention_amx.h"

namespace sf {
namespace SF_ISA {
namespace {

constexpr int64_t kKeys = 128;    // keys per tile
constexpr int64_t kPart = kStep;  // of which so many are scored at a time
constexpr int kWide = 128;        // queries in a block
constexpr int kGroup = 4;         // blocks in a group, for which keys, dk and dv come from L3 once
constexpr int64_t kPairs = kWide / kStep;

struct BackwardBlock : QueryBlockOf<kWide>, RowStatistics<kWide> {
  BFloat16 *qt, *dyt;          // columns of the products over D and Dv
  BFloat16 *q_rows, *dy_rows;  // columns of those over queries
  float* dqt;                  // [16 tiles_of(D)][kWide], queries in the order of query_of()
};

// Sizes of the packed pieces, in bytes.
struct Layout {
  int64_t keys, d, dv, d_steps, dv_steps, width_d, width_dv;
  int64_t k, k_turned, v, dk, dv_sum;
  int64_t qt, dyt, q_rows, dy_rows, dqt;
  SF_INLINE explicit Layout(const Problem& p)
      : keys(smaller(kKeys, round_up(p.Lk, kStep))),
        d(tiles_of(p.D)),
        dv(tiles_of(p.Dv)),
        d_steps(steps_of(p.D)),
        dv_steps(steps_of(p.Dv)),
        width_d(d * 16),
        width_dv(dv * 16),
        k(keys * d_steps * 64),
        k_turned(keys * width_d * 2),
        v(keys * dv_steps * 64),
        dk(keys * width_d * 4),
        dv_sum(keys * width_dv * 4),
        qt(kWide * d_steps * 64),
        dyt(kWide * dv_steps * 64),
        q_rows(kWide * width_d * 2),
        dy_rows(kWide * width_dv * 2),
        dqt(kWide * width_d * 4) {}
  SF_INLINE int64_t tile() const { return k + k_turned + v + dk + dv_sum; }
  SF_INLINE int64_t block() const { return qt + dyt + q_rows + dy_rows + dqt; }
};

// One key tile of a task: packed operands and sums.
struct KeyTile {
  int64_t first, count;
  BFloat16 *k, *k_turned, *v;
  float *dk, *dv;
  SF_INLINE KeyTile(const Layout& l, char* base, int64_t nth, int64_t k0, int64_t n) : first(k0), count(n) {
    base += nth * l.tile();
    k = reinterpret_cast<BFloat16*>(base), base += l.k;
    k_turned = reinterpret_cast<BFloat16*>(base), base += l.k_turned;
    v = reinterpret_cast<BFloat16*>(base), base += l.v;
    dk = reinterpret_cast<float*>(base), base += l.dk;
    dv = reinterpret_cast<float*>(base);
  }
};

struct Buffers {
  alignas(64) float s[kPart * kWide], dp[kPart * kWide];
  alignas(64) BFloat16 p[kKeys * kWide];         // [keys / 16][queries / 32] tiles: rows are keys
  alignas(64) BFloat16 ds[kKeys * kWide];        // the same
  alignas(64) BFloat16 ds_pairs[kKeys * kWide];  // [queries / 16][keys / 32] tiles: pairs of keys
};

// 32 values in order, and neighbours of two such lines as pairs: of each eight columns the first four are in the first
// line, so that `i` of line `t` is query 8 (i / 4) + 4 t + i % 4.
SF_INLINE TileLine narrow(vf first, vf second) {
#if defined(__AVX512BF16__)
  return (TileLine)_mm512_cvtne2ps_pbh((__m512)second.v, (__m512)first.v);
#else
  BFloat16 t[32];
  store(t, first), store(t + 16, second);
  TileLine line;
  std::memcpy(&line, t, 64);
  return line;
#endif
}
typedef uint16_t WordLine __attribute__((vector_size(64)));
SF_INLINE TileLine zip_low(TileLine a, TileLine b) {
  return (TileLine)__builtin_shufflevector((WordLine)a, (WordLine)b, 0, 32, 1, 33, 2, 34, 3, 35, 8, 40, 9, 41, 10, 42,
                                           11, 43, 16, 48, 17, 49, 18, 50, 19, 51, 24, 56, 25, 57, 26, 58, 27, 59);
}
SF_INLINE TileLine zip_high(TileLine a, TileLine b) {
  return (TileLine)__builtin_shufflevector((WordLine)a, (WordLine)b, 4, 36, 5, 37, 6, 38, 7, 39, 12, 44, 13, 45, 14, 46,
                                           15, 47, 20, 52, 21, 53, 22, 54, 23, 55, 28, 60, 29, 61, 30, 62, 31, 63);
}
SF_INLINE int query_of(int column) {
  return column / 32 * 32 + column % 16 / 4 * 8 + column % 32 / 16 * 4 + column % 4;
}

// P^T and dS^T of kPart keys from key `at` of the tile on, for 32 queries, from their scores and dP^T.
template <bool kGradient, bool kKeep>
SF_INLINE void differentiate(const BackwardBlock& block, Buffers& buf, vf factor, int64_t at, int64_t pair,
                             int64_t key_steps) {
  const int64_t column = pair * kStep;
  const vf lse0 = load(block.minus_lse + column), lse1 = load(block.minus_lse + column + 16);
  const vf delta0 = load(block.delta + column), delta1 = load(block.delta + column + 16);
  float *s = buf.s + column, *dp = buf.dp + column;
  const int64_t tile = (at / 16 * kPairs + pair) * kTileSize;
  BFloat16 *p = buf.p + tile, *ds = buf.ds + tile;
  BFloat16* low = buf.ds_pairs + (2 * pair * key_steps + at / kStep) * kTileSize;
  BFloat16* high = low + key_steps * kTileSize;
  for (int64_t half = 0; half < 2; ++half, p += (kPairs - 1) * kTileSize, ds += (kPairs - 1) * kTileSize)
    for (int64_t k = 0; k < 16; k += 2, s += 2 * kWide, dp += 2 * kWide, p += 2 * kStep, ds += 2 * kStep) {
      TileLine line[2];
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        vf e0 = exp2_at_most<4>(fma(load(s + i * kWide), factor, lse0));
        vf e1 = exp2_at_most<4>(fma(load(s + i * kWide + 16), factor, lse1));
        store_line(p + i * kStep, narrow(e0, e1));
        if constexpr (kGradient) {
          e0 *= load(dp + i * kWide) - delta0;
          e1 *= load(dp + i * kWide + 16) - delta1;
          if constexpr (kKeep) store(s + i * kWide, e0), store(s + i * kWide + 16, e1);
          line[i] = narrow(e0, e1);
          store_line(ds + i * kStep, line[i]);
        }
      }
      if constexpr (kGradient) {
        store_line(low, zip_low(line[0], line[1])), low += kStep;
        store_line(high, zip_high(line[0], line[1])), high += kStep;
      }
    }
}

struct Wanted {
  bool dq, dk, dv;
  float* dmask;
};

// Everything that one block and one key tile give each other.
void work(const Problem& p, const Layout& l, const BackwardBlock& block, const KeyTile& tile, Buffers& buf,
          const Wanted& want) {
  const int64_t end = smaller(tile.count, block.key_end(p) - tile.first);
  if (end <= 0) {
    if (want.dmask) write_dmask(p, block, nullptr, tile.first, tile.count, want.dmask);
    return;
  }
  const int64_t pairs = steps_of(block.count), rounded = round_up(end, kStep), key_steps = rounded / kStep;
  const bool gradient = want.dq || want.dk || want.dmask;
  const Tiles k = packed_tiles(tile.k, l.d_steps), v = packed_tiles(tile.v, l.dv_steps);
  const Tiles qt = packed_tiles(block.qt, l.d_steps), dyt = packed_tiles(block.dyt, l.dv_steps);
  for (int64_t at = 0; at < rounded; at += kPart) {
    const int64_t first = tile.first + at, count = smaller(kPart, end - at);
    vf factor(p.factor);
    tile_matrix<false>(buf.s, kWide, k.from(at / 16), kPart / 16, qt, 2 * pairs, l.d_steps);
    if (gradient) tile_matrix<false>(buf.dp, kWide, v.from(at / 16), kPart / 16, dyt, 2 * pairs, l.dv_steps);
    if (block.needs_mask(p, first, count)) {
      apply_mask(buf.s, p, block, first, count);
      factor = vf(1.0f);
    }
    // Rows past the last key have score 0, which is not "no weight".
    for (int64_t i = count * kWide; i < kPart * kWide; i += kLanes) store(buf.s + i, vf(kNegativeInfinity));
    for (int64_t pair = 0; pair < pairs; ++pair) {
      if (want.dmask) differentiate<true, true>(block, buf, factor, at, pair, key_steps);
      else if (gradient) differentiate<true, false>(block, buf, factor, at, pair, key_steps);
      else differentiate<false, false>(block, buf, factor, at, pair, key_steps);
    }
    if (want.dmask) write_dmask(p, block, buf.s, first, count, want.dmask);
  }
  if (want.dmask && end < tile.count) write_dmask(p, block, nullptr, tile.first + end, tile.count - end, want.dmask);

  const Tiles weights = packed_tiles(buf.p, kPairs), ds = packed_tiles(buf.ds, kPairs);
  if (want.dv)
    tile_matrix<true>(tile.dv, l.width_dv, weights, rounded / 16, packed_tiles(block.dy_rows, steps_of(block.count)),
                      l.dv, pairs);
  if (want.dk)
    tile_matrix<true>(tile.dk, l.width_d, ds, rounded / 16, packed_tiles(block.q_rows, steps_of(block.count)), l.d,
                      pairs);
  if (want.dq)
    tile_matrix<true>(block.dqt, kWide, packed_tiles(tile.k_turned, steps_of(tile.count)), l.d,
                      packed_tiles(buf.ds_pairs, key_steps), 2 * pairs, key_steps);
}

using Tensors = BackwardTensors<BFloat16>;

// Packs the queries of block x and everything backward needs of them.
void load_block(const Problem& p, const Tensors& t, const Layout& l, BackwardBlock& x, char* base) {
  x.qt = reinterpret_cast<BFloat16*>(base), base += l.qt;
  x.dyt = reinterpret_cast<BFloat16*>(base), base += l.dyt;
  x.q_rows = reinterpret_cast<BFloat16*>(base), base += l.q_rows;
  x.dy_rows = reinterpret_cast<BFloat16*>(base), base += l.dy_rows;
  x.dqt = reinterpret_cast<float*>(base);
  const BFloat16 *q[kWide], *dy[kWide], *y[kWide];
  x.pointers(p, t.q, q), x.pointers(p, t.dy, dy), x.pointers(p, t.y, y);
  auto q_row = [&](int64_t i) { return q[i]; };
  auto dy_row = [&](int64_t i) { return dy[i]; };
  const int64_t rows = round_up(x.count, kStep);
  pack_b(x.qt, q_row, x.count, rows, p.D, p.negate);
  pack_b(x.dyt, dy_row, x.count, rows, p.Dv, false);
  pack_b_turned(x.q_rows, q_row, x.count, p.D);
  pack_b_turned(x.dy_rows, dy_row, x.count, p.Dv);
  std::memset(x.dqt, 0, size_t(l.dqt));
  load_statistics(p, t, x, y, dy, x);
}

// dqt * scale into rows of dq, or of this task's share of it.
void write_dq(const Problem& p, const Tensors& t, const Layout& l, const BackwardBlock& x, float* partial) {
  alignas(64) float factor[kWide];
  for (float& f : factor) f = t.scale;
  const int columns = int(round_up(x.count, kStep));
  if (partial) {
    float* rows[kWide];
    for (int c = 0; c < columns; ++c)
      rows[c] = query_of(c) < x.count ? partial + x.row(query_of(c)) * l.width_d : nullptr;
    return write_turned<kWide>(rows, columns, x.dqt, p.D, factor);
  }
  BFloat16 *of[kWide], *rows[kWide];
  x.pointers(p, t.dq, of);
  for (int c = 0; c < columns; ++c) rows[c] = query_of(c) < x.count ? of[query_of(c)] : nullptr;
  write_turned<kWide>(rows, columns, x.dqt, p.D, factor);
}

void backward(const AttentionBackward& a) {
  const Problem p(a);
  const Tensors t(a);
  const Layout l(p);
  const Wanted want{bool(t.dq.data), bool(t.dk.data), bool(t.dv.data), t.dmask};
  const int64_t heads = p.B * p.Hkv, blocks = p.blocks(kWide), tiles = (p.Lk + kKeys - 1) / kKeys;
  const int64_t shares = tasks_per_head(heads, tiles, num_threads());
  const int64_t partial_floats = shares > 1 && want.dq ? p.rows() * l.width_d : 0;
  float* partial =
      partial_floats ? static_cast<float*>(scratch(size_t(heads * shares * partial_floats) * 4, 3)) : nullptr;

  parallel_for_guided(heads * shares, [&](int64_t begin, int64_t end) {
    const int64_t most = (tiles + shares - 1) / shares;
    char* owned = static_cast<char*>(scratch(size_t(most * l.tile()), 0));
    char* packed = static_cast<char*>(scratch(size_t(kGroup * l.block()), 1));
    Buffers& buf = *static_cast<Buffers*>(scratch(sizeof(Buffers), 2));
    BackwardBlock block[kGroup];
    [[maybe_unused]] TileScope scope;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t bh = task / shares, share = task % shares, b = bh / p.Hkv, h = bh % p.Hkv;
      // Every shares-th tile: under a causal mask the shares are then equally long.
      auto tile_at = [&](int64_t nth) {
        int64_t k0 = (share + nth * shares) * kKeys;
        return KeyTile(l, owned, nth, k0, smaller(kKeys, p.Lk - k0));
      };
      const int64_t mine = (tiles - share + shares - 1) / shares;
      for (int64_t nth = 0; nth < mine; ++nth) {
        KeyTile x = tile_at(nth);
        const int64_t rounded = round_up(x.count, kStep);
        auto k_row = [&](int64_t i) { return t.k.at(b, h, x.first + i); };
        pack_a(x.k, k_row, x.count, rounded, p.D);
        pack_a_turned(x.k_turned, k_row, x.count, p.D);
        pack_a(
            x.v, [&](int64_t i) { return t.v.at(b, h, x.first + i); }, x.count, rounded, p.Dv);
        std::memset(x.dk, 0, size_t(l.dk + l.dv_sum));
      }
      for (int64_t first = 0; first < blocks; first += kGroup) {
        const int n = int(smaller(kGroup, blocks - first));
        for (int i = 0; i < n; ++i) {
          block[i].locate(p, b, h, first + i);
          load_block(p, t, l, block[i], packed + i * l.block());
        }
        for (int64_t nth = 0; nth < mine; ++nth) {
          const KeyTile tile = tile_at(nth);
          for (int i = 0; i < n; ++i) work(p, l, block[i], tile, buf, want);
        }
        for (int i = 0; want.dq && i < n; ++i)
          write_dq(p, t, l, block[i], partial ? partial + task * partial_floats : nullptr);
      }
      for (int64_t nth = 0; nth < mine; ++nth) {
        const KeyTile x = tile_at(nth);
        if (want.dk) write_rows(t.dk, b, h, x.dk, x.first, x.count, p.D, l.width_d, t.scale);
        if (want.dv) write_rows(t.dv, b, h, x.dv, x.first, x.count, p.Dv, l.width_dv, 1.0f);
      }
    }
  });
  if (partial) sum_partial_dq(p, t.dq, partial, shares, l.width_d);
}

bool supports(const AttentionBackward& a) { return supports_gradients(a) && fills_tiles(a); }

}  // namespace

SF_KERNEL(attention_backward, DeviceType::CPU, "native", SF_ISA_PRIORITY, backward, supports)

}  // namespace SF_ISA
}  // namespace sf
