// Copy on the CPU: memcpy for rows, element loops with conversion otherwise.
// A transpose is walked in square tiles so that both sides use whole cache lines.
#include <cstring>

#include "scaffolding/backend/cpu/strided.h"
#include "scaffolding/ops/copy/kernel.h"

namespace sf {
namespace {

constexpr int64_t kGrain = 1 << 15;

template <class D, class S> D convert(S v) {
  if constexpr (std::is_same_v<D, S>) {
    return v;
  } else if constexpr (std::is_same_v<D, bool>) {
    if constexpr (std::is_arithmetic_v<S>) return v != S(0);
    else return to_float(v) != 0;
  } else if constexpr (std::is_arithmetic_v<D>) {
    if constexpr (!std::is_arithmetic_v<S>) return convert<D>(to_float(v));
    else if constexpr (std::is_integral_v<D> && std::is_floating_point_v<S>)
      return D(v != v                           ? 0
               : v >= S(9.2233720368547758e18)  ? INT64_MAX
               : v <= S(-9.2233720368547758e18) ? INT64_MIN
                                                : int64_t(v));
    else return D(v);
  } else {
    if constexpr (std::is_arithmetic_v<S>) return from_float<D>(float(v));
    else return from_float<D>(to_float(v));
  }
}

template <class D, class S> void row(char* dst, int64_t ds, const char* src, int64_t ss, int64_t n) {
  if (ds == sizeof(D) && ss == sizeof(S)) {
    auto* d = reinterpret_cast<D*>(dst);
    auto* s = reinterpret_cast<const S*>(src);
    for (int64_t i = 0; i < n; ++i) d[i] = convert<D>(s[i]);
    return;
  }
  if (ds == sizeof(D) && ss == -int64_t(sizeof(S))) {  // flipped: whole vectors turned around
    auto* d = reinterpret_cast<D*>(dst);
    auto* s = reinterpret_cast<const S*>(src);
    for (int64_t i = 0; i < n; ++i) d[i] = convert<D>(s[-i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    *reinterpret_cast<D*>(dst + i * ds) = convert<D>(*reinterpret_cast<const S*>(src + i * ss));
}

// dst[r][c] = src[c][r] for the two innermost dimensions: 32 x 32 elements at a time.
template <class T>
void transpose_tiles(char* dst, int64_t dst_row, const char* src, int64_t src_col, int64_t rows, int64_t cols) {
  constexpr int64_t kTile = 32;
  for (int64_t r0 = 0; r0 < rows; r0 += kTile)
    for (int64_t c0 = 0; c0 < cols; c0 += kTile)
      for (int64_t r = r0; r < std::min(r0 + kTile, rows); ++r) {
        auto* d = reinterpret_cast<T*>(dst + r * dst_row);
        for (int64_t c = c0; c < std::min(c0 + kTile, cols); ++c)
          d[c] = *reinterpret_cast<const T*>(src + c * src_col + r * int64_t(sizeof(T)));
      }
}

template <class T> bool try_transpose(const cpu::StridedLoop& l) {
  int64_t item = sizeof(T);
  if (l.ndim < 2 || l.strides[0][0] != item || l.strides[1][0] == item) return false;
  int at = 0;  // the dimension that is contiguous in the source
  for (int i = 1; i < l.ndim; ++i)
    if (l.strides[1][i] == item) at = i;
  if (at == 0 || l.sizes[0] < 8 || l.sizes[at] < 8) return false;
  int64_t outer = 1;
  for (int i = 1; i < l.ndim; ++i)
    if (i != at) outer *= l.sizes[i];
  constexpr int64_t kBand = 64;  // rows of the destination handed to a thread at once
  int64_t bands = (l.sizes[at] + kBand - 1) / kBand;
  parallel_for(outer * bands, std::max<int64_t>(1, kGrain / (kBand * l.sizes[0])), [&](int64_t b, int64_t e) {
    for (int64_t w = b; w < e; ++w) {
      int64_t rest = w / bands, r0 = (w % bands) * kBand;
      char* d = l.data[0] + r0 * l.strides[0][at];
      const char* s = l.data[1] + r0 * item;
      for (int i = 1; i < l.ndim; ++i)
        if (i != at) {
          d += (rest % l.sizes[i]) * l.strides[0][i];
          s += (rest % l.sizes[i]) * l.strides[1][i];
          rest /= l.sizes[i];
        }
      transpose_tiles<T>(d, l.strides[0][at], s, l.strides[1][0], std::min(kBand, l.sizes[at] - r0), l.sizes[0]);
    }
  });
  return true;
}

bool same_bits(DType a, DType b) { return a == b; }

void copy(const Copy& c) {
  cpu::StridedLoop loop{&c.dst, &c.src};
  int64_t ds = loop.strides[0][0], ss = loop.strides[1][0], item = int64_t(size_of(c.dst.dtype));
  if (same_bits(c.dst.dtype, c.src.dtype)) {
    if (ds == item && ss == item) {
      loop.run(kGrain, [&](char* const* p, int64_t n) { std::memmove(p[0], p[1], size_t(n * item)); });
      return;
    }
    if (item == 4   ? try_transpose<uint32_t>(loop)
        : item == 2 ? try_transpose<uint16_t>(loop)
        : item == 8 ? try_transpose<uint64_t>(loop)
                    : try_transpose<uint8_t>(loop))
      return;
  }
  visit_dtype(c.dst.dtype, [&](auto d) {
    visit_dtype(c.src.dtype, [&](auto s) {
      using D = typename decltype(d)::type;
      using S = typename decltype(s)::type;
      loop.run(kGrain, [&](char* const* p, int64_t n) { row<D, S>(p[0], ds, p[1], ss, n); });
    });
  });
}

SF_KERNEL(copy_kernel, DeviceType::CPU, "native", 0, copy, nullptr)

}  // namespace
}  // namespace sf
