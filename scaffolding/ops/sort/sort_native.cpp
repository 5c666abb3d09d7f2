// Sorting on the CPU: elements become unsigned keys in the wanted order, each with its index, so that one comparison of
// integers decides and equal elements keep their order. Long rows are sorted digit by digit (radix), short ones by
// comparison; a few of many are selected first.
#include <algorithm>
#include <bit>
#include <vector>

#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/sort/kernel.h"

namespace sf {
namespace {

// Floats: equal numbers get equal keys (-0 and 0 too), every NaN the largest. Integers: shifted to unsigned.
uint32_t key_of(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x + 0.0f);  // -0 + 0 is +0
  if (x != x) return 0xffffffffu;
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}
uint32_t key_of(Half x) { return key_of(to_float(x)); }
uint32_t key_of(BFloat16 x) { return key_of(to_float(x)); }
uint64_t key_of(double x) {
  uint64_t u = std::bit_cast<uint64_t>(x + 0.0);
  if (x != x) return ~uint64_t(0);
  return u >> 63 ? ~u : u | (uint64_t(1) << 63);
}
uint32_t key_of(uint8_t x) { return x; }
uint32_t key_of(bool x) { return x; }
uint32_t key_of(int8_t x) { return uint32_t(int32_t(x)) ^ 0x80000000u; }
uint32_t key_of(int16_t x) { return uint32_t(int32_t(x)) ^ 0x80000000u; }
uint32_t key_of(int32_t x) { return uint32_t(x) ^ 0x80000000u; }
uint64_t key_of(int64_t x) { return uint64_t(x) ^ (uint64_t(1) << 63); }

// A key of 32 bits and its index share one word; wider keys take two.
struct Narrow {
  uint64_t word;
  Narrow() = default;
  Narrow(uint32_t key, int64_t i) : word(uint64_t(key) << 32 | uint64_t(i)) {}
  uint64_t key() const { return word >> 32; }
  int64_t index() const { return int64_t(word & 0xffffffffu); }
  friend bool operator<(Narrow a, Narrow b) { return a.word < b.word; }
};
struct Wide {
  uint64_t bits;
  int64_t at;
  Wide() = default;
  Wide(uint64_t key, int64_t i) : bits(key), at(i) {}
  uint64_t key() const { return bits; }
  int64_t index() const { return at; }
  friend bool operator<(const Wide& a, const Wide& b) { return a.bits != b.bits ? a.bits < b.bits : a.at < b.at; }
};

constexpr int kDigit = 11;               // bits per pass: 2048 counters stay in the first-level cache
constexpr int64_t kRadixFrom = 1 << 12;  // rows this long are worth the counting

// Least significant digit first, skipping digits that all elements share. The result is in a; b is room for a pass.
template <class E> void radix_sort(std::vector<E>& a, std::vector<E>& b) {
  constexpr int kBits = sizeof(E) == 8 ? 32 : 64;
  b.resize(a.size());
  for (int shift = 0; shift < kBits; shift += kDigit) {
    size_t start[1 << kDigit] = {};
    auto digit = [&](const E& e) { return (e.key() >> shift) & ((1u << kDigit) - 1); };
    for (auto& e : a) ++start[digit(e)];
    if (start[digit(a[0])] == a.size()) continue;
    size_t sum = 0;
    for (size_t& s : start) {  // counts become places
      size_t n = s;
      s = sum;
      sum += n;
    }
    for (auto& e : a) b[start[digit(e)]++] = e;
    a.swap(b);
  }
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

template <class T> void rows(const Sort& s) {
  using Key = decltype(key_of(T{}));
  using E = std::conditional_t<sizeof(Key) == 4, Narrow, Wide>;
  int last = s.in.ndim - 1;
  int64_t n = s.in.sizes[last], k = s.indices.sizes[last], count = s.indices.numel() / k;
  int64_t sx = s.in.strides[last], si = s.indices.strides[last], sv = s.values ? s.values.strides[last] : 0;
  Key flip = s.descending ? ~Key(0) : Key(0);
  parallel_for(count, (1 << 11) / n + 1, [&](int64_t begin, int64_t end) {
    std::vector<E> row, room;
    for (int64_t r = begin; r < end; ++r) {
      auto* x = s.in.as<const T>();
      auto* index = s.indices.as<int64_t>();
      auto* value = s.values ? s.values.as<T>() : nullptr;
      int64_t rest = r;
      for (int d = last - 1; d >= 0; --d) {
        int64_t at = rest % s.in.sizes[d];
        rest /= s.in.sizes[d];
        x += at * s.in.strides[d];
        index += at * s.indices.strides[d];
        if (value) value += at * s.values.strides[d];
      }
      row.clear();
      if (k < n / 4) {
        best_of(row, x, sx, n, size_t(k), flip);
      } else {
        row.reserve(size_t(n));
        for (int64_t i = 0; i < n; ++i) row.emplace_back(Key(key_of(x[i * sx]) ^ flip), i);
      }
      if (int64_t(row.size()) >= kRadixFrom) {
        radix_sort(row, room);
      } else {
        std::sort(row.begin(), row.end());
      }
      for (int64_t i = 0; i < k; ++i) {
        int64_t at = row[size_t(i)].index();
        index[i * si] = at;
        if (value) value[i * sv] = x[at * sx];
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
