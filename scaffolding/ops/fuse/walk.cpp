#include "scaffolding/ops/fuse/walk.h"

#include <cstring>

namespace sf {

namespace {

template <class U> void gather_row(U* to, const U* from, int64_t stride, int64_t n) {
  if (stride == 1) std::memcpy(to, from, size_t(n) * sizeof(U));
  else if (stride == 0) std::fill_n(to, n, *from);
  else
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
}

template <class U>
void gather(U* to, const void* data, const FusedWalk& w, const std::array<int64_t, kMaxDims>& strides, int64_t first,
            int64_t n) {
  int64_t index[kMaxDims], at = 0, rest = first;
  for (int d = 0; d < w.ndim; ++d) {
    index[d] = rest % w.sizes[d];
    rest /= w.sizes[d];
    at += index[d] * strides[size_t(d)];
  }
  while (n > 0) {
    int64_t step = std::min(n, w.sizes[0] - index[0]);
    gather_row(to, static_cast<const U*>(data) + at, strides[0], step);
    to += step;
    n -= step;
    at += step * strides[0];
    index[0] += step;
    for (int d = 0; d + 1 < w.ndim && index[d] == w.sizes[d]; ++d) {
      at += strides[size_t(d + 1)] - w.sizes[d] * strides[size_t(d)];
      index[d] = 0;
      ++index[d + 1];
    }
  }
}

}  // namespace

void FusedWalk::gather(int argument, size_t item, void* to, const void* data, int64_t first, int64_t n) const {
  const auto& s = strides[size_t(argument)];
  item == 4   ? sf::gather(static_cast<uint32_t*>(to), data, *this, s, first, n)
  : item == 2 ? sf::gather(static_cast<uint16_t*>(to), data, *this, s, first, n)
  : item == 8 ? sf::gather(static_cast<uint64_t*>(to), data, *this, s, first, n)
              : sf::gather(static_cast<uint8_t*>(to), data, *this, s, first, n);
}

}  // namespace sf
