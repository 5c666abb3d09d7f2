// A few of many on the CPU. The k-th best of the bests of many lanes is no better than the k-th best of all: what does
// not come up to it is refused, whole vectors at once, and little more than k elements are left to be put in order.
#include "scaffolding/backend/cpu/simd_rows.h"
#include "scaffolding/ops/sort/kernel.h"
#include "scaffolding/ops/sort/keys.h"

namespace sf {
namespace SF_ISA {
namespace {

using sorting::key_of;

constexpr int64_t kMost = 64;     // elements asked for
constexpr int64_t kPiece = 4096;  // elements whose keys are made at once
constexpr int64_t kLanesPerBest = 4, kLeastLanes = 64, kMostLanes = kMost * kLanesPerBest;
constexpr int64_t kBlock = 64;  // elements refused at once

int64_t lanes_for(int64_t k) {
  int64_t lanes = kLeastLanes;
  while (lanes < k * kLanesPerBest) lanes *= 2;
  return lanes;
}

// The least k words so far, in order.
struct Bests {
  uint64_t word[kMost];
  int64_t k, count = 0;
};
SF_INLINE void insert(Bests& b, uint64_t word) {
  int64_t at = b.count < b.k ? b.count++ : b.k - 1;
  for (; at > 0 && b.word[at - 1] > word; --at) b.word[at] = b.word[at - 1];
  b.word[at] = word;
}

// keys[m] of x, in ascending order of what is wanted
template <class T> void make_keys(const T* x, int64_t step, int64_t m, uint32_t flip, uint32_t* keys) {
  if (step == 1)
    for (int64_t i = 0; i < m; ++i) keys[i] = key_of(x[i]) ^ flip;
  else
    for (int64_t i = 0; i < m; ++i) keys[i] = key_of(x[i * step]) ^ flip;
}

// What the first `m` elements, at least k of them in different lanes, show to be as good as the k-th best, or worse.
uint32_t limit_of(const uint32_t* keys, int64_t m, int64_t lanes, int64_t k) {
  alignas(64) uint32_t best[kMostLanes];
  for (int64_t j = 0; j < lanes; ++j) best[j] = keys[j];
  for (int64_t i = lanes; i + lanes <= m; i += lanes)
    for (int64_t j = 0; j < lanes; ++j) best[j] = keys[i + j] < best[j] ? keys[i + j] : best[j];
  Bests b;
  b.k = k;
  for (int64_t j = 0; j < lanes; ++j)
    if (b.count < k || best[j] < b.word[k - 1]) insert(b, best[j]);
  return uint32_t(b.word[k - 1]);
}

template <class T> void row_best(const T* x, int64_t step, int64_t n, uint32_t flip, Bests& b) {
  alignas(64) uint32_t keys[kPiece];
  int64_t lanes = lanes_for(b.k);
  uint32_t limit = 0;  // keys above it are out
  for (int64_t first = 0; first < n; first += kPiece) {
    int64_t m = n - first < kPiece ? n - first : kPiece;
    make_keys(x + first * step, step, m, flip, keys);
    if (first == 0) limit = limit_of(keys, m, lanes, b.k);
    for (int64_t i0 = 0; i0 < m; i0 += kBlock) {
      int64_t i1 = i0 + kBlock < m ? i0 + kBlock : m;
      uint32_t some = 0;
      for (int64_t i = i0; i < i1; ++i) some |= uint32_t(keys[i] <= limit);
      if (!some) continue;
      for (int64_t i = i0; i < i1; ++i) {
        if (keys[i] > limit) continue;
        uint64_t word = uint64_t(keys[i]) << 32 | uint64_t(first + i);
        if (b.count == b.k && word > b.word[b.k - 1]) continue;
        insert(b, word);
        if (b.count < b.k) continue;
        uint32_t worst = uint32_t(b.word[b.k - 1] >> 32);  // of equals the first stays: a newcomer must be below it
        limit = worst == 0 ? 0 : worst - 1 < limit ? worst - 1 : limit;
      }
    }
  }
}

template <class T> void rows(const Sort& s) {
  int last = s.in.ndim - 1;
  int64_t n = s.in.sizes[last], k = s.indices.sizes[last], count = s.indices.numel() / k, step = s.in.strides[last];
  uint32_t flip = s.descending ? ~uint32_t(0) : 0;
  parallel_for(count, (1 << 14) / n + 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      auto* x = s.in.as<const T>();
      auto* index = s.indices.as<int64_t>();
      auto* value = s.values ? s.values.as<T>() : nullptr;
      int64_t rest = row;
      for (int d = last - 1; d >= 0; --d) {
        int64_t at = rest % s.in.sizes[d];
        rest /= s.in.sizes[d];
        x += at * s.in.strides[d];
        index += at * s.indices.strides[d];
        if (value) value += at * s.values.strides[d];
      }
      Bests b;
      b.k = k;
      row_best(x, step, n, flip, b);
      for (int64_t i = 0; i < k; ++i) {
        int64_t at = int64_t(b.word[i] & 0xffffffffu);
        index[i * s.indices.strides[last]] = at;
        if (value) value[i * s.values.strides[last]] = x[at * step];
      }
    }
  });
}

void topk(const Sort& s) {
  switch (s.in.dtype) {
    case kFloat32: return rows<float>(s);
    case kFloat16: return rows<Half>(s);
    case kBFloat16: return rows<BFloat16>(s);
    case kInt32: return rows<int32_t>(s);
    case kInt16: return rows<int16_t>(s);
    case kInt8: return rows<int8_t>(s);
    default: return rows<uint8_t>(s);
  }
}
bool supports(const Sort& s) {
  if (is_float8(s.in.dtype) || size_of(s.in.dtype) > 4) return false;
  int64_t n = s.in.sizes[s.in.ndim - 1], k = s.indices.sizes[s.indices.ndim - 1];
  return k <= kMost && n >= 4 * lanes_for(k);
}

SF_KERNEL(sort_kernel, DeviceType::CPU, "few", SF_ISA_PRIORITY, topk, supports)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
