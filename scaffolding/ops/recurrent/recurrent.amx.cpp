// Recurrent layers on tiles, float32 in parts.
#include "scaffolding/ops/matmul/split_product.h"

#include "scaffolding/ops/recurrent/recurrent_steps.h"

namespace sf {
namespace SF_ISA {

template <class K> class TileStep {
 public:
  using Unit = typename K::Unit;
  TileStep(const Product<K, float>& p, const PackedShape<K>& s, const Unit* packed) : p_(p), s_(s), packed_(packed) {}

  void operator()(const float* a, int64_t rows, float* c, double beta) const {
    constexpr int64_t kPanel = K::kPanelRows;
    for (int64_t r0 = 0; r0 < rows; r0 += kPanel) {
      const int count = int(min64(rows - r0, kPanel));
      const Unit* panel = packed_panel(a + r0 * p_.k, count);
      for (int64_t i = 0; i < s_.strips; ++i) {
        const int64_t strip = turned_ ? s_.strips - 1 - i : i;
        multiply_strip(panel, count, strip, c + r0 * p_.n + strip * kTileCols<K>, beta != 0);
      }
      turned_ = !turned_;
    }
  }

  // The columns of all gates come in blocks, and the gates of one block are computed while tiles multiply the next.
  template <int64_t kGates, class F> void gated(const float* h, int64_t rows, int64_t size, const F& f) const {
    constexpr int64_t NR = kTileCols<K>, kPanel = K::kPanelRows, L = kVecLanes<K>;
    if (size % NR != 0) return gated_by_rows(*this, h, rows, p_.n, size, f);
    const int64_t blocks = size / NR;
    auto* sums = static_cast<float*>(scratch(size_t(2 * kPanel * kGates * NR) * sizeof(float), kSlotSteps));
    for (int64_t r0 = 0; r0 < rows; r0 += kPanel) {
      const int count = int(min64(rows - r0, kPanel));
      const Unit* panel = packed_panel(h + r0 * p_.k, count);
      const float* done = nullptr;  // the sums of the block before, and how much of them is used
      int64_t done_block = 0, at = 0, coming = turned_ ? blocks - 1 : 0;
      for (int64_t row = 0; row < count; ++row)
        for (int64_t half = 0; half < NR; half += L) f.fetch(r0 + row, coming * NR + half);
      auto some = [&]() __attribute__((always_inline)) {
        if (!done || at == 2 * count) return;
        const int64_t row = at / 2, half = at % 2 * L;
        ++at;
        f(r0 + row, done + row * kGates * NR + half, NR, done_block * NR + half, L);
        f.fetch(r0 + row, coming * NR + half);
      };
      for (int64_t i = 0; i < blocks; ++i) {
        const int64_t block = turned_ ? blocks - 1 - i : i;
        coming = block;
        float* const to = sums + i % 2 * kPanel * kGates * NR;
        for (int64_t g = 0; g < kGates; ++g) {
          auto run = [&](auto high) {
            for (int64_t d = 0; d < s_.blocks; ++d)
              split_panel_and<kParts, high.value, 2, false>(s_.depth(d), panel + d * s_.block_units * count, count,
                                                            packed_ + s_.offset(d, g * blocks + block), to + g * NR,
                                                            kGates * NR, d ? to + g * NR : nullptr, kGates * NR, some);
          };
          if (count > 16) run(std::integral_constant<int, 2>{});
          else run(std::integral_constant<int, 1>{});
        }
        while (done && at < 2 * count) some();
        done = to, done_block = block, at = 0;
      }
      while (at < 2 * count) some();
      turned_ = !turned_;
    }
  }

 private:
  static constexpr int kParts = int(sizeof(Unit) / 64);

  const Unit* packed_panel(const float* a, int count) const {
    auto* panel = static_cast<Unit*>(scratch(size_t(K::kPanelRows * s_.units) * sizeof(Unit), kSlotA));
    pack<typename K::Left>(panel, count, a, p_.k, 1, count, p_.k);
    watch_packing<K>(p_.rest);
    return panel;
  }
  void multiply_strip(const Unit* panel, int rows, int64_t strip, float* c, bool add) const {
    constexpr int NR = kTileCols<K>, L = kVecLanes<K>;
    const int cols = int(min64(p_.n - strip * NR, NR)), vecs = cols <= L ? 1 : kTileVecs;
    const bool straight = s_.blocks == 1 && cols == vecs * L && !add;
    alignas(64) float sums[K::kPanelRows * NR];
    const auto tile = tile_for<K, true>(rows, vecs);
    for (int64_t block = 0; block < s_.blocks; ++block)  // the weight is in L2: nothing is fetched ahead
      tile(s_.depth(block), panel + block * s_.block_units * rows, rows, 0, packed_ + s_.offset(block, strip), 0,
           straight ? c : sums, straight ? p_.n : NR, block ? sums : nullptr, NR, nullptr, 0);
    if (straight) return;
    for (int i = 0; i < rows; ++i)
      each_vector<float>(
          cols, [&](int64_t j, int n) __attribute__((always_inline)) {
            float* to = c + i * p_.n + j;
            const vf sum(load_n(sums + i * NR + j, n));
            store_n(to, add ? sum + vf(load_n(to, n)) : sum, n);
          });
  }

  const Product<K, float>& p_;
  const PackedShape<K>& s_;
  const Unit* packed_;
  // Every second time from the last strip to the first: what L2 holds of a weight that fills it is what came by last.
  mutable bool turned_ = false;
  [[no_unique_address]] typename K::Scope scope_;
};

// What leaves a rest is computed once more by multiply-adds.
static void forward(const RecurrentForward& a) {
  in_parts([&](auto arithmetic, bool* rest) {
    using K = decltype(arithmetic);
    if constexpr (std::is_same_v<K, MulF32>) forward_by<K, LyingStep>(a);
    else forward_by<K, TileStep>(a, rest);
  });
}
static void backward(const RecurrentBackward& a) {
  in_parts([&](auto arithmetic, bool* rest) {
    using K = decltype(arithmetic);
    if constexpr (std::is_same_v<K, MulF32>) backward_by<K, LyingStep>(a);
    else backward_by<K, TileStep>(a, rest);
  });
}

// As for one product (gemm.amx.cpp).
constexpr int64_t kFewestRows = 13, kSmallest = 1 << 16;

static bool fills_tiles(int64_t rows, const TensorView& weight) {
  return rows >= kFewestRows && weight.sizes[1] >= 16 && weight.sizes[0] * weight.sizes[1] >= kSmallest;
}
static bool forward_supports(const RecurrentForward& a) {
  return a.input.dtype == kFloat32 && fills_tiles(a.h0.sizes[0], a.weight);
}
static bool backward_supports(const RecurrentBackward& a) {
  return a.dinput.dtype == kFloat32 && fills_tiles(a.h0.sizes[0], a.weight);
}

SF_KERNEL(recurrent_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, forward, forward_supports)
SF_KERNEL(recurrent_backward, DeviceType::CPU, "native", SF_ISA_PRIORITY, backward, backward_supports)

}  // namespace SF_ISA
}  // namespace sf
