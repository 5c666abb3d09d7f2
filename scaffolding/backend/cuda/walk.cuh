// Walk: how a kernel finds the i-th element of each of N operands over one shape, whatever their strides.
// Made on the host from views: dimensions sorted by the output's strides and merged, as for the CPU (cpu::StridedLoop).
// Plain data, passed to kernels by value. Fewer than 2^31 elements; larger calls are cut into pieces.
#pragma once
#include "scaffolding/backend/cpu/strided.h"

namespace sf::cuda {

// Division by a fixed 1 <= d < 2^31 as a multiplication, for 0 <= n < 2^31 (Granlund and Montgomery, "Division by
// Invariant Integers using Multiplication", 1994, figure 4.1).
struct Divider {
  uint32_t d = 1, magic = 1, shift = 0;

  Divider() = default;
  explicit Divider(uint32_t divisor) : d(divisor) {
    while (shift < 31 && (uint32_t(1) << shift) < d) ++shift;
    magic = uint32_t(((uint64_t(1) << 32) * ((uint64_t(1) << shift) - d)) / d + 1);
  }
  __device__ uint32_t quotient(uint32_t n) const { return (__umulhi(n, magic) + n) >> shift; }
};

template <int N> struct Walk {
  char* data[N];
  uint32_t n = 0;
  int32_t ndim = 0;
  bool vectors =
      false;  // along dimension 0 each operand is dense and aligned for vectors of `lanes`, or one element for all
  Divider sizes[kMaxDims];       // [0] is the innermost
  int64_t strides[N][kMaxDims];  // in bytes

  // The i-th element's distance from data[k], in bytes.
  __device__ void offsets(uint32_t i, int64_t (&at)[N]) const {
    for (int k = 0; k < N; ++k) at[k] = 0;
#pragma unroll 1
    for (int d = 0; d + 1 < ndim; ++d) {
      uint32_t q = sizes[d].quotient(i), r = i - q * sizes[d].d;
      for (int k = 0; k < N; ++k) at[k] += int64_t(r) * strides[k][d];
      i = q;
    }
    for (int k = 0; k < N; ++k) at[k] += int64_t(i) * strides[k][ndim - 1];
  }
};

// item: bytes of an element of each operand. Vectors may leave a rest behind where one dimension is all there is; in
// rows they must fill them.
template <int N> Walk<N> make_walk(const cpu::StridedLoop& loop, const size_t (&item)[N], int lanes) {
  Walk<N> w;
  w.n = uint32_t(loop.sizes[0] * loop.rows);
  w.ndim = loop.ndim;
  w.vectors = loop.ndim == 1 || loop.sizes[0] % lanes == 0;
  for (int d = 0; d < loop.ndim; ++d) w.sizes[d] = Divider(uint32_t(loop.sizes[d] > 0 ? loop.sizes[d] : 1));
  for (int k = 0; k < N; ++k) {
    w.data[k] = loop.data[k];
    for (int d = 0; d < kMaxDims; ++d) w.strides[k][d] = d < loop.ndim ? loop.strides[k][d] : 0;
    bool dense =
        w.strides[k][0] == int64_t(item[k]) && reinterpret_cast<uintptr_t>(w.data[k]) % (item[k] * size_t(lanes)) == 0;
    for (int d = 1; d < loop.ndim; ++d) dense = dense && w.strides[k][d] % (int64_t(item[k]) * lanes) == 0;
    w.vectors = w.vectors && (dense || (k > 0 && w.strides[k][0] == 0));
  }
  return w;
}

// The walk over the other dimensions.
template <int N> Walk<N> without(Walk<N> w, int dim) {
  w.n /= w.sizes[dim].d;
  for (int d = dim; d + 1 < w.ndim; ++d) {
    w.sizes[d] = w.sizes[d + 1];
    for (int k = 0; k < N; ++k) w.strides[k][d] = w.strides[k][d + 1];
  }
  --w.ndim;
  return w;
}

// f(walk) for pieces of fewer than 2^31 elements, none of them empty; one piece unless the call is huge.
template <int N, class F> void for_walks(cpu::StridedLoop loop, const size_t (&item)[N], int lanes, const F& f) {
  int64_t n = loop.sizes[0] * loop.rows;
  if (n == 0) return;
  if (n <= INT32_MAX) return f(make_walk<N>(loop, item, lanes));
  int at = 0;
  for (int d = 1; d < loop.ndim; ++d)
    if (loop.sizes[d] > loop.sizes[at]) at = d;
  cpu::StridedLoop rest = loop;
  loop.sizes[at] /= 2;
  if (loop.sizes[at] > 16) loop.sizes[at] -= loop.sizes[at] % 16;  // vectors stay aligned
  rest.sizes[at] -= loop.sizes[at];
  for (int k = 0; k < N; ++k) rest.data[k] += loop.sizes[at] * loop.strides[k][at];
  for (auto* half : {&loop, &rest}) {
    half->rows = 1;
    for (int d = 1; d < half->ndim; ++d) half->rows *= half->sizes[d];
    for_walks<N>(*half, item, lanes, f);
  }
}

}  // namespace sf::cuda
