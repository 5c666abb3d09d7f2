// How channels-last pictures are read once: a cluster of blocks has a chunk of channels, whole groups of them, of one
// picture; each block has a run of its pixels, which it keeps in shared memory. What the blocks know of their pixels
// they read from each other there.
#pragma once
#include <atomic>
#include <numeric>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cuda/cluster.cuh"
#include "scaffolding/backend/cuda/mma.cuh"
#include "scaffolding/ops/group_norm/group_norm.cuh"

namespace sf::cuda {

template <class> __global__ void lone_block() {}

// Clusters of so many blocks, each alone on its multiprocessor, that run at the same time: the multiprocessors of a
// part of the GPU form them, and what is left of a part stays idle.
inline int64_t clusters_at_once(Device device, unsigned size) {
  const DeviceProperties& gpu = properties(device.index);
  if (size == 1) return gpu.multiprocessors;
  constexpr int kDevices = 64, kLargest = 8;
  static std::atomic<int> known[kDevices][kLargest + 1];
  if (device.index >= kDevices || size > kLargest) return gpu.multiprocessors / size;
  std::atomic<int>& count = known[device.index][size];
  if (count == 0) {
    DeviceScope scope(device.index);
    int most_shared = 0, clusters = 0;
    check(cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index), "group_norm");
    check(cudaFuncSetAttribute(lone_block<void>, cudaFuncAttributeMaxDynamicSharedMemorySize, most_shared),
          "group_norm");
    cudaLaunchAttribute of_cluster{};
    of_cluster.id = cudaLaunchAttributeClusterDimension;
    of_cluster.val.clusterDim = {size, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(size), config.blockDim = dim3(kThreads), config.dynamicSmemBytes = size_t(most_shared);
    config.attrs = &of_cluster, config.numAttrs = 1;
    check(cudaOccupancyMaxActiveClusters(&clusters, lone_block<void>, &config), "group_norm");
    count = clusters > 0 ? clusters : std::max(1, gpu.multiprocessors / int(size));
  }
  return count;
}

struct Keep {
  int32_t columns = 0, chunks = 1;  // vectors of channels in a chunk; chunks of a picture
  int32_t groups = 1;               // of a chunk
  int32_t slices = 1;               // runs of a table's rows that warps join by themselves
  int32_t pixels = 0;               // of a block
  unsigned cluster = 1, threads = kThreads;
  size_t shared = 0;  // bytes

  __host__ __device__ int rows() const { return int(threads) / columns; }
  // vectors of a thread that wait in shared memory, of each tensor
  __host__ __device__ int slots() const { return (pixels + rows() - 1) / rows(); }
  __host__ __device__ size_t kept_bytes() const { return size_t(slots()) * size_t(rows() * columns) * 16; }
  template <class T> Blocks blocks(const Channels<T>& c) const {
    return {unsigned(c.batch * chunks) * cluster, threads, shared, cluster};
  }
};

// The part of this thread's block, and in it of this thread.
template <class T> struct KeptPart {
  static constexpr int V = lanes_for<T>(), kParts = 4;  // parts of the vectors that are waited for one after the other
  Tile t;
  int rank, n, channels, channel0, vectors;  // of the chunk: its picture, channels, the first of them; of a slot
  int pixels, mine;                          // of the block; vectors of this thread, one of each of its pixels
  int64_t first;                             // pixel of this thread
  int part;

  __device__ KeptPart(const Channels<T>& c, const Keep& k) : t(k.columns) {
    rank = int(blockIdx.x % k.cluster);
    const int of = int(blockIdx.x / k.cluster);
    n = of / k.chunks, channels = k.columns * V, channel0 = of % k.chunks * channels, vectors = t.step * k.columns;
    const int64_t begin = int64_t(rank) * k.pixels;
    first = begin + t.pixel;
    pixels = begin < c.space ? int(lesser(c.space - begin, k.pixels)) : 0;
    mine = t.works() && t.pixel < pixels ? (pixels - 1 - t.pixel) / t.step + 1 : 0;
    part = (k.slots() + kParts - 1) / kParts;
  }
  __device__ int channel() const { return channel0 + t.column * V; }
  __device__ int end_of(int p) const { return part * (p + 1) < mine ? part * (p + 1) : mine; }
  // Starts the copy of part p from a tensor to shared memory at `to`.
  __device__ void fetch(const T* column, int64_t between, unsigned char* to, int p) const {
    const T* from = column + (first + int64_t(p) * part * t.step) * between;
    const int64_t stride = int64_t(t.step) * between;
    SharedAddress at = shared_address(to) + SharedAddress((p * part * vectors + int(threadIdx.x)) * 16);
#pragma unroll 4
    for (int s = p * part; s < end_of(p); ++s, from += stride, at += SharedAddress(vectors * 16))
      copy_async(at, from, true);
  }
  // use(part) as they arrive; each fetched in a group of its own.
  template <class F> __device__ void for_parts(const F& use) const {
    wait_for_copies<3>(), use(0);
    wait_for_copies<2>(), use(1);
    wait_for_copies<1>(), use(2);
    wait_for_copies<0>(), use(3);
  }
  // A thread's vectors, one each `vectors`.
  __device__ Held<T, V>* kept(unsigned char* begin) const { return reinterpret_cast<Held<T, V>*>(begin) + threadIdx.x; }
};

// What a kernel keeps: tensors; numbers for each channel, each group and each slice of one.
struct KeepNeeds {
  unsigned most_threads;
  int tensors, of_channel, of_group, of_slice;
};

// The chunk and the cluster that cost least; nothing where no cluster keeps a chunk, or passes would be faster. Costs
// are in bytes that a multiprocessor reads in the time, about 11 in a nanosecond.
template <class T> bool plan_keep(const Channels<T>& c, Device device, const KeepNeeds& needs, Keep& best) {
  constexpr int V = lanes_for<T>();
  constexpr double kBarrier = 6e3, kLaunches = 5e4;  // of a cluster; of the two kernels that passes have more
  int most_shared = 0;
  check(cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index), "group_norm");
  const DeviceProperties& gpu = properties(device.index);
  const int64_t unit = std::lcm(int64_t(c.width), int64_t(V)), units = c.channels / unit;
  double least =
      1.5 * needs.tensors * double(c.batch * c.channels * c.space) * sizeof(T) / gpu.multiprocessors + kLaunches;
  bool found = false;
  for (int64_t of_chunk = 1; of_chunk <= units && of_chunk * unit / V <= 128; ++of_chunk) {
    if (units % of_chunk != 0) continue;
    const int64_t bytes = of_chunk * unit * int64_t(sizeof(T));  // of a pixel
    // What comes along in sectors of device memory: a chunk need not begin or end with one.
    const double waste = double(bytes % 64 == 0 ? 0 : bytes % 32 == 0 ? 8 : 16) / double(bytes);
    for (unsigned cluster = 1; cluster <= (gpu.major >= 9 ? 8u : 1u); cluster *= 2) {
      const int64_t pixels = (c.space + cluster - 1) / cluster, data = needs.tensors * pixels * bytes;
      if (data > most_shared) continue;
      Keep k;
      k.columns = int32_t(of_chunk * unit / V), k.chunks = int32_t(units / of_chunk);
      k.groups = int32_t(of_chunk * unit / c.width), k.pixels = int32_t(pixels), k.cluster = cluster;
      const int64_t vectors = pixels * k.columns;
      k.threads = vectors > 12 * kThreads ? needs.most_threads : vectors > 2 * kThreads ? kThreads : kThreads / 2;
      while (k.slices * 2 * k.groups <= int(k.threads) / kWarp && k.slices * 2 <= k.rows()) k.slices *= 2;
      k.shared =
          size_t(needs.tensors) * k.kept_bytes() +
          (size_t(k.rows() * k.columns * ChannelTable<real_t<T>, V>::kPitch) +
           size_t((needs.of_slice * k.slices + needs.of_group) * k.groups) + size_t(needs.of_channel * k.columns * V)) *
              sizeof(real_t<T>);
      const int64_t shared = int64_t(k.shared);
      if (shared > most_shared) continue;
      const int64_t blocks = c.batch * k.chunks * cluster,
                    rounds = (blocks - 1) / (clusters_at_once(device, cluster) * cluster) + 1;
      // a block that is alone on its multiprocessor reads or writes, never both
      const double alone = rounds > 1 && 2 * shared > most_shared ? 1.3 : 1;
      const double cost = double(rounds * data) * (1 + waste) * alone + (cluster > 1 ? kBarrier : 0);
      if (cost < least) best = k, least = cost, found = true;
    }
  }
  return found;
}

}  // namespace sf::cuda
