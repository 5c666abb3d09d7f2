// The largest or smallest element of a dimension and where it is.
// A row is compared 512 elements at a time in vectors; only a piece that beats the best so far is searched for the
// place.
// Where a kept dimension is contiguous instead, whole rows are compared with a row of best values, without a transpose.
#include "scaffolding/backend/cpu/simd_rows.h"
#include "scaffolding/ops/reduce/kernel.h"

namespace sf {
namespace SF_ISA {
namespace {

constexpr int64_t kPiece = 512;
constexpr int kWays = 64;

template <class T> struct Compared { using type = T; };
template <> struct Compared<Half> { using type = float; };
template <> struct Compared<BFloat16> { using type = float; };
template <class T> SF_INLINE T number(T x) { return x; }
SF_INLINE float number(Half x) { return to_float(x); }
SF_INLINE float number(BFloat16 x) { return to_float(x); }

// an integer of C's width, so that comparisons stay in its lanes
template <class C>
using Mask = std::conditional_t<
    sizeof(C) == 8, int64_t,
    std::conditional_t<sizeof(C) == 4, int32_t, std::conditional_t<sizeof(C) == 2, int16_t, int8_t>>>;

template <bool largest, class C> SF_INLINE bool beats(C a, C b) { return largest ? a > b : a < b; }
// NaN beats every number, and nothing beats the first NaN.
template <bool largest, class C> SF_INLINE bool wins(C a, C b) { return beats<largest>(a, b) || (a != a && b == b); }

template <bool largest, class T> void row_best(const char* x, int64_t step, int64_t n, T* value, int64_t* index) {
  using C = typename Compared<T>::type;
  alignas(64) C piece[kPiece];
  C best{};
  int64_t at = -1;
  for (int64_t b = 0; b < n; b += kPiece) {
    int64_t m = n - b < kPiece ? n - b : kPiece;
    const C* p = piece;
    if (sizeof(C) == sizeof(T) && step == int64_t(sizeof(T))) {
      p = reinterpret_cast<const C*>(x + b * step);
    } else {
      for (int64_t i = 0; i < m; ++i) piece[i] = number(*reinterpret_cast<const T*>(x + (b + i) * step));
    }
    if (m < 2 * kWays) {
      for (int64_t i = 0; i < m; ++i) {
        if (at >= 0 && !wins<largest>(p[i], best)) continue;
        best = p[i];
        at = b + i;
      }
      if (best != best) break;
      continue;
    }
    // The piece's best in vectors, and only where it is better, its first place.
    C top[kWays];
    Mask<C> none[kWays] = {};  // NaN
    int64_t i = 0;
    for (int k = 0; k < kWays; ++k) top[k] = p[k];
    for (; i + kWays <= m; i += kWays)
      for (int k = 0; k < kWays; ++k) {
        C v = p[i + k];
        none[k] |= Mask<C>(v != v);
        top[k] = beats<largest>(v, top[k]) ? v : top[k];
      }
    for (; i < m; ++i) {
      none[0] |= Mask<C>(p[i] != p[i]);
      top[0] = beats<largest>(p[i], top[0]) ? p[i] : top[0];
    }
    bool any = false;
    C here = top[0];
    for (int k = 0; k < kWays; ++k) {
      any |= none[k] != 0;
      here = beats<largest>(top[k], here) ? top[k] : here;
    }
    if (any) {
      for (i = 0; p[i] == p[i];) ++i;
      at = b + i;
      break;  // nothing beats the first NaN
    }
    if (at >= 0 && !beats<largest>(here, best)) continue;
    best = here;
    for (i = 0; i + kWays <= m; i += kWays) {
      Mask<C> found = 0;
      for (int k = 0; k < kWays; ++k) found |= Mask<C>(p[i + k] == here);
      if (found) break;
    }
    while (p[i] != here) ++i;
    at = b + i;
  }
  *index = at;
  if (value) *value = *reinterpret_cast<const T*>(x + at * step);
}

// n rows of m contiguous elements, m <= kPiece.
template <bool largest, class T>
void columns_best(const char* x, int64_t row_bytes, int64_t n, int64_t m, int64_t out_step, T* values,
                  int64_t* indices) {
  using C = typename Compared<T>::type;
  alignas(64) C best[kPiece];
  alignas(64) int64_t at[kPiece];
  for (int64_t j = 0; j < m; ++j) {
    best[j] = number(reinterpret_cast<const T*>(x)[j]);
    at[j] = 0;
  }
  for (int64_t i = 1; i < n; ++i) {
    auto* row = reinterpret_cast<const T*>(x + i * row_bytes);
    for (int64_t j = 0; j < m; ++j) {
      C v = number(row[j]);
      bool take = wins<largest>(v, best[j]);
      best[j] = take ? v : best[j];
      at[j] = take ? i : at[j];
    }
  }
  for (int64_t j = 0; j < m; ++j) {
    indices[j * out_step] = at[j];
    if (values) values[j * out_step] = *reinterpret_cast<const T*>(x + at[j] * row_bytes + j * int64_t(sizeof(T)));
  }
}

template <bool largest, class T> void run(const ArgReduce& r) {
  int kept = r.in.ndim - 1;
  int64_t n = r.in.sizes[kept], item = sizeof(T), step = r.in.strides[kept] * item, outputs = r.indices.numel();
  auto* values = r.values ? r.values.as<T>() : nullptr;
  auto* indices = r.indices.as<int64_t>();
  // The lane: a contiguous kept dimension, compared column by column.
  int lane = -1;
  if (step != item)
    for (int d = 0; d < kept; ++d)
      if (r.in.strides[d] == 1 && r.in.sizes[d] >= 8) lane = d;
  int64_t width = lane < 0 ? 1 : r.in.sizes[lane],
          tile = lane < 0         ? 1
                 : width < kPiece ? width
                                  : kPiece,
          tiles = (width + tile - 1) / tile;
  int64_t tasks = outputs / width * tiles;
  parallel_for(tasks, (1 << 15) / (n * tile) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      int64_t rest = t / tiles, first = (t % tiles) * tile, out = 0;
      const char* x = r.in.as<const char>();
      for (int d = kept - 1; d >= 0; --d) {
        int64_t index = first;
        if (d != lane) {
          index = rest % r.in.sizes[d];
          rest /= r.in.sizes[d];
        }
        x += index * r.in.strides[d] * item;
        out += index * r.indices.strides[d];
      }
      T* v = values ? values + out : nullptr;
      if (lane < 0) row_best<largest, T>(x, step, n, v, indices + out);
      else
        columns_best<largest, T>(x, step, n, width - first < tile ? width - first : tile, r.indices.strides[lane], v,
                                 indices + out);
    }
  });
}

template <bool largest> void by_dtype(const ArgReduce& r) {
  switch (r.in.dtype) {
    case kFloat32: return run<largest, float>(r);
    case kFloat64: return run<largest, double>(r);
    case kFloat16: return run<largest, Half>(r);
    case kBFloat16: return run<largest, BFloat16>(r);
    case kUInt8:
    case kBool: return run<largest, uint8_t>(r);
    case kInt8: return run<largest, int8_t>(r);
    case kInt16: return run<largest, int16_t>(r);
    case kInt32: return run<largest, int32_t>(r);
    default: return run<largest, int64_t>(r);
  }
}
void arg_reduce(const ArgReduce& r) {
  if (r.indices.numel() == 0) return;
  if (r.largest) by_dtype<true>(r);
  else by_dtype<false>(r);
}
bool supports(const ArgReduce& r) { return !is_float8(r.in.dtype); }

SF_KERNEL(arg_reduce_kernel, DeviceType::CPU, "native", SF_ISA_PRIORITY, arg_reduce, supports)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
