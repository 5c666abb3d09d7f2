// Running sums and products. Several rows advance together where that makes memory contiguous: columns of a row-major
// tensor are scanned as whole rows. Floats accumulate in float64, integers wrap around.
#include "scaffolding/backend/cpu/simd_rows.h"
#include "scaffolding/ops/reduce/kernel.h"

namespace sf {
namespace SF_ISA {
namespace {

constexpr int64_t kTile = 256;  // columns that advance together
constexpr int64_t kShortRow = 16;
constexpr int kRows = 4;    // rows that advance together: each waits for its own last sum alone
constexpr int kPiece = 64;  // of each of them, copied: rows a power of two apart share few lines of the cache

template <class A, class T> SF_INLINE A number(T x) {
  if constexpr (__is_class(T)) return A(to_float(x));
  else return A(x);
}
template <class T, class A> SF_INLINE T stored(A x) {
  if constexpr (__is_class(T)) return from_float<T>(float(x));
  else return T(x);
}

// n elements of a dtype, `step` bytes apart, as the running sums have them. Scans are compiled for two kinds of numbers
// instead of nine dtypes.
template <class A> struct Elements {
  int64_t bytes;  // of one
  void (*read)(A* to, const char* from, int64_t step, int64_t n);
  void (*write)(char* to, int64_t step, const A* from, int64_t n);
};

template <class A, class T>
constexpr Elements<A> kElements{sizeof(T),
                                [](A* to, const char* from, int64_t step, int64_t n) {
                                  if (step == int64_t(sizeof(T)))
                                    for (int64_t j = 0; j < n; ++j)
                                      to[j] = number<A>(reinterpret_cast<const T*>(from)[j]);
                                  else
                                    for (int64_t j = 0; j < n; ++j)
                                      to[j] = number<A>(*reinterpret_cast<const T*>(from + j * step));
                                },
                                [](char* to, int64_t step, const A* from, int64_t n) {
                                  if (step == int64_t(sizeof(T)))
                                    for (int64_t j = 0; j < n; ++j) reinterpret_cast<T*>(to)[j] = stored<T>(from[j]);
                                  else
                                    for (int64_t j = 0; j < n; ++j)
                                      *reinterpret_cast<T*>(to + j * step) = stored<T>(from[j]);
                                }};

struct Steps {
  int64_t in, out, factor;
};  // in bytes

template <Scanning what, class A> constexpr A kFirst = what == Scanning::CumProd ? A(1) : A(0);

template <Scanning what, class A> SF_INLINE A joined(A total, A value) {
  if constexpr (what == Scanning::CumProd) return total * value;
  else return total + value;
}

template <Scanning what, class A>
void row(const Elements<A>& e, const char* in, char* out, const char* factor, Steps along, int64_t n, bool reverse) {
  A piece[kPiece], factors[kPiece], total = kFirst<what, A>;
  if (reverse) {
    in += (n - 1) * along.in, out += (n - 1) * along.out, factor += what == Scanning::Weighted ? n * along.factor : 0;
    along = {-along.in, -along.out, -along.factor};
  }
  for (int64_t k = 0; k < n; k += kPiece) {
    const int64_t m = n - k < kPiece ? n - k : kPiece;
    e.read(piece, in + k * along.in, along.in, m);
    if constexpr (what == Scanning::Weighted) {
      const int64_t lead = k == 0;  // the first has nothing before it
      e.read(factors + lead, factor + (k + lead) * along.factor, along.factor, m - lead);
      if (lead) total = piece[0];
      for (int64_t j = lead; j < m; ++j) piece[j] = total = piece[j] + factors[j] * total;
    } else {
      for (int64_t j = 0; j < m; ++j) piece[j] = total = joined<what>(total, piece[j]);
    }
    e.write(out + k * along.out, along.out, piece, m);
  }
}

// Sums or products of kRows rows.
template <Scanning what, class A>
void rows_together(const Elements<A>& e, const char* const* in, char* const* out, Steps along, int64_t n,
                   bool reverse) {
  A piece[kRows][kPiece + 8];
  A a = kFirst<what, A>, b = a, c = a, d = a;
  const int64_t step_in = reverse ? -along.in : along.in, step_out = reverse ? -along.out : along.out,
                start = reverse ? n - 1 : 0;
  for (int64_t k = 0; k < n; k += kPiece) {
    const int64_t m = n - k < kPiece ? n - k : kPiece;
    for (int r = 0; r < kRows; ++r) e.read(piece[r], in[r] + start * along.in + k * step_in, step_in, m);
    for (int64_t j = 0; j < m; ++j) {
      piece[0][j] = a = joined<what>(a, piece[0][j]), piece[1][j] = b = joined<what>(b, piece[1][j]);
      piece[2][j] = c = joined<what>(c, piece[2][j]), piece[3][j] = d = joined<what>(d, piece[3][j]);
    }
    for (int r = 0; r < kRows; ++r) e.write(out[r] + start * along.out + k * step_out, step_out, piece[r], m);
  }
}

template <Scanning what, class A>
void columns(const Elements<A>& e, const char* in, char* out, const char* factor, Steps along, Steps across, int64_t n,
             int64_t m, bool reverse) {
  A total[kTile], values[kTile], factors[kTile];
  for (int64_t j = 0; j < m; ++j) total[j] = kFirst<what, A>;
  for (int64_t k = 0; k < n; ++k) {
    const int64_t i = reverse ? n - 1 - k : k, link = reverse ? i + 1 : i;  // factor[link] joins the two neighbours
    e.read(values, in + i * along.in, across.in, m);
    if (what == Scanning::Weighted && k > 0) {
      e.read(factors, factor + link * along.factor, across.factor, m);
      for (int64_t j = 0; j < m; ++j) total[j] = values[j] + factors[j] * total[j];
    } else if (what == Scanning::Weighted) {
      for (int64_t j = 0; j < m; ++j) total[j] = values[j];
    } else {
      for (int64_t j = 0; j < m; ++j) total[j] = joined<what>(total[j], values[j]);
    }
    e.write(out + i * along.out, across.out, total, m);
  }
}

// Rows of n elements, at most kShortRow, which follow on from each other: of a picture's colours. kLength: n, or 0.
template <Scanning what, class A, int kLength>
void dense_rows(const Elements<A>& e, const char* in, char* out, int64_t length, int64_t rows) {
  const int64_t n = kLength ? kLength : length, most = kTile / n;
  A values[kTile];
  for (int64_t r = 0; r < rows; r += most, in += most * n * e.bytes, out += most * n * e.bytes) {
    const int64_t now = rows - r < most ? rows - r : most;
    e.read(values, in, e.bytes, now * n);
    for (A *at = values, *end = values + now * n; at < end; at += n)
      for (int64_t k = 1; k < n; ++k) at[k] = joined<what>(at[k - 1], at[k]);
    e.write(out, e.bytes, values, now * n);
  }
}

// Rows of a few elements, each a step from the one before it: to divide for its place would take longer.
template <Scanning what, class A> void short_rows(const Scan& s, const Elements<A>& e, int64_t rows) {
  const int kept = s.in.ndim - 1;
  const int64_t n = s.in.sizes[kept], item = e.bytes;
  const Steps along{s.in.strides[kept] * item, s.out.strides[kept] * item, 0};
  const bool dense = !s.reverse && s.in.is_contiguous() && s.out.is_contiguous();
  const auto dense_of = n == 2   ? &dense_rows<what, A, 2>
                        : n == 3 ? &dense_rows<what, A, 3>
                        : n == 4 ? &dense_rows<what, A, 4>
                                 : &dense_rows<what, A, 0>;
  parallel_for(rows, (1 << 14) / n + 1, [&](int64_t begin, int64_t end) {
    const char* in = s.in.as<const char>();
    char* out = s.out.as<char>();
    if (dense) return dense_of(e, in + begin * n * item, out + begin * n * item, n, end - begin);
    int64_t at[sizeof(s.in.sizes) / sizeof(int64_t)] = {};
    for (int64_t d = kept - 1, rest = begin; d >= 0; rest /= s.in.sizes[d--]) {
      at[d] = rest % s.in.sizes[d];
      in += at[d] * s.in.strides[d] * item;
      out += at[d] * s.out.strides[d] * item;
    }
    for (int64_t r = begin; r < end; ++r) {
      row<what>(e, in, out, nullptr, along, n, s.reverse);
      for (int d = kept - 1; d >= 0; --d) {
        in += s.in.strides[d] * item;
        out += s.out.strides[d] * item;
        if (++at[d] < s.in.sizes[d]) break;
        in -= at[d] * s.in.strides[d] * item;
        out -= at[d] * s.out.strides[d] * item;
        at[d] = 0;
      }
    }
  });
}

template <Scanning what, class A> void run(const Scan& s, const Elements<A>& e) {
  int kept = s.in.ndim - 1;
  int64_t n = s.in.sizes[kept], item = e.bytes;
  auto steps = [&](int d) {
    return Steps{s.in.strides[d] * item, s.out.strides[d] * item, s.factor ? s.factor.strides[d] * item : 0};
  };
  int lane = -1;
  if (s.out.strides[kept] != 1)
    for (int d = 0; d < kept; ++d)
      if (s.out.strides[d] == 1 && s.out.sizes[d] > 1) lane = d;
  if constexpr (what != Scanning::Weighted)
    if (lane < 0 && n <= kShortRow) return short_rows<what>(s, e, s.in.numel() / n);
  int64_t rows = s.in.numel() / n, width = lane < 0 ? 1 : s.in.sizes[lane], tile = width < kTile ? width : kTile,
          tiles = (width + tile - 1) / tile;
  parallel_for(rows / width * tiles, (1 << 14) / (n * tile) + 1, [&](int64_t begin, int64_t end) {
    const char* ins[kRows];
    char* outs[kRows];
    int gathered = 0;
    for (int64_t t = begin; t < end; ++t) {
      int64_t rest = t / tiles, first = (t % tiles) * tile;
      const char *in = s.in.as<const char>(), *factor = s.factor ? s.factor.as<const char>() : nullptr;
      char* out = s.out.as<char>();
      for (int d = kept - 1; d >= 0; --d) {
        int64_t index = first;
        if (d != lane) {
          index = rest % s.in.sizes[d];
          rest /= s.in.sizes[d];
        }
        Steps by = steps(d);
        in += index * by.in;
        out += index * by.out;
        if (factor) factor += index * by.factor;
      }
      if (lane < 0 && what == Scanning::Weighted) {
        row<what>(e, in, out, factor, steps(kept), n, s.reverse);
        continue;
      }
      if (lane < 0) {
        ins[gathered] = in, outs[gathered] = out;
        if (++gathered == kRows) {
          rows_together<what>(e, ins, outs, steps(kept), n, s.reverse);
          gathered = 0;
        }
        continue;
      }
      columns<what>(e, in, out, factor, steps(kept), steps(lane), n, width - first < tile ? width - first : tile,
                    s.reverse);
    }
    for (int r = 0; r < gathered; ++r) row<what>(e, ins[r], outs[r], nullptr, steps(kept), n, s.reverse);
  });
}

template <class A, class T> void by_kind(const Scan& s) {
  const Elements<A>& e = kElements<A, T>;
  switch (s.what) {
    case Scanning::CumSum: return run<Scanning::CumSum>(s, e);
    case Scanning::CumProd: return run<Scanning::CumProd>(s, e);
    default: return run<Scanning::Weighted>(s, e);
  }
}
void scan(const Scan& s) {
  if (s.in.numel() == 0) return;
  switch (s.in.dtype) {
    case kFloat32: return by_kind<double, float>(s);
    case kFloat64: return by_kind<double, double>(s);
    case kFloat16: return by_kind<double, Half>(s);
    case kBFloat16: return by_kind<double, BFloat16>(s);
    case kUInt8: return by_kind<uint64_t, uint8_t>(s);
    case kInt8: return by_kind<uint64_t, int8_t>(s);
    case kInt16: return by_kind<uint64_t, int16_t>(s);
    case kInt32: return by_kind<uint64_t, int32_t>(s);
    default: return by_kind<uint64_t, int64_t>(s);
  }
}
bool supports(const Scan& s) { return !is_float8(s.in.dtype) && s.in.dtype != kBool; }

SF_KERNEL(scan_kernel, DeviceType::CPU, "native", SF_ISA_PRIORITY, scan, supports)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
