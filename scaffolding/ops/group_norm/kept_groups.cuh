// group_norm of channels-last pictures with one read and one write of device memory, in one launch (keep.cuh).
#pragma once
#include "scaffolding/ops/group_norm/keep.cuh"

namespace sf::cuda {

inline constexpr unsigned kMostKeepers = 512;  // threads of a block; two such blocks fit a multiprocessor

// Dynamic shared memory: vectors[slots][rows][columns], the table of the rows' moments, moments of the block's groups
// by slices, rstd of the groups, and of each channel mean, scale and offset.
template <class T, bool kSilu>
__global__ void __launch_bounds__(kMostKeepers, 2) kept_groups(Channels<T> c, Keep k, PreviousGrid previous) {
  using A = real_t<T>;
  constexpr int V = lanes_for<T>();
  const KeptPart<T> p(c, k);
  const Held<T, V>* kept = p.kept(dynamic_shared());
  const ChannelTable<A, V> table(reinterpret_cast<A*>(dynamic_shared() + k.kept_bytes()));
  A *partial = table.at + p.vectors * table.kPitch, *rstd = partial + 3 * k.slices * k.groups, *mean = rstd + k.groups,
    *scale = mean + p.channels, *offset = scale + p.channels;
  previous.wait();
  {
    const auto [x, between] = c.column(p.n, p.channel());
#pragma unroll
    for (int i = 0; i < p.kParts; ++i) p.fetch(x, between, dynamic_shared(), i), commit_copies();
  }
  for (int i = int(threadIdx.x); i < p.channels; i += int(k.threads))
    scale[i] = c.weight_of(p.channel0 + i), offset[i] = c.bias_of(p.channel0 + i);

  A shift[V] = {}, sum[V] = {}, squares[V] = {};
  p.for_parts([&](int part) {
    if (part == 0 && p.mine > 0) Held<T, V>(kept[0]).widen_to(shift);
#pragma unroll 2
    for (int s = part * p.part; s < p.end_of(part); ++s) {
      A x[V];
      Held<T, V>(kept[s * p.vectors]).widen_to(x);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const A d = x[i] - shift[i];
        sum[i] += d;
        squares[i] += d * d;
      }
    }
  });
  if (p.t.works()) table.put_moments(int(threadIdx.x), shift, sum, squares, A(p.mine));
  __syncthreads();

  const int warp = int(threadIdx.x) / kWarp, warps = int(k.threads) / kWarp, lane = int(threadIdx.x) % kWarp;
  for (int job = warp; job < k.groups * k.slices; job += warps) {
    const int slice = job / k.groups, g = job - slice * k.groups;
    const Moments<A> m = table.moments(RowCounts(p.pixels, p.t.step), k.columns, g * c.width, c.width,
                                       slice * p.t.step / k.slices, (slice + 1) * p.t.step / k.slices);
    if (lane == 0) partial[3 * job] = m.count, partial[3 * job + 1] = m.mean, partial[3 * job + 2] = m.squares;
  }
  __syncthreads();
  if (k.cluster > 1) {  // one warp vouches for the writes of the block
    if (threadIdx.x < kWarp) arrive_at_cluster();
    else arrive_without_writes();
    wait_for_cluster();
  }
  for (int g = warp; g < k.groups; g += warps) {
    Moments<A> m;
    for (int i = lane; i < k.slices * int(k.cluster); i += kWarp) {
      const A* at = partial + 3 * (i / int(k.cluster) * k.groups + g);
      const unsigned block = unsigned(i) % k.cluster;
      join(m, {read_of_cluster(at, block), read_of_cluster(at + 1, block), read_of_cluster(at + 2, block)});
    }
    m = warp_moments(m);
    const A of_group = A(1) / ::sqrt(m.squares / A(c.group_size()) + c.eps);
    if (lane == 0) rstd[g] = of_group;
    for (int i = g * c.width + lane; i < (g + 1) * c.width; i += kWarp) mean[i] = m.mean, scale[i] *= of_group;
  }
  // No block ends before all have read its moments.
  if (k.cluster > 1) arrive_without_writes();
  __syncthreads();
  for (int g = int(threadIdx.x); p.rank == 0 && g < k.groups; g += int(k.threads)) {
    const int group = p.n * c.groups + p.channel0 / c.width + g;
    c.mean[group] = mean[g * c.width], c.rstd[group] = rstd[g];
  }

  if (c.out && p.mine > 0) {
    A of_mean[V], of_scale[V], of_offset[V];
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const int at = p.t.column * V + i;
      of_mean[i] = mean[at], of_scale[i] = scale[at], of_offset[i] = offset[at];
    }
    T* out = c.out + (p.n * c.space + p.first) * c.channels + p.channel();
#pragma unroll 2
    for (int s = 0; s < p.mine; ++s, out += int64_t(p.t.step) * c.channels) {
      A x[V];
      Held<T, V>(kept[s * p.vectors]).widen_to(x);
#pragma unroll
      for (int i = 0; i < V; ++i) x[i] = normalised<T, kSilu>(x[i], of_mean[i], of_scale[i], of_offset[i]);
      write_lanes<V>(out, x);
    }
  }
  if (k.cluster > 1) wait_for_cluster();
}

// Whether it did.
template <class T> bool keep_groups(const Channels<T>& c, Device device) {
  Keep k;
  if (!plan_keep(c, device, {kMostKeepers, 1, 3, 1, 3}, k)) return false;
  const Blocks blocks = k.blocks(c);
  if (c.silu) launch("group_norm", device, blocks, kept_groups<T, true>, c, k);
  else launch("group_norm", device, blocks, kept_groups<T, false>, c, k);
  return true;
}

}  // namespace sf::cuda
