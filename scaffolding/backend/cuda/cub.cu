#include "scaffolding/backend/cuda/cub.h"

#include <algorithm>

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_segmented_radix_sort.cuh>

#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/scratch.h"

namespace sf::cuda {
namespace {

// call(temporary, bytes): CUB's protocol. Without memory it says how much it needs.
template <class F> void with_temporary(const char* op, Device device, cudaStream_t stream, const F& call) {
  DeviceScope scope(device.index);
  size_t bytes = 0;
  check(call(nullptr, bytes), op);
  Scratch temporary(device, bytes);
  queued(call(temporary.as<void>(), bytes), op, device.index, stream);
}

__global__ void __launch_bounds__(kThreads) fill_starts(int* starts, int rows, int n) {
  int i = int(blockIdx.x) * kThreads + int(threadIdx.x);
  if (i <= rows) starts[i] = i * n;
}

// One block of CUB's segmented sort per row: a GPU is full of some dozen rows. Fewer rows, if long,
// each get the whole device in turn.
constexpr int64_t kFewRows = 8, kLongRow = 1 << 16;

// Returns whether what is sorted lies in the second buffers.
template <class K> bool sort_some(const char* op, Device device, const KeyedRows& r, int64_t first, int64_t rows) {
  int64_t offset = first * r.n;
  cub::DoubleBuffer<K> keys(static_cast<K*>(r.keys) + offset, static_cast<K*>(r.other_keys) + offset);
  cub::DoubleBuffer<uint32_t> at(r.at + offset, r.other_at + offset);
  cudaStream_t stream = Stream::current(device.index).handle;
  if (rows == 1) {
    with_temporary(op, device, stream, [&](void* temporary, size_t& bytes) {
      return cub::DeviceRadixSort::SortPairs(temporary, bytes, keys, at, int(r.n), 0, r.bits, stream);
    });
  } else {
    Scratch starts(device, size_t(rows + 1) * sizeof(int));
    launch(op, device, blocks_for(rows + 1, 1), fill_starts, starts.as<int>(), int(rows), int(r.n));
    with_temporary(op, device, stream, [&](void* temporary, size_t& bytes) {
      return cub::DeviceSegmentedRadixSort::SortPairs(temporary, bytes, keys, at, int(rows * r.n), int(rows),
                                                      starts.as<const int>(), starts.as<const int>() + 1, 0, r.bits,
                                                      stream);
    });
  }
  return at.Current() != r.at + offset;
}

template <class K> const uint32_t* sort_all(const char* op, Device device, const KeyedRows& r) {
  int64_t together = r.rows <= kFewRows && r.n >= kLongRow ? 1 : std::max<int64_t>(1, (INT32_MAX - 1) / r.n);
  bool first_in_other = false;
  for (int64_t row = 0; row < r.rows; row += together) {
    int64_t rows = std::min(together, r.rows - row);
    bool in_other = sort_some<K>(op, device, r, row, rows);
    if (row == 0) first_in_other = in_other;
    if (in_other == first_in_other) continue;
    // The last rows may be sorted by another kernel, with another number of passes between the buffers.
    uint32_t *from = (in_other ? r.other_at : r.at) + row * r.n, *to = (in_other ? r.at : r.other_at) + row * r.n;
    check(cudaMemcpyAsync(to, from, size_t(rows * r.n) * sizeof(uint32_t), cudaMemcpyDeviceToDevice,
                          Stream::current(device.index).handle),
          op);
  }
  return first_in_other ? r.other_at : r.at;
}

}  // namespace

const uint32_t* sort_rows(const char* op, Device device, const KeyedRows& r) {
  switch (r.key_bytes) {
    case 2: return sort_all<uint16_t>(op, device, r);
    case 4: return sort_all<uint32_t>(op, device, r);
    default: return sort_all<uint64_t>(op, device, r);
  }
}

void exclusive_sum(const char* op, Device device, int64_t* data, int64_t n) {
  cudaStream_t stream = Stream::current(device.index).handle;
  with_temporary(op, device, stream, [&](void* temporary, size_t& bytes) {
    return cub::DeviceScan::ExclusiveSum(temporary, bytes, data, data, n, stream);
  });
}

}  // namespace sf::cuda
