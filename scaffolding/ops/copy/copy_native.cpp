// Copy on the CPU: memcpy for rows, element loops with conversion otherwise.
#include <cstring>

#include "scaffolding/backend/cpu/strided.h"
#include "scaffolding/ops/copy/kernel.h"
#include "scaffolding/ops/copy/transpose.h"

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

// Whole numbers from floats: 64 that all fit in 32 bits are converted in vectors.
template <class D, class S> int64_t by_small_numbers(D* d, const S* s, int64_t n) {
  constexpr int64_t kPiece = 64;
  float x[kPiece];
  int64_t i = 0;
  for (; i + kPiece <= n; i += kPiece) {
    int large = 0;
    for (int64_t j = 0; j < kPiece; ++j) {
      if constexpr (std::is_same_v<S, float>) x[j] = s[i + j];
      else x[j] = to_float(s[i + j]);
      large |= !(x[j] < 2147483648.0f && x[j] > -2147483648.0f);
    }
    if (large) break;
    for (int64_t j = 0; j < kPiece; ++j) d[i + j] = D(int32_t(x[j]));
  }
  return i;
}

template <class D, class S> void row(char* dst, int64_t ds, const char* src, int64_t ss, int64_t n) {
  if (ds == sizeof(D) && ss == sizeof(S)) {
    auto* d = reinterpret_cast<D*>(dst);
    auto* s = reinterpret_cast<const S*>(src);
    constexpr bool kFloat = std::is_same_v<S, float> || std::is_same_v<S, BFloat16>;
    if constexpr (std::is_integral_v<D> && !std::is_same_v<D, bool> && kFloat) {
      const int64_t done = by_small_numbers(d, s, n);
      d += done, s += done, n -= done;
    }
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

// A copy across rows, by blocks that are turned (transpose.h).
bool try_transpose(const cpu::StridedLoop& l, int64_t item) {
  if (l.ndim < 2 || l.strides[0][0] != item || l.strides[1][0] == item) return false;
  const int at = l.dense_dimension(1, item);
  if (at == 0 || l.sizes[0] < 8 || l.sizes[at] < 8) return false;
  constexpr int64_t kBand = 64;  // rows of the destination handed to a thread at once
  const TransposeFn transpose = transpose_function();
  l.run_across(at, kBand, std::max<int64_t>(1, kGrain / (kBand * l.sizes[0])), [&](char* const* p, int64_t rows) {
    transpose({p[0], p[1], l.strides[0][at], l.strides[1][0], rows, l.sizes[0], int(item)});
  });
  return true;
}

// A row of bytes. Where both sides lie alike within a page, as a shifted copy's do, memmove takes ten times as long
// (`rep movsb`); below its threshold it uses vectors.
void copy_row(char* to, const char* from, int64_t bytes) {
  constexpr int64_t kPart = 1024;
  const bool apart = to + bytes <= from || from + bytes <= to;
  if (!apart || bytes > (1 << 16)) {
    std::memmove(to, from, size_t(bytes));
    return;
  }
  // Stores a little ahead of the loads within a page would be taken for what is loaded next: from the end, then.
  constexpr int64_t kBlock = 64;
  if (((uintptr_t(to) - uintptr_t(from)) & 4095) < uintptr_t(kPart)) {
    for (; bytes >= kBlock; bytes -= kBlock) std::memcpy(to + bytes - kBlock, from + bytes - kBlock, kBlock);
    std::memcpy(to, from, size_t(bytes));
    return;
  }
  int64_t at = 0;
  for (; at + kPart <= bytes; at += kPart) std::memcpy(to + at, from + at, kPart);
  std::memcpy(to + at, from + at, size_t(bytes - at));
}

// Rows for which a call, and the walk to the next one, would take longer than their bytes: those of attention's heads,
// of small pictures that are padded. The last vector overlaps the one before it.
constexpr int64_t kVector = 16, kShortRow = 512;
bool try_short_rows(const cpu::StridedLoop& l, int64_t item) {
  const int64_t bytes = l.sizes[0] * item;
  if (l.ndim < 2 || l.strides[0][0] != item || l.strides[1][0] != item || bytes < kVector || bytes > kShortRow ||
      l.sizes[1] < 4)
    return false;
  constexpr int64_t kBand = 64;
  const int64_t to_step = l.strides[0][1], from_step = l.strides[1][1];
  l.run_across(1, kBand, std::max<int64_t>(1, kGrain / (kBand * l.sizes[0])), [&](char* const* p, int64_t rows) {
    char* to = p[0];
    const char* from = p[1];
    for (int64_t r = 0; r < rows; ++r, to += to_step, from += from_step) {
      for (int64_t at = 0; at + kVector < bytes; at += kVector) std::memcpy(to + at, from + at, kVector);
      std::memcpy(to + bytes - kVector, from + bytes - kVector, kVector);
    }
  });
  return true;
}

void copy(const Copy& c) {
  cpu::StridedLoop loop{&c.dst, &c.src};
  const int64_t item = int64_t(size_of(c.dst.dtype));
  const bool same = c.dst.dtype == c.src.dtype;
  if (same && (try_transpose(loop, item) || try_short_rows(loop, item))) return;
  const bool pixels = loop.has_pixels() && loop.sizes[0] * item <= 16;
  const int along = pixels ? 1 : 0;
  const int64_t ds = loop.strides[0][along], ss = loop.strides[1][along];
  if (same && ds == item && ss == item && !pixels) {
    loop.run(kGrain, [&](char* const* p, int64_t n) { copy_row(p[0], p[1], n * item); });
    return;
  }
  visit_dtype(c.dst.dtype, [&](auto d) {
    visit_dtype(c.src.dtype, [&](auto s) {
      using D = typename decltype(d)::type;
      using S = typename decltype(s)::type;
      auto part = [&](char* const* p, int64_t n) { row<D, S>(p[0], ds, p[1], ss, n); };
      pixels ? loop.run_pixels(kGrain, part) : loop.run(kGrain, part);
    });
  });
}

SF_KERNEL(copy_kernel, DeviceType::CPU, "native", 0, copy, nullptr)

}  // namespace
}  // namespace sf
