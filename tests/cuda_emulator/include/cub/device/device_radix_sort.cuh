// cub::DeviceRadixSort of CUB: what cub.cu calls of it. See call.h.
#pragma once
#include <cub/call.h>
#include <cub/sorted_pairs.h>

namespace cub {

struct DeviceRadixSort {
  // One pass over 8 bits each; a sort that fits a block takes one in all.
  // What the passes leave in the other buffers is lost.
  template <class K, class V>
  static cudaError_t SortPairs(void* temporary, size_t& bytes, DoubleBuffer<K>& keys, DoubleBuffer<V>& values, int n,
                               int begin_bit, int end_bit, cudaStream_t stream) {
    if (temporary && !emulated::valid(keys, values, n, begin_bit, end_bit)) return cudaErrorInvalidValue;
    constexpr int kBlock = 4096;
    int passes = n <= kBlock ? 1 : (end_bit - begin_bit + 7) / 8;
    DoubleBuffer<K> k = keys;
    DoubleBuffer<V> v = values;
    int from = keys.selector, to = (from + passes) % 2;
    cudaError_t status = emulated::call(temporary, bytes, size_t(1) + size_t(n) / 16, stream, [=] {
      emulated::sort_pairs(k.d_buffers[from], k.d_buffers[to], v.d_buffers[from], v.d_buffers[to], n, begin_bit,
                           end_bit);
      std::memset(k.d_buffers[to ^ 1], 0xa5, size_t(n) * sizeof(K));
      std::memset(v.d_buffers[to ^ 1], 0xa5, size_t(n) * sizeof(V));
    });
    if (temporary && status == cudaSuccess) keys.selector = values.selector = to;
    return status;
  }
};

}  // namespace cub
