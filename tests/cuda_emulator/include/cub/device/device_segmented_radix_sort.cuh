// cub::DeviceSegmentedRadixSort of CUB: what cub.cu calls of it. See call.h.
#pragma once
#include <cub/call.h>
#include <cub/sorted_pairs.h>

namespace cub {

struct DeviceSegmentedRadixSort {
  // One pass over 6 bits each. Segments' ends are read when the work runs.
  template <class K, class V>
  static cudaError_t SortPairs(void* temporary, size_t& bytes, DoubleBuffer<K>& keys, DoubleBuffer<V>& values, int n,
                               int segments, const int* begins, const int* ends, int begin_bit, int end_bit,
                               cudaStream_t stream) {
    if (temporary && (!emulated::valid(keys, values, n, begin_bit, end_bit) || segments < 0))
      return cudaErrorInvalidValue;
    if (temporary && segments > 0 && (!emulated::on_device(begins) || !emulated::on_device(ends)))
      return cudaErrorInvalidValue;
    DoubleBuffer<K> k = keys;
    DoubleBuffer<V> v = values;
    int from = keys.selector, to = (from + (end_bit - begin_bit + 5) / 6) % 2;
    cudaError_t status = emulated::call(temporary, bytes, 1, stream, [=] {
      for (int s = 0; s < segments; ++s) {
        int first = begins[s], count = ends[s] - first;
        if (first < 0 || count < 0 || ends[s] > n)
          cuda_emulator::stop("cub::DeviceSegmentedRadixSort: a segment lies outside of the items");
        emulated::sort_pairs(k.d_buffers[from] + first, k.d_buffers[to] + first, v.d_buffers[from] + first,
                             v.d_buffers[to] + first, count, begin_bit, end_bit);
        std::memset(k.d_buffers[to ^ 1] + first, 0xa5, size_t(count) * sizeof(K));
        std::memset(v.d_buffers[to ^ 1] + first, 0xa5, size_t(count) * sizeof(V));
      }
    });
    if (temporary && status == cudaSuccess) keys.selector = values.selector = to;
    return status;
  }
};

}  // namespace cub
