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

template <class T> struct Running { using type = uint64_t; };
template <> struct Running<float> { using type = double; };
template <> struct Running<double> { using type = double; };
template <> struct Running<Half> { using type = double; };
template <> struct Running<BFloat16> { using type = double; };

template <class A, class T> SF_INLINE A number(T x) {
  if constexpr (__is_class(T)) return A(to_float(x));
  else return A(x);
}
template <class T, class A> SF_INLINE T stored(A x) {
  if constexpr (__is_class(T)) return from_float<T>(float(x));
  else return T(x);
}

struct Steps {
  int64_t in, out, factor;
};  // in bytes

template <Scanning what, class T>
void row(const char* in, char* out, const char* factor, Steps along, int64_t n, bool reverse) {
  using A = typename Running<T>::type;
  A total = what == Scanning::CumProd ? A(1) : A(0);
  for (int64_t k = 0; k < n; ++k) {
    int64_t i = reverse ? n - 1 - k : k, link = reverse ? i + 1 : i;  // factor[link] joins the two neighbours
    A v = number<A>(*reinterpret_cast<const T*>(in + i * along.in));
    if constexpr (what == Scanning::CumSum) total += v;
    else if constexpr (what == Scanning::CumProd) total *= v;
    else total = k > 0 ? v + number<A>(*reinterpret_cast<const T*>(factor + link * along.factor)) * total : v;
    *reinterpret_cast<T*>(out + i * along.out) = stored<T>(total);
  }
}

// Sums or products of kRows rows.
template <Scanning what, class T>
void rows_together(const char* const* in, char* const* out, Steps along, int64_t n, bool reverse) {
  using A = typename Running<T>::type;
  A piece[kRows][kPiece + 8];
  A first = what == Scanning::CumProd ? A(1) : A(0), a = first, b = first, c = first, d = first;
  int64_t step_in = reverse ? -along.in : along.in, step_out = reverse ? -along.out : along.out,
          start = reverse ? n - 1 : 0;
  for (int64_t k = 0; k < n; k += kPiece) {
    int64_t m = n - k < kPiece ? n - k : kPiece;
    for (int r = 0; r < kRows; ++r) {
      const char* x = in[r] + start * along.in + k * step_in;
      if (step_in == int64_t(sizeof(T)))
        for (int64_t j = 0; j < m; ++j) piece[r][j] = number<A>(reinterpret_cast<const T*>(x)[j]);
      else
        for (int64_t j = 0; j < m; ++j) piece[r][j] = number<A>(*reinterpret_cast<const T*>(x + j * step_in));
    }
    for (int64_t j = 0; j < m; ++j) {
      if constexpr (what == Scanning::CumProd) a *= piece[0][j], b *= piece[1][j], c *= piece[2][j], d *= piece[3][j];
      else a += piece[0][j], b += piece[1][j], c += piece[2][j], d += piece[3][j];
      piece[0][j] = a, piece[1][j] = b, piece[2][j] = c, piece[3][j] = d;
    }
    for (int r = 0; r < kRows; ++r) {
      char* y = out[r] + start * along.out + k * step_out;
      if (step_out == int64_t(sizeof(T)))
        for (int64_t j = 0; j < m; ++j) reinterpret_cast<T*>(y)[j] = stored<T>(piece[r][j]);
      else
        for (int64_t j = 0; j < m; ++j) *reinterpret_cast<T*>(y + j * step_out) = stored<T>(piece[r][j]);
    }
  }
}

template <Scanning what, class T>
void columns(const char* in, char* out, const char* factor, Steps along, Steps across, int64_t n, int64_t m,
             bool reverse) {
  using A = typename Running<T>::type;
  A total[kTile];
  for (int64_t j = 0; j < m; ++j) total[j] = what == Scanning::CumProd ? A(1) : A(0);
  for (int64_t k = 0; k < n; ++k) {
    int64_t i = reverse ? n - 1 - k : k, link = reverse ? i + 1 : i;
    const char* x = in + i * along.in;
    char* y = out + i * along.out;
    for (int64_t j = 0; j < m; ++j) {
      A v = number<A>(*reinterpret_cast<const T*>(x + j * across.in));
      if constexpr (what == Scanning::CumSum) v = total[j] + v;
      else if constexpr (what == Scanning::CumProd) v = total[j] * v;
      else if (k > 0)
        v += number<A>(*reinterpret_cast<const T*>(factor + link * along.factor + j * across.factor)) * total[j];
      total[j] = v;
      *reinterpret_cast<T*>(y + j * across.out) = stored<T>(v);
    }
  }
}

// Rows of kLength elements, which follow on from each other: of a picture's colours.
template <Scanning what, class T, int kLength> void dense_rows(const T* in, T* out, int64_t rows) {
  using A = typename Running<T>::type;
  for (int64_t r = 0; r < rows; ++r, in += kLength, out += kLength) {
    A total = number<A>(in[0]);
    out[0] = stored<T>(total);
    for (int k = 1; k < kLength; ++k) {
      if constexpr (what == Scanning::CumProd) total *= number<A>(in[k]);
      else total += number<A>(in[k]);
      out[k] = stored<T>(total);
    }
  }
}

// Rows of a few elements, each a step from the one before it: to divide for its place would take longer.
template <Scanning what, class T> void short_rows(const Scan& s, int64_t rows) {
  const int kept = s.in.ndim - 1;
  const int64_t n = s.in.sizes[kept];
  const Steps along{s.in.strides[kept] * int64_t(sizeof(T)), s.out.strides[kept] * int64_t(sizeof(T)), 0};
  const bool dense = !s.reverse && s.in.is_contiguous() && s.out.is_contiguous();
  const auto dense_of = n == 2   ? &dense_rows<what, T, 2>
                        : n == 3 ? &dense_rows<what, T, 3>
                        : n == 4 ? &dense_rows<what, T, 4>
                                 : nullptr;
  parallel_for(rows, (1 << 14) / n + 1, [&](int64_t begin, int64_t end) {
    if (dense && dense_of) return dense_of(s.in.as<const T>() + begin * n, s.out.as<T>() + begin * n, end - begin);
    int64_t at[sizeof(s.in.sizes) / sizeof(int64_t)] = {};
    const T* in = s.in.as<const T>();
    T* out = s.out.as<T>();
    for (int64_t d = kept - 1, rest = begin; d >= 0; rest /= s.in.sizes[d--]) {
      at[d] = rest % s.in.sizes[d];
      in += at[d] * s.in.strides[d];
      out += at[d] * s.out.strides[d];
    }
    for (int64_t r = begin; r < end; ++r) {
      row<what, T>(reinterpret_cast<const char*>(in), reinterpret_cast<char*>(out), nullptr, along, n, s.reverse);
      for (int d = kept - 1; d >= 0; --d) {
        in += s.in.strides[d];
        out += s.out.strides[d];
        if (++at[d] < s.in.sizes[d]) break;
        in -= at[d] * s.in.strides[d];
        out -= at[d] * s.out.strides[d];
        at[d] = 0;
      }
    }
  });
}

template <Scanning what, class T> void run(const Scan& s) {
  int kept = s.in.ndim - 1;
  int64_t n = s.in.sizes[kept], item = sizeof(T);
  auto steps = [&](int d) {
    return Steps{s.in.strides[d] * item, s.out.strides[d] * item, s.factor ? s.factor.strides[d] * item : 0};
  };
  int lane = -1;
  if (s.out.strides[kept] != 1)
    for (int d = 0; d < kept; ++d)
      if (s.out.strides[d] == 1 && s.out.sizes[d] > 1) lane = d;
  if constexpr (what != Scanning::Weighted)
    if (lane < 0 && n <= kShortRow) return short_rows<what, T>(s, s.in.numel() / n);
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
        row<what, T>(in, out, factor, steps(kept), n, s.reverse);
        continue;
      }
      if (lane < 0) {
        ins[gathered] = in, outs[gathered] = out;
        if (++gathered == kRows) {
          rows_together<what, T>(ins, outs, steps(kept), n, s.reverse);
          gathered = 0;
        }
        continue;
      }
      columns<what, T>(in, out, factor, steps(kept), steps(lane), n, width - first < tile ? width - first : tile,
                       s.reverse);
    }
    for (int r = 0; r < gathered; ++r) row<what, T>(ins[r], outs[r], nullptr, steps(kept), n, s.reverse);
  });
}

template <class T> void by_kind(const Scan& s) {
  switch (s.what) {
    case Scanning::CumSum: return run<Scanning::CumSum, T>(s);
    case Scanning::CumProd: return run<Scanning::CumProd, T>(s);
    default: return run<Scanning::Weighted, T>(s);
  }
}
void scan(const Scan& s) {
  if (s.in.numel() == 0) return;
  switch (s.in.dtype) {
    case kFloat32: return by_kind<float>(s);
    case kFloat64: return by_kind<double>(s);
    case kFloat16: return by_kind<Half>(s);
    case kBFloat16: return by_kind<BFloat16>(s);
    case kUInt8: return by_kind<uint8_t>(s);
    case kInt8: return by_kind<int8_t>(s);
    case kInt16: return by_kind<int16_t>(s);
    case kInt32: return by_kind<int32_t>(s);
    default: return by_kind<int64_t>(s);
  }
}
bool supports(const Scan& s) { return !is_float8(s.in.dtype) && s.in.dtype != kBool; }

SF_KERNEL(scan_kernel, DeviceType::CPU, "native", SF_ISA_PRIORITY, scan, supports)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
