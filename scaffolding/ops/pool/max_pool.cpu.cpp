// Row-major: a row of outputs together. Channels-last: all channels of an output together, in blocks that stay in
// registers and the first-level cache.
#include "scaffolding/backend/cpu/simd.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/core/scratch.h"
#include "scaffolding/ops/pool/kernel.h"

namespace sf {
namespace SF_ISA {
namespace {

constexpr int64_t kBlock = 128;  // channels at a time
constexpr int64_t kGrain = 1 << 13;

template <class T> struct Wide { using type = float; };
template <> struct Wide<double> { using type = double; };
SF_INLINE double widened(double v) { return v; }
template <class T> SF_INLINE float widened(T v) { return to_float(v); }
SF_INLINE void narrow_to(double* p, double v) { *p = v; }
template <class T> SF_INLINE void narrow_to(T* p, float v) { *p = from_float<T>(v); }

// Calls f(flat position) for every input of the window of output (d, h, w).
template <class F> SF_INLINE void window(const MaxPool& a, int64_t d, int64_t h, int64_t w, const F& f) {
  const int64_t* in = a.from.size;
  for (int64_t i = 0; i < a.count[0][d]; ++i)
    for (int64_t j = 0; j < a.count[1][h]; ++j) {
      int64_t row =
          ((a.start[0][d] + i * a.dilation[0]) * in[1] + a.start[1][h] + j * a.dilation[1]) * in[2] + a.start[2][w];
      for (int64_t k = 0; k < a.count[2][w]; ++k) f(row + k * a.dilation[2]);
    }
}

// A row of outputs of one plane without branches that depend on data: values and positions are compared as one integer,
// whose upper half orders the numbers (NaN last, -0 as 0) and whose lower half prefers the first position, or the last
// among NaN. keys[row]: the maximum of each column of the window.
SF_INLINE int64_t key_of(float v, int32_t p) {
  v += 0.f;
  int32_t bits;
  std::memcpy(&bits, &v, sizeof bits);
  bool nan = v != v;
  int32_t order = nan ? INT32_MAX : bits ^ ((bits >> 31) & INT32_MAX);
  return int64_t(order) << 32 | uint32_t(nan ? p : ~p);
}
SF_INLINE int32_t position_of(int64_t key) { return key >> 32 == INT32_MAX ? int32_t(key) : ~int32_t(key); }

template <class T>
SF_INLINE void pool_row(const MaxPool& a, const T* x, T* y, int64_t* index, int64_t d, int64_t h, int64_t* keys) {
  const int64_t *in = a.from.size, columns = in[2];
  for (int64_t c = 0; c < columns; ++c) keys[c] = INT64_MIN;
  for (int64_t i = 0; i < a.count[0][d]; ++i)
    for (int64_t j = 0; j < a.count[1][h]; ++j) {
      int32_t row =
          int32_t(((a.start[0][d] + i * a.dilation[0]) * in[1] + a.start[1][h] + j * a.dilation[1]) * columns);
      for (int64_t c = 0; c < columns; ++c) {
        int64_t key = key_of(to_float(x[row + c]), row + int32_t(c));
        keys[c] = key > keys[c] ? key : keys[c];
      }
    }
  for (int64_t w = 0; w < a.to.size[2]; ++w) {
    const int64_t* from = keys + a.start[2][w];
    int64_t best = from[0];
    for (int64_t k = 1; k < a.count[2][w]; ++k) {
      int64_t key = from[k * a.dilation[2]];
      best = key > best ? key : best;
    }
    int32_t at = position_of(best);
    y[w] = x[at];
    if (index) index[w] = at;
  }
}

template <class T> SF_INLINE void pool(const MaxPool& a) {
  using V = typename Wide<T>::type;
  const int64_t* out = a.to.size;
  int64_t inner = a.from.inner, plane = a.from.size[0] * a.from.size[1] * a.from.size[2];
  int64_t rows = a.to.outer * out[0] * out[1], row = out[2] * inner;
  parallel_for(rows, row > kGrain ? 1 : kGrain / row, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      int64_t h = r % out[1], d = r / out[1] % out[0], n = r / (out[1] * out[0]);
      const T* x = static_cast<const T*>(a.in) + n * plane * inner;
      T* y = static_cast<T*>(a.out) + r * row;
      int64_t* index = a.index ? a.index + r * row : nullptr;
      if constexpr (sizeof(T) <= 4)
        if (inner == 1 && plane < (int64_t(1) << 31)) {
          pool_row<T>(a, x, y, index, d, h, static_cast<int64_t*>(scratch(size_t(a.from.size[2]) * 8, 0)));
          continue;
        }
      if (inner == 1) {
        for (int64_t w = 0; w < out[2]; ++w) {
          V best = -__builtin_inf();
          int64_t at = (a.start[0][d] * a.from.size[1] + a.start[1][h]) * a.from.size[2] + a.start[2][w];
          window(a, d, h, w, [&](int64_t p) {
            V v = widened(x[p]);
            if (v > best || v != v) {
              best = v;
              at = p;
            }
          });
          narrow_to(y + w, best);
          if (index) index[w] = at;
        }
        continue;
      }
      for (int64_t w = 0; w < out[2]; ++w)
        for (int64_t c0 = 0; c0 < inner; c0 += kBlock) {
          int64_t m = inner - c0 < kBlock ? inner - c0 : kBlock;
          V best[kBlock];
          int32_t at[kBlock];  // spatial sizes stay below 2^31
          int64_t first = (a.start[0][d] * a.from.size[1] + a.start[1][h]) * a.from.size[2] + a.start[2][w];
          for (int64_t c = 0; c < m; ++c) best[c] = -__builtin_inf(), at[c] = int32_t(first);
          window(a, d, h, w, [&](int64_t p) {
            const T* from = x + p * inner + c0;
            for (int64_t c = 0; c < m; ++c) {
              V v = widened(from[c]);
              bool larger = (v > best[c]) | (v != v);
              best[c] = larger ? v : best[c];
              at[c] = larger ? int32_t(p) : at[c];
            }
          });
          for (int64_t c = 0; c < m; ++c) narrow_to(y + w * inner + c0 + c, best[c]);
          if (index)
            for (int64_t c = 0; c < m; ++c) index[w * inner + c0 + c] = at[c];
        }
    }
  });
}

void max_pool(const MaxPool& a) {
  if (a.dtype == kFloat32) pool<float>(a);
  else if (a.dtype == kBFloat16) pool<BFloat16>(a);
  else if (a.dtype == kFloat16) pool<Half>(a);
  else pool<double>(a);
}
bool is_real(const MaxPool& a) {
  return is_floating(a.dtype) && !is_float8(a.dtype) &&
         (a.from.inner == 1 || a.from.size[0] * a.from.size[1] * a.from.size[2] < (int64_t(1) << 31));
}

// Planes (blocks of channels of one image) are independent; within one, outputs are added in order.
template <class T> SF_INLINE void scatter_back(const MaxPoolBackward& a) {
  int64_t inner = a.dy_extent.inner, blocks = (inner + kBlock - 1) / kBlock;
  int64_t to = a.dx_extent.size[0] * a.dx_extent.size[1] * a.dx_extent.size[2],
          from = a.dy_extent.size[0] * a.dy_extent.size[1] * a.dy_extent.size[2];
  int64_t work = from * (inner < kBlock ? inner : kBlock);
  parallel_for(a.dy_extent.outer * blocks, work > kGrain ? 1 : kGrain / work, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      int64_t n = b / blocks, c0 = b % blocks * kBlock, c1 = c0 + kBlock < inner ? c0 + kBlock : inner;
      const T* dy = static_cast<const T*>(a.dy) + n * from * inner;
      const int64_t* index = a.index + n * from * inner;
      T* dx = static_cast<T*>(a.dx) + n * to * inner;
      for (int64_t o = 0; o < from; ++o)
        for (int64_t c = c0; c < c1; ++c) dx[index[o * inner + c] * inner + c] += dy[o * inner + c];
    }
  });
}
void max_pool_backward(const MaxPoolBackward& a) {
  if (a.dtype == kFloat32) scatter_back<float>(a);
  else scatter_back<double>(a);
}

SF_KERNEL(max_pool_kernel, DeviceType::CPU, "native", SF_ISA_PRIORITY, max_pool, is_real)
SF_KERNEL(max_pool_backward_kernel, DeviceType::CPU, "native", SF_ISA_PRIORITY, max_pool_backward, nullptr)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
