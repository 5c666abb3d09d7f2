// Attention by warpgroups: 16-bit floats on compute capability 9.0, heads of a multiple of 8 up to 256, any mask,
// grouped queries.
#include <algorithm>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cuda/timed_choice.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/ops/attention/attention_wgmma.cuh"

namespace sf::cuda {
namespace {

template <class T, int W, bool masked> void launch_tiles(const AttentionForward& a) {
  using Tile = WarpgroupAttention<W, masked>;
  const TensorMap q = heads_map("attention", a.q, Tile::kQueries), k = heads_map("attention", a.k, Tile::kKeys),
                  v = heads_map("attention", a.v, Tile::kKeys);
  AttentionCall<T> f;
  f.shape = AttentionShape(a), f.y = Heads<T>(a.y), f.lse = a.lse.defined() ? a.lse.as<float>() : nullptr;
  f.tiles = (f.shape.Lq + Tile::kQueries - 1) / Tile::kQueries;
  f.all = int(a.q.sizes[0] * a.q.sizes[1] * f.tiles);
  const int blocks = std::min(f.all, properties(a.q.device.index).multiprocessors);
  launch("attention", a.q.device, Blocks{unsigned(blocks), Tile::kThreads, Tile::kShared},
         attention_wgmma<T, W, masked>, q, k, v, f);
}
template <class T, int W> void launch_width(const AttentionForward& a) {
  if (a.mask.defined()) launch_tiles<T, W, true>(a);
  else launch_tiles<T, W, false>(a);
}

template <class T> void launch_type(const AttentionForward& a) {
  const int64_t width = std::max(a.q.sizes[3], a.v.sizes[3]);
  if (width <= 48) launch_width<T, 48>(a);
  else if (width <= 64) launch_width<T, 64>(a);
  else if (width <= 80) launch_width<T, 80>(a);
  else if (width <= 128) launch_width<T, 128>(a);
  else if (width <= 160) launch_width<T, 160>(a);
  else launch_width<T, 256>(a);
}

void forward(const AttentionForward& a) {
  if (a.q.dtype == kBFloat16) launch_type<BFloat16>(a);
  else launch_type<Half>(a);
}

// [batch, heads, rows, width] as heads_map and 8-byte writes want it.
bool is_read_in_boxes(const TensorView& x) {
  bool fits =
      x.numel() > 0 && x.sizes[3] % 8 == 0 && x.sizes[3] <= 256 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
  for (int d = 0; d < 3; ++d) fits = fits && (x.sizes[d] == 1 || (x.strides[d] > 0 && x.strides[d] % 8 == 0));
  return fits;
}
bool fits(const AttentionForward& a) {
  const DeviceProperties& gpu = properties(a.q.device.index);
  if (gpu.major != 9 || gpu.minor != 0 || !is_reduced(a.q.dtype) || !attention_supported(a)) return false;
  for (const TensorView* x : {&a.q, &a.k, &a.v, &a.y})
    if (!is_read_in_boxes(*x)) return false;
  return a.q.sizes[0] * a.q.sizes[1] * (a.q.sizes[2] / 64 + 1) <= INT32_MAX;
}

void run_by_others(const AttentionForward& a) {
  for (int i = 0; i < attention_forward.count(DeviceType::CUDA); ++i) {
    const KernelEntry& e = attention_forward.entry(DeviceType::CUDA, i);
    using Table = decltype(attention_forward);
    if (e.fn == reinterpret_cast<void (*)()>(&forward)) continue;
    if (!e.supports || reinterpret_cast<Table::Supports>(e.supports)(a)) return reinterpret_cast<Table::Fn>(e.fn)(a);
  }
}

bool supports(const AttentionForward& a) {
  const WarpgroupProducts where = warpgroup_products();
  if (where == WarpgroupProducts::Off || !fits(a)) return false;
  if (where == WarpgroupProducts::On) return true;
  CallKind kind{2, int64_t(a.q.dtype), a.is_causal, a.mask.defined() ? 1 + int64_t(a.mask.dtype) : 0, a.lse.defined()};
  size_t at = 5;
  for (const TensorView* x : {&a.q, &a.k, &a.v})
    for (int d = 0; d < 4; ++d) kind[at++] = x->sizes[d];
  for (const TensorView* x : {&a.q, &a.k, &a.v, &a.y})
    for (int d = 0; d < 3; ++d) kind[at++] = x->strides[d];
  return is_faster({"attention", a.q.device, kind, [] { return std::string("attention by warpgroups"); },
                    [&] { forward(a); }, [&] { run_by_others(a); }});
}

SF_KERNEL(attention_forward, DeviceType::CUDA, "wgmma", 20, forward, supports)

}  // namespace
}  // namespace sf::cuda
