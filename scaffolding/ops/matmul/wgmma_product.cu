#include "scaffolding/ops/matmul/wgmma_product.cuh"

#include <algorithm>
#include <cmath>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/ops/matmul/wgmma_product.h"

namespace sf::cuda {
namespace {

// 160 and 80 divide the widths of Stable Diffusion's layers, 128 and 256 everything else's.
// Half of 80 is no multiple of 16: not where there is a gate.
constexpr WarpgroupTile kTiles[] = {{128, 256}, {128, 160}, {64, 160}, {128, 128}, {128, 80}, {64, 80}};

int64_t tiles_of(int64_t n, int64_t tile) { return (n + tile - 1) / tile; }

bool aligned(const void* p, uintptr_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }
bool readable(const TensorView& bias) { return !bias.defined() || aligned(bias.data, 2 * size_of(bias.dtype)); }

template <class Q, class T, int kGroups, int kSums, Activation act>
void launch_tiles(const char* op, const WgmmaProduct& p, int cluster) {
  using Shape = WgmmaShape<kGroups, kSums>;
  constexpr bool kGated = act != Activation::None;
  constexpr int kColumns = kGated ? kSums / 2 : kSums;
  const int part = kColumns / cluster;
  const TensorMap a = tensor_map(op, p.a, p.operands, p.m, p.k, p.a_row, Shape::kRows),
                  b = tensor_map(op, p.b, p.operands, p.n, p.k, p.b_row, part),
                  gate = kGated ? tensor_map(op, p.gate, p.operands, p.n, p.k, p.gate_row, part) : b;
  WgmmaCall g{};
  g.m = int(p.m), g.n = int(p.n), g.steps = int(tiles_of(p.k, Shape::kRowBytes / int(sizeof(Q))));
  g.cluster = cluster, g.tiles_m = int(tiles_of(p.m, Shape::kRows * cluster)), g.tiles_n = int(tiles_of(p.n, kColumns));
  g.alpha = p.alpha, g.beta = p.beta;
  g.bias = p.bias.defined() ? p.bias.data : nullptr, g.gate_bias = p.gate_bias.defined() ? p.gate_bias.data : nullptr;
  g.wide_bias = g.bias && p.bias.dtype == kFloat32;
  if (p.row_scale.defined()) {
    g.row_scale = p.row_scale.as<const float>(), g.scaled_rows = p.row_scale.numel() > 1;
    g.column_scale = p.column_scale.as<const float>(), g.scaled_columns = p.column_scale.numel() > 1;
  }
  g.addend = p.addend, g.addend_row = p.addend_row, g.c = p.c, g.c_row = p.c_row;
  const int clusters = std::min(g.tiles_m * g.tiles_n, properties(p.device.index).multiprocessors / cluster);
  launch(op, p.device, Blocks{unsigned(clusters * cluster), Shape::kThreads, Shape::kShared, unsigned(cluster)},
         wgmma_product<Q, T, kGroups, kSums, act>, a, b, gate, g);
}

WarpgroupTile tile_of(const WgmmaProduct& p) {
  auto possible = [&](const WarpgroupTile& tile) { return !p.gate || tile.columns % 32 == 0; };
  if (const WarpgroupTile given = warpgroup_tile(); given.rows > 0 && possible(given)) return given;
  const int processors = properties(p.device.index).multiprocessors;
  WarpgroupTile best;
  double least = INFINITY;
  for (WarpgroupTile tile : kTiles)
    for (tile.cluster = 1; tile.cluster <= 2; ++tile.cluster) {
      const double cycles = wgmma_cycles(tile, p, processors);
      if (possible(tile) && cycles < least) best = tile, least = cycles;
    }
  return best;
}

template <class Q, class T, Activation act> void launch_shape(const char* op, const WgmmaProduct& p) {
  const auto [rows, columns, cluster] = tile_of(p);
  if constexpr (act == Activation::None) {
    if (columns == 80 && rows == 64) return launch_tiles<Q, T, 1, 80, act>(op, p, cluster);
    if (columns == 80) return launch_tiles<Q, T, 2, 80, act>(op, p, cluster);
  }
  if (rows == 64) return launch_tiles<Q, T, 1, 160, act>(op, p, cluster);
  switch (columns) {
    case 128: return launch_tiles<Q, T, 2, 128, act>(op, p, cluster);
    case 160: return launch_tiles<Q, T, 2, 160, act>(op, p, cluster);
    default: return launch_tiles<Q, T, 2, 256, act>(op, p, cluster);
  }
}

template <class T> void launch_activation(const char* op, const WgmmaProduct& p) {
  if (p.operands == kFloat8E4M3) return launch_shape<Float8E4M3, T, Activation::None>(op, p);
  switch (p.act) {
    case Activation::GeluErf: return launch_shape<T, T, Activation::GeluErf>(op, p);
    case Activation::GeluTanh: return launch_shape<T, T, Activation::GeluTanh>(op, p);
    case Activation::Silu: return launch_shape<T, T, Activation::Silu>(op, p);
    default: return launch_shape<T, T, Activation::None>(op, p);
  }
}

}  // namespace

// Of 128 bytes along k a multiprocessor makes 32 sums a cycle: 2048 products of 16-bit numbers, or 4096 of 8 bits.
// While all of them read, each gets some 48 bytes a cycle from the second-level cache; what blocks of a cluster share
// they get together. What comes before the first product and behind the last costs 1500 cycles, of which the copies of
// a block's next tile hide all but the writing.
double wgmma_cycles(const WarpgroupTile& tile, const WgmmaProduct& p, int multiprocessors) {
  const int columns = p.gate ? tile.columns / 2 : tile.columns;
  const double tiles = double(tiles_of(p.m, tile.rows * tile.cluster) * tiles_of(p.n, columns)),
               steps = double(tiles_of(p.k * int64_t(size_of(p.operands)), 128)),
               step = std::max(tile.rows * tile.columns / 32.,
                               (tile.rows + tile.columns / double(tile.cluster)) * 128 / 48.),
               finishing = 9. * tile.columns;
  return std::ceil(tiles / (multiprocessors / tile.cluster)) * (step * steps + finishing) + 1500;
}

bool WgmmaProduct::fits() const {
  const DeviceProperties& gpu = properties(device.index);
  const bool scaled = operands == kFloat8E4M3;
  if (gpu.major != 9 || gpu.minor != 0 || !is_reduced(dtype) || (operands != dtype && !scaled)) return false;
  if (m < 1 || n < 1 || k < 1 || m > INT32_MAX || n > INT32_MAX || k > INT32_MAX) return false;
  if (tiles_of(m, 64) * tiles_of(n, 40) > INT32_MAX) return false;
  for (int64_t size : {n, c_row, addend_row})
    if (size % 8 != 0) return false;
  for (int64_t size : {a_row, b_row, gate_row})
    if (size * int64_t(size_of(operands)) % 16 != 0) return false;
  for (const void* p : {a, b, gate, addend, static_cast<const void*>(c)})
    if (!aligned(p, 16)) return false;
  for (const TensorView* x : {&bias, &gate_bias})
    if (x->defined() && ((x->dtype != dtype && x->dtype != kFloat32) || !readable(*x))) return false;
  if (scaled) {
    auto scales = [](const TensorView& x, int64_t size) {
      return x.defined() && x.dtype == kFloat32 && (x.numel() == 1 || x.numel() == size);
    };
    if (gate || !scales(row_scale, m) || !scales(column_scale, n)) return false;
  }
  if (!gate) return act == Activation::None;
  if (bias.defined() != gate_bias.defined() || (bias.defined() && bias.dtype != gate_bias.dtype)) return false;
  return act == Activation::GeluErf || act == Activation::GeluTanh || act == Activation::Silu;
}

void WgmmaProduct::run(const char* op) const {
  if (dtype == kBFloat16) launch_activation<BFloat16>(op, *this);
  else launch_activation<Half>(op, *this);
}

}  // namespace sf::cuda
