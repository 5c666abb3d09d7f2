// Elements of given ranks on the CPU, without sorting the rest: keys are counted by their upper bits, and only those
// that share the wanted element's are looked at closely.
#include <algorithm>
#include <bit>

#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/sort/kernel.h"
#include "scaffolding/ops/sort/keys.h"

namespace sf {
namespace {

constexpr int kCountedBits = 11;   // 2048 counters stay in the first-level cache
constexpr int64_t kMostRanks = 8;  // of a row; each may read it once more

// Where the elements of `count` ranks stand. Steps are in elements; `keys` and `near` have room for n.
template <class T, class E, class Key>
void rank_row(const T* x, int64_t step, int64_t n, const int64_t* rank, int64_t rank_step, int64_t* index,
              int64_t index_step, int64_t count, Key* keys, E* near) {
  Key least = ~Key(0), most = 0;
  for (int64_t i = 0; i < n; ++i) {
    Key key = sorting::key_of(x[i * step]);
    keys[i] = key;
    least = std::min(least, key);
    most = std::max(most, key);
  }
  int bits = std::bit_width(Key(most - least)), shift = std::max(bits - kCountedBits, 0);
  uint32_t counts[1 << kCountedBits] = {};  // n < 2^32
  for (int64_t i = 0; i < n; ++i) ++counts[Key(keys[i] - least) >> shift];
  int64_t collected = -1, found = 0;  // the bucket that `near` holds
  for (int64_t j = 0; j < count; ++j) {
    int64_t bucket = 0, left = rank[j * rank_step];
    while (left >= int64_t(counts[bucket])) left -= counts[bucket++];
    if (bucket != collected) {
      found = 0;
      for (int64_t i = 0; i < n && found < int64_t(counts[bucket]); ++i) {  // written over until it is one to keep
        near[found] = E(keys[i], i);
        found += int64_t(Key(keys[i] - least) >> shift) == bucket;
      }
      collected = bucket;
    }
    if (shift > 0) std::nth_element(near, near + left, near + found);
    index[j * index_step] = near[left].index();
  }
}

template <class T> void rank_rows(const Rank& s) {
  using Key = sorting::KeyOf<T>;
  using E = std::conditional_t<sizeof(Key) == 4, sorting::Narrow, sorting::Wide>;
  int last = s.in.ndim - 1;
  int64_t n = s.in.sizes[last], k = s.indices.sizes[last], count = s.indices.numel() / k;
  parallel_for(count, (1 << 12) / n + 1, [&](int64_t begin, int64_t end) {
    sorting::Room<Key> keys(n);
    sorting::Room<E> near(n);
    for (int64_t row = begin; row < end; ++row) {
      auto* x = s.in.as<const T>();
      auto* rank = s.ranks.as<const int64_t>();
      auto* index = s.indices.as<int64_t>();
      int64_t rest = row;
      for (int d = last - 1; d >= 0; --d) {
        int64_t at = rest % s.in.sizes[d];
        rest /= s.in.sizes[d];
        x += at * s.in.strides[d];
        rank += at * s.ranks.strides[d];
        index += at * s.indices.strides[d];
      }
      rank_row(x, s.in.strides[last], n, rank, s.ranks.strides[last], index, s.indices.strides[last], k, keys.data(),
               near.data());
    }
  });
}

void rank_cpu(const Rank& s) {
  visit_dtype(s.in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!is_float8(dtype_of<T>::value)) rank_rows<T>(s);
  });
}
bool ranks_supported(const Rank& s) {
  return !is_float8(s.in.dtype) && s.indices.sizes[s.indices.ndim - 1] <= kMostRanks;
}

SF_KERNEL(rank_kernel, DeviceType::CPU, "native", 0, rank_cpu, ranks_supported)

}  // namespace
}  // namespace sf
