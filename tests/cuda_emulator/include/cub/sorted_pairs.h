// Stable sorting of keys with values by some of the keys' bits.
#pragma once
#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

#include <cub/double_buffer.h>

namespace cub::emulated {

template <class K, class V>
void sort_pairs(const K* keys, K* keys_out, const V* values, V* values_out, int64_t n, int begin_bit, int end_bit) {
  static_assert(std::is_unsigned_v<K>);
  auto part = [&](K k) {
    return end_bit - begin_bit >= int(8 * sizeof(K))
               ? uint64_t(k)
               : (uint64_t(k) >> begin_bit) & ((uint64_t(1) << (end_bit - begin_bit)) - 1);
  };
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return part(keys[a]) < part(keys[b]); });
  std::vector<K> sorted_keys;
  std::vector<V> sorted_values;
  for (int64_t i : order) sorted_keys.push_back(keys[i]), sorted_values.push_back(values[i]);
  std::copy(sorted_keys.begin(), sorted_keys.end(), keys_out);
  std::copy(sorted_values.begin(), sorted_values.end(), values_out);
}

template <class K, class V>
bool valid(const DoubleBuffer<K>& keys, const DoubleBuffer<V>& values, int64_t n, int begin_bit, int end_bit) {
  for (int i : {0, 1})
    if (n > 0 && (!on_device(keys.d_buffers[i]) || !on_device(values.d_buffers[i]))) return false;
  return n >= 0 && begin_bit >= 0 && begin_bit < end_bit && end_bit <= int(8 * sizeof(K));
}

}  // namespace cub::emulated
