// group_norm of channels-last pictures in one launch, for groups that a block, or a cluster of blocks, holds in its
// registers. Such a call takes a few microseconds, in which each multiprocessor also loads the instructions: everything
// is asked for at once, few waits follow, and the code is short.
#pragma once

#include "scaffolding/ops/group_norm/keep.cuh"

namespace sf::cuda {

inline constexpr int kMostHolders = 640, kMostHeld = 8;  // threads of a block; vectors of a thread

// A cluster has a chunk of channels of one picture, whole groups of them, and each of its blocks a run of pixels.
// A thread has the vectors of one column (V neighbouring channels) of every `rows`th pixel of the run.
struct Hold {
  Divider columns, chunks, width, groups;  // vectors of channels in a chunk; groups of a chunk
  int32_t pixels = 0, rows = 0;            // of a block
  int32_t slices = 1, of_slice = 0;        // runs of rows that warps add up by themselves; rows of one
  uint32_t log_cluster = 0;
  int held = 0;  // vectors of a thread
  unsigned threads = 0;

  __host__ __device__ unsigned cluster() const { return 1u << log_cluster; }
  // Of shared memory: two of each thread and channel; of the slices and of the groups.
  size_t numbers(int lanes) const { return 2 * (threads + columns.d * lanes) + 2 * kWarp + 4 * groups.d; }
};

template <class T, bool kSilu, int K>
__global__ void __launch_bounds__(kMostHolders, 1) held_groups(Channels<T> c, Hold k, PreviousGrid previous) {
  using A = real_t<T>;
  constexpr int V = lanes_for<T>();
  const unsigned cluster = k.cluster(), rank = blockIdx.x & (cluster - 1), of = blockIdx.x >> k.log_cluster;
  const int n = int(k.chunks.quotient(of)), columns = int(k.columns.d), channels = columns * V,
            channel0 = (int(of) - n * int(k.chunks.d)) * channels;
  const int row = int(k.columns.quotient(threadIdx.x)), column = int(threadIdx.x) - row * columns;
  const int64_t begin = int64_t(rank) * k.pixels;
  const int pixels = int(lesser(c.space - begin, k.pixels)), mine = row < k.rows ? pixels - row : 0;
  previous.wait();
  Held<T, V> held[K];
  {
    const auto [x, between] = c.column(n, channel0 + column * V);
    const T* from = x + (begin + row) * between;
    const int64_t stride = int64_t(k.rows) * between;
#pragma unroll
    for (int i = 0; i < K; ++i) {
      held[i] = {};
      if (i * k.rows < mine) held[i] = *reinterpret_cast<const Held<T, V>*>(from + i * stride);
    }
  }
  // of_slice[2][slice][group]: sums, and those of squared distances from the block's mean; of_block: what the cluster's
  // other blocks read, mean and squares of each group; of_group: mean and 1 / standard deviation.
  const int groups = int(k.groups.d), width = int(k.width.d);
  A *of_thread = reinterpret_cast<A*>(dynamic_shared()), *scale = of_thread + 2 * blockDim.x,
    *offset = scale + channels, *of_slice = offset + channels, *of_block = of_slice + 2 * kWarp,
    *of_group = of_block + 2 * groups;
  for (int i = int(threadIdx.x); i < channels; i += int(blockDim.x))
    scale[i] = c.weight_of(channel0 + i), offset[i] = c.bias_of(channel0 + i);

  // A vector's first `edge` channels are of group `low`, the others of the next.
  const int low = int(k.width.quotient(unsigned(column * V))), edge = (low + 1) * width - column * V,
            high = edge < V ? low + 1 : low;
  // What this warp adds up: rows of a slice in the columns that have a part of one group.
  const int warp = int(threadIdx.x) / kWarp, lane = int(threadIdx.x) % kWarp;
  const int slice = int(k.groups.quotient(unsigned(warp))), group = warp - slice * groups, first = group * width / V,
            across = ((group + 1) * width - 1) / V - first + 1, down = kWarp / across, at = lane / across,
            from_column = lane - at * across,
            slice_end = (slice + 1) * k.of_slice < k.rows ? (slice + 1) * k.of_slice : k.rows;
  const bool second = from_column == 0 && group * width % V != 0;  // the group begins within this column
  auto total = [](A x) { return warp_all(x, [](A a, A b) { return a + b; }); };
  // Of what each thread has of every channel, the sums of the slices.
  auto add_up = [&](const A(&of_channel)[V], A* out) {
    A below = 0, above = 0;
#pragma unroll
    for (int i = 0; i < V; ++i) below += i < edge ? of_channel[i] : A(0), above += i < edge ? A(0) : of_channel[i];
    *reinterpret_cast<Vec<A, 2>*>(of_thread + 2 * threadIdx.x) = {below, above};
    __syncthreads();
    if (slice < k.slices) {
      A sum = 0;
#pragma unroll 1
      for (int r = at < down ? slice * k.of_slice + at : slice_end; r < slice_end; r += down)
        sum += of_thread[2 * (r * columns + first + from_column) + second];
      sum = total(sum);
      if (lane == 0) out[warp] = sum;
    }
    __syncthreads();
  };

  A sums[V] = {}, mean[V];
#pragma unroll
  for (int i = 0; i < K; ++i) {
    A x[V];
    held[i].widen_to(x);
#pragma unroll
    for (int j = 0; j < V; ++j) sums[j] += x[j];
  }
  add_up(sums, of_slice);
  A of_low = 0, of_high = 0;
  const A each = ratio(A(1), A(pixels * width));
#pragma unroll 4
  for (int s = 0; s < k.slices; ++s) of_low += of_slice[s * groups + low], of_high += of_slice[s * groups + high];
#pragma unroll
  for (int i = 0; i < V; ++i) mean[i] = (i < edge ? of_low : of_high) * each, sums[i] = 0;
#pragma unroll
  for (int i = 0; i < K; ++i) {
    A x[V];
    held[i].widen_to(x);
    if (i * k.rows < mine) {
#pragma unroll
      for (int j = 0; j < V; ++j) sums[j] += (x[j] - mean[j]) * (x[j] - mean[j]);
    }
  }
  add_up(sums, of_slice + kWarp);

  // A warp for each group. The blocks' means and squares are joined as lanes of the warp.
  A block_mean = 0, squares = 0;
  if (warp < groups) {
    const bool has = lane < k.slices;
    block_mean = total(has ? of_slice[lane * groups + warp] : A(0)) * each;
    squares = total(has ? of_slice[kWarp + lane * groups + warp] : A(0));
    if (lane == 0) of_block[2 * warp] = block_mean, of_block[2 * warp + 1] = squares;
  }
  if (cluster > 1) {
    if (warp < groups) arrive_at_cluster();
    else arrive_without_writes();
    wait_for_cluster();
  }
  if (warp < groups) {
    if (cluster > 1) {
      A part = 0;
      block_mean = squares = 0;
      if (lane < int(cluster)) {
        part = A(lesser(c.space - int64_t(lane) * k.pixels, k.pixels)) * ratio(A(1), A(c.space));
        block_mean = read_of_cluster(of_block + 2 * warp, unsigned(lane));
        squares = read_of_cluster(of_block + 2 * warp + 1, unsigned(lane));
      }
      const A near = __shfl_sync(~0u, block_mean, 0), apart = block_mean - near, shift = total(part * apart);
      squares = total(squares + part * A(c.group_size()) * (apart - shift) * (apart - shift));
      block_mean = near + shift;
    }
    const A rstd = inverse_root(squares * ratio(A(1), A(c.group_size())) + c.eps);
    if (lane == 0) {
      of_group[2 * warp] = block_mean, of_group[2 * warp + 1] = rstd;
      if (rank == 0) {
        const int to = n * c.groups + channel0 / width + warp;
        c.mean[to] = block_mean, c.rstd[to] = rstd;
      }
    }
  }
  // No block ends before all have read its moments.
  if (cluster > 1) arrive_without_writes();
  __syncthreads();

  if (c.out) {
    T* out = c.out + (n * c.space + begin + row) * c.channels + channel0 + column * V;
    const int64_t stride = int64_t(k.rows) * c.channels;
    A of_scale[V], of_offset[V];
    read_lanes<V>(scale + column * V, of_scale);
    read_lanes<V>(offset + column * V, of_offset);
    const Vec<A, 2> below = *reinterpret_cast<const Vec<A, 2>*>(of_group + 2 * low),
                    above = *reinterpret_cast<const Vec<A, 2>*>(of_group + 2 * high);
#pragma unroll
    for (int i = 0; i < V; ++i)
      mean[i] = (i < edge ? below : above).v[0], of_scale[i] *= (i < edge ? below : above).v[1];
#pragma unroll
    for (int i = 0; i < K; ++i) {
      A x[V];
      held[i].widen_to(x);
#pragma unroll
      for (int j = 0; j < V; ++j) x[j] = normalised<T, kSilu>(x[j], mean[j], of_scale[j], of_offset[j]);
      if (i * k.rows < mine) *reinterpret_cast<Held<T, V>*>(out + i * stride) = hold<T>(x);
    }
  }
  if (cluster > 1) wait_for_cluster();
}

// The chunk, cluster and vectors of a thread that take least time, about; false where the groups are too large, or
// where three passes over device memory would be faster. Times are in ns; 25 bytes in a ns of a multiprocessor.
template <class T> bool plan_hold(const Channels<T>& c, Device device, Hold& best) {
  constexpr int V = lanes_for<T>();
  constexpr double kBytes = 25, kLaunch = 2500, kTurn = 1500, kBarrier = 1200;  // kTurn: a block's waits
  if (c.width < V) return false;
  const DeviceProperties& gpu = properties(device.index);
  const int64_t unit = std::lcm(int64_t(c.width), int64_t(V)), units = c.channels / unit;
  const double bytes = double(c.batch * c.channels * c.space) * sizeof(T) / gpu.multiprocessors;
  double least = 3 * bytes / kBytes + 2 * kLaunch;
  bool found = false;
  for (int64_t of_chunk = 1; of_chunk <= 4 && of_chunk <= units; ++of_chunk) {
    const int64_t columns = of_chunk * unit / V, groups = of_chunk * unit / c.width, chunks = units / of_chunk;
    if (units % of_chunk != 0 || columns > 64 || groups > 8) continue;
    const int64_t of_pixel = columns * 16;  // bytes
    const double waste = double(of_pixel % 64 == 0 ? 0 : of_pixel % 32 == 0 ? 8 : 16) / double(of_pixel);
    for (uint32_t log_cluster = 0; log_cluster <= (gpu.major >= 9 ? 3u : 0u); ++log_cluster) {
      const int64_t cluster = int64_t(1) << log_cluster, pixels = (c.space + cluster - 1) / cluster;
      if ((cluster - 1) * pixels >= c.space) continue;
      for (int held : {2, 4, kMostHeld}) {
        const int64_t rows = (pixels + held - 1) / held, threads = (rows * columns + kWarp - 1) / kWarp * kWarp;
        if (threads > kMostHolders || threads < groups * kWarp) continue;
        const int64_t abreast = std::max(int64_t(1), std::min(int64_t(2048), int64_t(65536 / 88)) / threads) *
                                clusters_at_once(device, unsigned(cluster)) * cluster,
                      blocks = c.batch * chunks * cluster, turns = (blocks - 1) / abreast + 1,
                      on_one = (blocks - 1) / gpu.multiprocessors + 1;
        const double time = double(turns) * kTurn + 2 * double(on_one * pixels * of_pixel) * (1 + waste) / kBytes +
                            held * 150 + (cluster > 1 ? kBarrier : 0);
        if (time >= least) continue;
        least = time, found = true;
        best.columns = Divider(uint32_t(columns)), best.chunks = Divider(uint32_t(chunks));
        best.width = Divider(uint32_t(c.width)), best.groups = Divider(uint32_t(groups));
        best.pixels = int32_t(pixels), best.rows = int32_t(rows), best.log_cluster = log_cluster;
        best.held = held, best.threads = unsigned(threads), best.slices = 1;
        while ((best.slices + 1) * groups <= threads / kWarp && best.slices < rows && best.slices < 8) ++best.slices;
        best.of_slice = int32_t((rows + best.slices - 1) / best.slices);
      }
    }
  }
  return found;
}

// Whether it did.
template <class T> bool hold_groups(const Channels<T>& c, Device device) {
  if constexpr (sizeof(T) == 8) {
    return false;  // rare
  } else {
    Hold k;
    if (!plan_hold(c, device, k)) return false;
    const Blocks blocks{unsigned(c.batch) * k.chunks.d * k.cluster(), k.threads,
                        k.numbers(lanes_for<T>()) * sizeof(real_t<T>), k.cluster()};
    auto run = [&](auto held) {
      if (c.silu) launch("group_norm", device, blocks, held_groups<T, true, held()>, c, k);
      else launch("group_norm", device, blocks, held_groups<T, false, held()>, c, k);
    };
    if (k.held == 2) run(std::integral_constant<int, 2>());
    else if (k.held == 4) run(std::integral_constant<int, 4>());
    else run(std::integral_constant<int, kMostHeld>());
    return true;
  }
}

}  // namespace sf::cuda
