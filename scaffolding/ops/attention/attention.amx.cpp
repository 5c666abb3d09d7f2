// Forward attention of bfloat16 on the processor's tiles, laid out as in attention.cpu.cpp: scores transposed, an
// online softmax down the keys, nothing that grows with Lq * Lk. Per task, in this thread's scratch:
//   Q^T as pairs along D, O^T[Dv + 1][kWide] of every block    L2
//   one tile of kKeys keys and values                          L2, shared by the blocks of the task
//   S^T[kKeys][kWide], turned into P in place                  L1; 16 KB
// V^T has a row of ones more: row Dv of O^T is then the sum of the weights as they were rounded, and the vectors, which
// have more to do than the tiles (8 instructions for 16 scores, beside 4 cycles of tiles at D = 64), need not add.
//
// Of one core's time at h8 n4096 d64 (40 ms) the products with V take 35 %, the scores 25 %, the exponentials 30 %, the
// maxima 5 %. Weights of one block computed between the products of two others were 15 % slower: three blocks of scores
// fill L1. 256 keys a tile were 25 % slower, 64 as fast.
#include "scaffolding/core/parallel_guided.h"
#include "scaffolding/core/scratch.h"
#include "scaffolding/ops/attention/attention_amx.h"

namespace sf {
namespace SF_ISA {
namespace {

constexpr int64_t kKeys = 128;              // keys per tile
constexpr int kWide = 32;                   // queries in a block
constexpr int kMaxBlocks = 32;              // blocks that share a packed tile
constexpr int64_t kBlockBytes = 512 << 10;  // Q^T and O^T of a task
constexpr float kMaximumSlack = 8.0f;       // as in attention.cpu.cpp

struct ForwardBlock : QueryBlockOf<kWide> {
  BFloat16* qt;
  float* ot;                         // [16 tiles_of(Dv + 1)][kWide]
  alignas(64) float maximum[kWide];  // in powers of two
};

struct KeyTile {
  int64_t first, count;
  Tiles k, v;
};

// 2^t, relative error 8e-5, and half a unit in the last place of a bfloat16 more: its upper 16 bits are 2^t rounded.
// 0 and NaN as exp2_at_most.
SF_INLINE vf exp2_to_cut(vf t) {
#if defined(__AVX512DQ__)
  __m512 x = (__m512)t.v;
  __mmask16 alive = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
  vf f((vf_raw)_mm512_maskz_reduce_ps(0xffff, x, 1));
#else
  vf magic(12582912.0f), n = (t + magic) - magic;
  n = select(n > t, n - vf(1.0f), n);
  vf f = t - n;
#endif
  vf p = fma(vf(0.0780245364f), f, vf(0.2260672f));
  p = fma(p, f, vf(0.695833504f));
  p = fma(p, f, vf(0.999925256f + 0x1p-8f));
#if defined(__AVX512DQ__)
  return (vf_raw)_mm512_maskz_scalef_ps(alive, (__m512)p.v, x);
#else
  vi_raw exponent = __builtin_convertvector(select(n > vf(-126.0f), n, vf(-126.0f)).v, vi_raw) << 23;
  return select(t == t, select(t < vf(-126.0f), vf(0.0f), from_bits(bits(p) + exponent)), t);
#endif
}
SF_INLINE vf join_cut(vf low, vf high) {
  const TileLine a = (TileLine)low.v, b = (TileLine)high.v;
  return (vf_raw)((a >> 16) | (b & 0xffff0000u));
}

// P = 2^(s * factor - maximum) in place, two keys a line.
template <int NV> SF_INLINE void exponentiate(float* s, int64_t count, vf factor, const vf (&minus)[NV]) {
  float* out = s;
  for (int64_t k = 0; k < count; k += 2, s += 2 * kWide, out += kWide)
#pragma GCC unroll 2
    for (int j = 0; j < NV; ++j) {
      vf low = exp2_to_cut(fma(load(s + j * kLanes), factor, minus[j]));
      vf high = exp2_to_cut(fma(load(s + kWide + j * kLanes), factor, minus[j]));
      store(out + j * kLanes, join_cut(low, high));
    }
}

template <int NV> void attend(const Problem& p, ForwardBlock& block, const KeyTile& tile, float* s) {
  const int64_t keys = smaller(tile.count, block.key_end(p) - tile.first), rounded = round_up(keys, kStep);
  const int64_t depth = steps_of(p.D), tiles = tiles_of(p.Dv + 1);
  tile_columns<NV, false>(s, kWide, tile.k, rounded / 16, packed_tiles(block.qt, depth), depth);
  vf factor(p.factor), minus[NV], top[NV];
  if (block.needs_mask(p, tile.first, keys)) {
    apply_mask(s, p, block, tile.first, keys);
    factor = vf(1.0f);
  }
  for (int64_t i = keys * kWide; i < rounded * kWide; i += kLanes) store(s + i, vf(kNegativeInfinity));
  for (int j = 0; j < NV; ++j) {
    const float* x = s + j * kLanes;
    vf most[4];
    for (int i = 0; i < 4; ++i) most[i] = load(x + i * kWide);
    for (int64_t k = 4; k < rounded; k += 4)
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) most[i] = max(most[i], load(x + (k + i) * kWide));
    top[j] = max(max(most[0], most[1]), max(most[2], most[3]));
  }
  alignas(64) float rescale[kWide];
  bool moved = false;
  for (int j = 0; j < NV; ++j) {
    vf old = load(block.maximum + j * kLanes), seen = top[j] * factor;
    vm grown = seen > old + vf(kMaximumSlack);
    vf now = select(grown, seen, old);
    for (int i = 0; i < kLanes; ++i) moved |= grown.m[i] != 0;
    store(block.maximum + j * kLanes, now);
    store(rescale + j * kLanes, exp2_at_most<5>(old - now));
    minus[j] = -now;
  }
  exponentiate(s, rounded, factor, minus);
  if (moved && tile.first)
    for (int64_t d = 0; d <= p.Dv; ++d)
      for (int j = 0; j < NV * kLanes; j += kLanes) {
        float* x = block.ot + d * kWide + j;
        store(x, load(x) * load(rescale + j));
      }
  const Tiles weights{s, 64, 16 * kWide * 4, kWide * 4};
  if (tile.first) tile_columns<NV, true>(block.ot, kWide, tile.v, tiles, weights, rounded / kStep);
  else tile_columns<NV, false>(block.ot, kWide, tile.v, tiles, weights, rounded / kStep);
}

// y = O^T / sum, back in rows; lse.
void finish(const Problem& p, const ForwardBlock& block, const Heads<BFloat16>& y, float* lse) {
  BFloat16* rows[kWide];
  block.pointers(p, y, rows);
  const float* sums = block.ot + p.Dv * kWide;
  alignas(64) float inverse[kWide];
  for (int g = 0; g < kWide; g += kLanes) {
    vf sum = load(sums + g);
    store(inverse + g, select(sum == vf(0.0f), vf(0.0f), vf(1.0f) / sum));
  }
  write_turned<kWide>(rows, block.count, block.ot, p.Dv, inverse);
  if (!lse) return;
  for (int r = 0; r < block.count; ++r)
    lse[(block.b * p.Hq + block.head(p, r)) * p.Lq + block.query(p, r)] = log_sum(block.maximum[r], sums[r]);
}

void forward(const AttentionForward& a) {
  const Problem p(a);
  const Heads<const BFloat16> q(a.q), k(a.k), v(a.v);
  const Heads<BFloat16> y(a.y);
  float* lse = a.lse.defined() ? a.lse.as<float>() : nullptr;
  const int64_t depth = steps_of(p.D), tiles = tiles_of(p.Dv + 1), keys = smaller(kKeys, round_up(p.Lk, kStep));
  const int64_t q_values = depth * kStep * kWide, o_floats = tiles * 16 * kWide;
  const int64_t k_values = depth * kStep * keys, v_values = tiles * 16 * keys;

  // Few long tasks when there is work for everybody, many short ones otherwise.
  const int64_t blocks = p.blocks(kWide), heads = p.B * p.Hkv;
  int64_t group = smaller(kMaxBlocks, kBlockBytes / (q_values * 2 + o_floats * 4));
  group = smaller(group, blocks * heads / (4 * num_threads()));
  if (group < 1) group = 1;
  const int64_t groups = (blocks + group - 1) / group;
  if (groups > 0) group = (blocks + groups - 1) / groups;

  parallel_for_guided(heads * groups, [&](int64_t begin, int64_t end) {
    auto* ot = static_cast<float*>(scratch(size_t(group * (o_floats * 4 + q_values * 2)), 0));
    auto* qt = reinterpret_cast<BFloat16*>(ot + o_floats * group);
    auto* kt = static_cast<BFloat16*>(scratch(size_t(k_values + v_values) * 2, 1));
    auto* vt = kt + k_values;
    auto* s = static_cast<float*>(scratch(size_t(keys * kWide) * 4, 2));
    ForwardBlock block[kMaxBlocks];
    [[maybe_unused]] TileScope scope;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t bh = task / groups, b = bh / p.Hkv, h = bh % p.Hkv;
      int64_t nth = task % groups;
      // Causal work grows along the rows: from both ends inwards, any run of tasks has its fair share.
      if (p.causal) nth = nth % 2 ? groups - 1 - nth / 2 : nth / 2;
      const int n = int(smaller(group, blocks - nth * group));
      int64_t key_end = 0;
      for (int i = 0; i < n; ++i) {
        ForwardBlock& x = block[i];
        const BFloat16* rows[kWide];
        x.locate(p, b, h, nth * group + i);
        x.qt = qt + i * q_values, x.ot = ot + i * o_floats;
        x.pointers(p, q, rows);
        pack_b(
            x.qt, [&](int64_t r) { return rows[r]; }, x.count, kWide, p.D, p.negate);
        for (int r = 0; r < kWide; ++r) x.maximum[r] = kLowest;
        key_end = key_end > x.key_end(p) ? key_end : x.key_end(p);
      }
      for (int64_t k0 = 0; k0 < key_end; k0 += kKeys) {
        const int64_t count = smaller(kKeys, key_end - k0), steps = steps_of(count);
        const KeyTile tile{k0, count, packed_tiles(kt, depth), packed_tiles(vt, steps)};
        pack_a(
            kt, [&](int64_t i) { return k.at(b, h, k0 + i); }, count, steps * kStep, p.D);
        pack_a_turned(
            vt, [&](int64_t i) { return v.at(b, h, k0 + i); }, count, p.Dv);
        for (int64_t i = p.Dv; i < tiles * 16; ++i)
          for (int64_t step = 0; step < steps; ++step)
            store_line(vt + (i / 16 * steps + step) * kTileSize + i % 16 * kStep,
                       TileLine{} + (i == p.Dv ? 0x3f803f80u : 0u));
        for (int i = 0; i < n; ++i) {
          if (k0 >= block[i].key_end(p)) continue;
          if (block[i].count <= kLanes) attend<1>(p, block[i], tile, s);
          else attend<2>(p, block[i], tile, s);
        }
      }
      for (int i = 0; i < n; ++i) finish(p, block[i], y, lse);
    }
  });
}

bool supports(const AttentionForward& a) {
  return supports_inputs(a) && fills_tiles(a) && a.y.dtype == a.q.dtype && rows_are_dense(a.y);
}

}  // namespace

SF_KERNEL(attention_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, forward, supports)

}  // namespace SF_ISA
}  // namespace sf
