// The gradients of group_norm of channels-last pictures with one read of x and dy, in one launch (keep.cuh).
#pragma once
#include "scaffolding/ops/group_norm/keep.cuh"

namespace sf::cuda {

// Of one channel of one picture: sums of dz and of dz * hat,
// where hat is the normalised element and dz the gradient of weight * hat + bias.
template <class A> struct ChannelSums { A dz, dz_hat; };

// dz of an element at `distance` from its group's mean.
template <class T, bool kSilu>
__device__ inline real_t<T> dz_of(real_t<T> distance, real_t<T> dy, real_t<T> scale, real_t<T> offset) {
  if constexpr (!kSilu) return dy;
  const real_t<T> z = distance * scale + offset, s = sigmoid_of<T>(z);
  return dy * s * (real_t<T>(1) + z * (real_t<T>(1) - s));
}

// Dynamic shared memory: vectors[x, dy][slots][rows][columns], where dz, rounded as x is, takes dy's place; the table
// of the rows' sums, of each channel its sums in this block and in all blocks, then mean, scale, offset, base and
// slope:
// dx = scale dz - base - (x - mean) slope; z = (x - mean) scale + offset.
template <class T, bool kSilu>
__global__ void __launch_bounds__(kThreads, 2)
    kept_gradients(Channels<T> c, Keep k, ChannelSums<real_t<T>>* of_channel, PreviousGrid previous) {
  using A = real_t<T>;
  constexpr int V = lanes_for<T>();
  const KeptPart<T> p(c, k);
  unsigned char* dys = dynamic_shared() + k.kept_bytes();
  Held<T, V>*kept = p.kept(dynamic_shared()), *kept_dy = p.kept(dys);
  const ChannelTable<A, V> table(reinterpret_cast<A*>(dys + k.kept_bytes()));
  A *partial = table.at + p.vectors * table.kPitch, *total = partial + 2 * p.channels, *mean = total + 2 * p.channels,
    *scale = mean + p.channels, *offset = scale + p.channels, *base = offset + p.channels, *slope = base + p.channels;
  previous.wait();
#pragma unroll
  for (int i = 0; i < p.kParts; ++i) {
    const int64_t of_picture = p.n * c.space * c.channels + p.channel();
    p.fetch(c.x + of_picture, c.channels, dynamic_shared(), i);
    p.fetch(c.dy + of_picture, c.channels, dys, i);
    commit_copies();
  }
  const int group0 = p.n * c.groups + p.channel0 / c.width;
  for (int i = int(threadIdx.x); i < p.channels; i += int(k.threads)) {
    const int group = group0 + i / c.width;
    mean[i] = c.mean[group], scale[i] = c.rstd[group] * c.weight_of(p.channel0 + i);
    offset[i] = c.bias_of(p.channel0 + i);
  }
  __syncthreads();

  A of_mean[V], of_scale[V], of_offset[V];
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const int at = p.t.column * V + i;
    of_mean[i] = mean[at], of_scale[i] = scale[at], of_offset[i] = offset[at];
  }
  A sums[2 * V] = {};  // of dz, and of dz (x - mean)
  p.for_parts([&](int part) {
    for (int s = part * p.part; s < p.end_of(part); ++s) {
      A x[V], dz[V];
      Held<T, V>(kept[s * p.vectors]).widen_to(x);
      Held<T, V>(kept_dy[s * p.vectors]).widen_to(dz);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const A distance = x[i] - of_mean[i];
        dz[i] = dz_of<T, kSilu>(distance, dz[i], of_scale[i], of_offset[i]);
        sums[2 * i] += dz[i];
        sums[2 * i + 1] += dz[i] * distance;
      }
      if constexpr (kSilu) kept_dy[s * p.vectors] = hold<T>(dz);  // it is not computed twice
    }
  });
  if (p.t.works()) table.put(int(threadIdx.x), sums);
  __syncthreads();
  table.sums(p.t.step, k.columns, p.channels, [&](int i, A dz, A dz_distance) {
    partial[2 * i] = dz, partial[2 * i + 1] = dz_distance * c.rstd[group0 + i / c.width];
  });
  __syncthreads();
  if (k.cluster > 1) {  // one warp vouches for the writes of the block
    if (threadIdx.x < kWarp) arrive_at_cluster();
    else arrive_without_writes();
    wait_for_cluster();
  }
  for (int i = int(threadIdx.x); i < p.channels; i += int(k.threads)) {
    A dz = 0, dz_hat = 0;
#pragma unroll 1
    for (unsigned block = 0; block < k.cluster; ++block)
      dz += read_of_cluster(partial + 2 * i, block), dz_hat += read_of_cluster(partial + 2 * i + 1, block);
    total[2 * i] = dz, total[2 * i + 1] = dz_hat;
  }
  // No block ends before all have read its sums.
  if (k.cluster > 1) arrive_without_writes();
  __syncthreads();
  for (int i = int(threadIdx.x); p.rank == 0 && i < p.channels; i += int(k.threads))
    of_channel[int64_t(p.n) * c.channels + p.channel0 + i] = {total[2 * i], total[2 * i + 1]};
  const int lane = int(threadIdx.x) % kWarp;
  for (int g = int(threadIdx.x) / kWarp; g < k.groups; g += int(k.threads) / kWarp) {
    A dz = 0, dz_hat = 0;  // times weight and rstd
    for (int i = g * c.width + lane; i < (g + 1) * c.width; i += kWarp)
      dz += scale[i] * total[2 * i], dz_hat += scale[i] * total[2 * i + 1];
    dz = warp_all(dz, [](A a, A b) { return a + b; });
    dz_hat = warp_all(dz_hat, [](A a, A b) { return a + b; });
    const A each = A(1) / A(c.group_size()), rstd = c.rstd[group0 + g];
    for (int i = g * c.width + lane; i < (g + 1) * c.width; i += kWarp)
      base[i] = dz * each, slope[i] = dz_hat * each * rstd;
  }
  __syncthreads();

  if (p.mine > 0) {
    A of_base[V], of_slope[V];
#pragma unroll
    for (int i = 0; i < V; ++i) of_base[i] = base[p.t.column * V + i], of_slope[i] = slope[p.t.column * V + i];
    T* out = c.out + (p.n * c.space + p.first) * c.channels + p.channel();
#pragma unroll 2
    for (int s = 0; s < p.mine; ++s, out += int64_t(p.t.step) * c.channels) {
      A x[V], dz[V];
      Held<T, V>(kept[s * p.vectors]).widen_to(x);
      Held<T, V>(kept_dy[s * p.vectors]).widen_to(dz);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const A distance = x[i] - of_mean[i];
        x[i] = of_scale[i] * dz[i] - of_base[i] - distance * of_slope[i];
      }
      write_lanes<V>(out, x);
    }
  }
  if (k.cluster > 1) wait_for_cluster();
}

// Whether it did.
template <class T> bool keep_gradients(const Channels<T>& c, Device device, ChannelSums<real_t<T>>* of_channel) {
  Keep k;
  if (!plan_keep(c, device, {kThreads, 2, 9, 0, 0}, k)) return false;
  const Blocks blocks = k.blocks(c);
  if (c.silu) launch("group_norm_backward", device, blocks, kept_gradients<T, true>, c, k, of_channel);
  else launch("group_norm_backward", device, blocks, kept_gradients<T, false>, c, k, of_channel);
  return true;
}

}  // namespace sf::cuda
