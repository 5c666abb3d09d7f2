// Sorting on the CPU: elements become unsigned keys in the wanted order, each with its index. Rows are sorted digit by
// digit (radix), short ones by comparison; a few of many are selected first.
#include <algorithm>
#include <bit>
#include <vector>

#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/sort/kernel.h"
#include "scaffolding/ops/sort/keys.h"

namespace sf {
namespace {

using sorting::key_of;
using sorting::KeyOf;
using sorting::Narrow;
using sorting::Room;
using sorting::Wide;

constexpr int kMostBits = 11;               // per pass: 2048 counters stay in the first-level cache
constexpr int64_t kRadixFrom = 192;         // rows this long are worth the counting
constexpr int64_t kLongFrom = 1 << 14;      // below, clearing and adding up 2048 counters costs more than a pass
constexpr int64_t kMostSelected = 1 << 12;  // more are faster taken from the whole order

// Least significant digit first, skipping digits that all elements share. Keys have `bits` bits. Returns a or b, where
// the result is.
Narrow* radix_sort(Narrow* a, Narrow* b, int64_t n, int bits) {
  if (bits == 0) return a;
  int most = n < kLongFrom ? 8 : kMostBits, passes = (bits + most - 1) / most,
      digit_bits = (bits + passes - 1) / passes;
  const uint64_t mask = (uint64_t(1) << digit_bits) - 1;
  for (int shift = 0; shift < bits; shift += digit_bits) {
    uint32_t start[1 << kMostBits];  // n < 2^32
    std::fill_n(start, mask + 1, 0u);
    for (int64_t i = 0; i < n; ++i) ++start[(a[i].key() >> shift) & mask];
    if (start[(a[0].key() >> shift) & mask] == uint64_t(n)) continue;
    uint32_t sum = 0;
    for (uint64_t d = 0; d <= mask; ++d) {  // counts become places
      uint32_t count = start[d];
      start[d] = sum;
      sum += count;
    }
    for (int64_t i = 0; i < n; ++i) b[start[(a[i].key() >> shift) & mask]++] = a[i];
    std::swap(a, b);
  }
  return a;
}

// The k smallest keys of x, in no order. A crowd of candidates is thinned to k whenever it is full; the worst of them
// is then what a newcomer must beat, so that most elements cost one comparison.
template <class E, class T, class Key>
void best_of(std::vector<E>& crowd, const T* x, int64_t step, int64_t n, size_t k, Key flip) {
  size_t room = std::max<size_t>(4 * k, 64);
  auto thin = [&] {
    std::nth_element(crowd.begin(), crowd.begin() + std::ptrdiff_t(k) - 1, crowd.end());
    crowd.resize(k);
  };
  crowd.reserve(room);
  Key limit = 0;
  bool limited = false;
  for (int64_t i = 0; i < n; ++i) {
    Key key = Key(key_of(x[i * step]) ^ flip);
    if (limited && key >= limit) continue;  // of equals the first stays
    crowd.emplace_back(key, i);
    if (crowd.size() < room) continue;
    thin();
    limit = Key(crowd[k - 1].key());
    limited = true;
  }
  if (crowd.size() > k) thin();
}

// One row: steps are in elements.
template <class T> struct Row {
  const T* x;
  int64_t step, n;
  T* value;  // may be null
  int64_t value_step;
  int64_t* index;
  int64_t index_step, k;
};

// The first k of e into the row's outputs. Keys that have all bits tell integers without a look at a far place: a key
// ^ flip is an element's own, once `least` is added to it.
template <class T, class E> void emit(const Row<T>& r, const E* e, bool all_bits, KeyOf<T> least, KeyOf<T> flip) {
  for (int64_t i = 0; i < r.k; ++i) r.index[i * r.index_step] = e[i].index();
  if (!r.value) return;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
    if (all_bits) {
      for (int64_t i = 0; i < r.k; ++i) {
        KeyOf<T> own = (KeyOf<T>(e[i].key()) + least) ^ flip;
        r.value[i * r.value_step] = T(own ^ key_of(T(0)));
      }
      return;
    }
  for (int64_t i = 0; i < r.k; ++i) r.value[i * r.value_step] = r.x[e[i].index() * r.step];
}

// Orders by whole keys what stands in the order of their upper 32 bits.
template <class T> void order_runs(const Row<T>& r, Narrow* e, KeyOf<T> flip) {
  std::vector<Wide> run;
  for (int64_t first = 0, end; first < r.n; first = end) {
    for (end = first + 1; end < r.n && e[end].key() == e[first].key();) ++end;
    if (end - first == 1) continue;
    run.clear();
    for (int64_t i = first; i < end; ++i) run.emplace_back(key_of(r.x[e[i].index() * r.step]) ^ flip, e[i].index());
    if (std::is_sorted(run.begin(), run.end())) continue;
    std::sort(run.begin(), run.end());
    for (int64_t i = first; i < end; ++i) e[i] = Narrow(e[i].key(), run[size_t(i - first)].index());
  }
}

// a and b have room for n.
template <class T> void sort_row(const Row<T>& r, KeyOf<T> flip, Narrow* a, Narrow* b) {
  using Key = KeyOf<T>;
  Key least = ~Key(0), most = 0;
  for (int64_t i = 0; i < r.n; ++i) {
    Key key = key_of(r.x[i * r.step]) ^ flip;
    least = std::min(least, key);
    most = std::max(most, key);
  }
  int bits = std::bit_width(Key(most - least)), left = std::max(bits - 32, 0);
  for (int64_t i = 0; i < r.n; ++i) a[i] = Narrow(Key((key_of(r.x[i * r.step]) ^ flip) - least) >> left, i);
  if (r.n < kRadixFrom) std::sort(a, a + r.n);
  else a = radix_sort(a, b, r.n, bits - left);
  if (left > 0) order_runs(r, a, flip);
  emit(r, a, left == 0, least, flip);
}

template <class T> void rows(const Sort& s) {
  using Key = KeyOf<T>;
  using E = std::conditional_t<sizeof(Key) == 4, Narrow, Wide>;
  int last = s.in.ndim - 1;
  int64_t n = s.in.sizes[last], k = s.indices.sizes[last], count = s.indices.numel() / k;
  Key flip = s.descending ? ~Key(0) : Key(0);
  bool few = k < n / 4 && k <= kMostSelected;
  parallel_for(count, (1 << 11) / n + 1, [&](int64_t begin, int64_t end) {
    std::vector<E> crowd;
    Room<Narrow> a(few ? 0 : n), b(few ? 0 : n);
    for (int64_t row = begin; row < end; ++row) {
      Row<T> r{s.in.as<const T>(),
               s.in.strides[last],
               n,
               s.values ? s.values.as<T>() : nullptr,
               s.values ? s.values.strides[last] : 0,
               s.indices.as<int64_t>(),
               s.indices.strides[last],
               k};
      int64_t rest = row;
      for (int d = last - 1; d >= 0; --d) {
        int64_t at = rest % s.in.sizes[d];
        rest /= s.in.sizes[d];
        r.x += at * s.in.strides[d];
        r.index += at * s.indices.strides[d];
        if (r.value) r.value += at * s.values.strides[d];
      }
      if (few) {
        crowd.clear();
        best_of(crowd, r.x, r.step, n, size_t(k), flip);
        std::sort(crowd.begin(), crowd.end());
        emit(r, crowd.data(), true, Key(0), flip);
      } else {
        sort_row(r, flip, a.data(), b.data());
      }
    }
  });
}

void sort(const Sort& s) {
  visit_dtype(s.in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!is_float8(dtype_of<T>::value)) rows<T>(s);
  });
}
bool supports(const Sort& s) { return !is_float8(s.in.dtype); }

SF_KERNEL(sort_kernel, DeviceType::CPU, "native", 0, sort, supports)

}  // namespace
}  // namespace sf
