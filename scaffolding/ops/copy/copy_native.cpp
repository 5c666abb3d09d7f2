// Copy on the CPU: memcpy for rows, element loops with conversion otherwise.
#include <cstring>

#include "scaffolding/backend/cpu/strided.h"
#include "scaffolding/ops/copy/kernel.h"
#include "scaffolding/ops/copy/reverse.h"
#include "scaffolding/ops/copy/short_row.h"
#include "scaffolding/ops/copy/transpose.h"
#include "scaffolding/ops/copy/whole_numbers.h"

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
    else if constexpr (std::is_integral_v<D> && std::is_floating_point_v<S>) return whole_number<D>(v);
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
  for (int64_t i = 0; i < n; ++i)
    *reinterpret_cast<D*>(dst + i * ds) = convert<D>(*reinterpret_cast<const S*>(src + i * ss));
}

// A copy across rows, by blocks that are turned (transpose.h).
bool try_transpose(const cpu::StridedLoop& l, int64_t item) {
  if (l.ndim < 2 || l.strides[0][0] != item || l.strides[1][0] == item) return false;
  const int at = l.dense_dimension(1, item);
  if (at == 0 || l.sizes[0] < 8 || l.sizes[at] < 8) return false;
  constexpr int64_t kBand = 64;  // rows of the destination handed to a thread at once
  const auto transpose = host_piece(transpose_tiles);
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
// of small pictures that are padded.
bool try_short_rows(const cpu::StridedLoop& l, int64_t item) {
  const int64_t bytes = l.sizes[0] * item;
  if (l.ndim < 2 || l.strides[0][0] != item || l.strides[1][0] != item || bytes < kLeastShortRow ||
      bytes > kMostShortRow || l.sizes[1] < 4)
    return false;
  constexpr int64_t kBand = 64;
  const int64_t to_step = l.strides[0][1], from_step = l.strides[1][1];
  l.run_across(1, kBand, std::max<int64_t>(1, kGrain / (kBand * l.sizes[0])), [&](char* const* p, int64_t rows) {
    char* to = p[0];
    const char* from = p[1];
    for (int64_t r = 0; r < rows; ++r, to += to_step, from += from_step) copy_short_row(to, from, bytes);
  });
  return true;
}

// What is flipped: the elements of a row, or its pixels.
bool try_reversed(const cpu::StridedLoop& l, int64_t item) {
  const int64_t pixel = l.sizes[0] * item;
  if (l.strides[0][0] != item) return false;
  const auto reverse = host_piece(reverse_groups);
  if (l.strides[1][0] == -item) {
    l.run(kGrain, [&](char* const* p, int64_t n) { reverse({p[0], p[1], n, int(item)}); });
    return true;
  }
  if (l.ndim < 2 || l.strides[1][0] != item || pixel > ReversedGroups::kGroupBytes || l.strides[0][1] != pixel ||
      l.strides[1][1] != -pixel)
    return false;
  const int64_t row = l.sizes[1];
  l.run_across(1, row, std::max<int64_t>(1, kGrain / (l.sizes[0] * row)), [&](char* const* p, int64_t n) {
    reverse({p[0], p[1], n, int(pixel)});
  });
  return true;
}

void copy(const Copy& c) {
  cpu::StridedLoop loop{&c.dst, &c.src};
  const int64_t item = int64_t(size_of(c.dst.dtype));
  const bool same = c.dst.dtype == c.src.dtype;
  if (same && (try_transpose(loop, item) || try_short_rows(loop, item) || try_reversed(loop, item))) return;
  const bool pixels = loop.has_pixels() && loop.sizes[0] * item <= 16;
  const int along = pixels ? 1 : 0;
  const int64_t ds = loop.strides[0][along], ss = loop.strides[1][along];
  if (same && ds == item && ss == item && !pixels) {
    loop.run(kGrain, [&](char* const* p, int64_t n) { copy_row(p[0], p[1], n * item); });
    return;
  }
  const DType from = c.src.dtype, to = c.dst.dtype;
  if (is_integral(to) && (from == kFloat32 || is_reduced(from)) && ds == item && ss == int64_t(size_of(from)) &&
      !pixels) {
    const auto convert_row = host_piece(whole_numbers);
    loop.run(kGrain, [&](char* const* p, int64_t n) { convert_row({p[0], p[1], n, to, from}); });
    return;
  }
  visit_dtype(to, [&](auto d) {
    visit_dtype(from, [&](auto s) {
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
