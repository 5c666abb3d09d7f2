// softmax on the CPU. A row is read from memory once: its exponentials wait in float32 in the thread's cache (at most
// 256 KiB) until their sum is known. Longer rows are read twice, tile by tile, with a running maximum and sum.
#include "scaffolding/ops/softmax/kernel.h"

#include "scaffolding/backend/cpu/simd_short.h"

namespace sf {
namespace SF_ISA {

static constexpr int64_t kCachedRow = 65536;
static constexpr int64_t kTile = 8192;

#if defined(__AVX512BW__)
// Largest of x[C], C >= 32, compared as integers: sign and magnitude become two's complement. A NaN with a sign counts
// as less than anything (exp finds it later), one without as more.
static float largest(const BFloat16* x, int64_t C) {
  auto key = [](__m512i v) {
    return _mm512_xor_si512(v, _mm512_and_si512(_mm512_srai_epi16(v, 15), _mm512_set1_epi16(0x7fff)));
  };
  auto at = [&](int64_t i) { return key(_mm512_loadu_si512(x + i)); };
  __m512i a = at(0), b = at(C - 32);  // overlaps what follows
  int64_t i = 32;
  for (; i + 64 <= C; i += 64) {
    a = _mm512_max_epi16(a, at(i));
    b = _mm512_max_epi16(b, at(i + 32));
  }
  for (; i + 32 <= C; i += 32) a = _mm512_max_epi16(a, at(i));
  __m512i best = key(_mm512_max_epi16(a, b));  // its own inverse
  alignas(64) BFloat16 lanes[32];
  _mm512_store_si512(lanes, best);
  return reduce_max(max(load(lanes), load(lanes + 16)));
}
#endif

template <class T> SF_INLINE static Acc<T> row_max(const T* x, int64_t C, Vec<T> scale) {
  using V = Vec<T>;
  constexpr int L = kVec<T>;
#if defined(__AVX512BW__)
  if constexpr (std::is_same_v<T, BFloat16>)
    if (C >= 32 && scale.v[0] > 0) return largest(x, C) * scale.v[0];
#endif
  const Acc<T> lowest = -__builtin_inff();
  V a(lowest), b(lowest), c(lowest), d(lowest);
  int64_t i = 0;
  for (; i + 4 * L <= C; i += 4 * L) {  // max keeps its second operand when the first is NaN: exp finds the NaN later
    a = max(load(x + i) * scale, a);
    b = max(load(x + i + L) * scale, b);
    c = max(load(x + i + 2 * L) * scale, c);
    d = max(load(x + i + 3 * L) * scale, d);
  }
  for (; i + L <= C; i += L) a = max(load(x + i) * scale, a);
  if (L > 1 && i < C) {  // absent lanes repeat the first element, which is there
    b = max(load_n(x + i, int(C - i), scalar(x[i])) * scale, b);
  }
  return reduce_max(max(max(a, b), max(c, d)));
}

// e[i] = exp(scale * x[i] - top); returns the sum. e null: the sum only. Brings the next row from memory meanwhile: the
// pass for its maximum would wait for every line.
template <class T> SF_INLINE static Acc<T> row_exp(const T* x, Acc<T>* e, int64_t C, Vec<T> scale, Vec<T> top) {
  return sum_vectors<T>(
      C, [&](int64_t i, int n) __attribute__((always_inline)) {
        __builtin_prefetch(x + C + i);
        Vec<T> v = exp_for<T>(fma(load_n(x + i, n), scale, -top));
        if (e) store_n(e + i, v, n);
        return first_n(v, n);
      });
}

template <class T>
static void forward_row(const T* x, T* y, int64_t C, Acc<T> factor, bool log, Acc<T>* e, bool stream) {
  using V = Vec<T>;
  using A = Acc<T>;
  V scale(factor);
  A top, sum;
  if (C <= kCachedRow) {
    top = row_max<T>(x, C, scale);
    sum = log ? row_exp<T>(x, nullptr, C, scale, V(top)) : row_exp<T>(x, e, C, scale, V(top));
  } else {
    top = -__builtin_inff();
    sum = 0;
    for (int64_t i = 0; i < C; i += kTile) {
      int64_t n = C - i < kTile ? C - i : kTile;
      A tile_top = row_max<T>(x + i, n, scale);
      if (tile_top == -__builtin_inff()) continue;  // nothing to add, and exp(-inf + inf) would be NaN
      A tile = row_exp<T>(x + i, nullptr, n, scale, V(tile_top)), larger = tile_top > top ? tile_top : top;
      sum = sum * exp(top - larger) + tile * exp(tile_top - larger);
      top = larger;
    }
  }
  if (log) {
    V shift(top), rest = V(SF_ISA::log(sum));
    each_vector<T>(
        C, [&](int64_t i, int n)
               __attribute__((always_inline)) { store_n(y + i, fma(load_n(x + i, n), scale, -shift) - rest, n); });
    return;
  }
  V inverse(A(1) / sum);
  if (C > kCachedRow) {
    V shift(top);
    each_vector<T>(
        C, [&](int64_t i, int n) __attribute__((always_inline)) {
          store_n(y + i, exp(fma(load_n(x + i, n), scale, -shift)) * inverse, n);
        });
    return;
  }
  if constexpr (sizeof(T) == 4) {
    if (stream) {
      each_vector<T>(
          C, [&](int64_t i, int) __attribute__((always_inline)) { store_stream(y + i, load(e + i) * inverse); });
      return;
    }
  }
  each_vector<T>(
      C, [&](int64_t i, int n) __attribute__((always_inline)) { store_n(y + i, load_n(e + i, n) * inverse, n); });
}

template <class T> static void forward_rows(const SoftmaxForward& a) {
  int64_t C = a.x.sizes[a.x.ndim - 1], R = C > 0 ? a.x.numel() / C : 0;
  const T* x = a.x.as<const T>();
  T* y = a.y.as<T>();
  Acc<T> scale = Acc<T>(a.scale);
  bool log = a.log;
  bool stream = C % kVec<T> == 0 && streams(x, y, R * C * int64_t(sizeof(T)));
  parallel_for(R, row_grain(C), [=](int64_t begin, int64_t end) {
    auto* e = static_cast<Acc<T>*>(scratch(sizeof(Acc<T>) * size_t(C <= kCachedRow ? C : 1), 0));
    for (int64_t r = begin; r < end; ++r) forward_row<T>(x + r * C, y + r * C, C, scale, log, e, stream);
    if (stream) stream_fence();
  });
}

template <class T> static void backward_rows(const SoftmaxBackward& a) {
  int64_t C = a.y.sizes[a.y.ndim - 1], R = C > 0 ? a.y.numel() / C : 0;
  const T *y = a.y.as<const T>(), *dy = a.dy.as<const T>();
  T* dx = a.dx.as<T>();
  Acc<T> scale = Acc<T>(a.scale);
  bool log = a.log;
  parallel_for(R, row_grain(C), [=](int64_t begin, int64_t end) {
    using V = Vec<T>;
    for (int64_t r = begin; r < end; ++r) {
      const T *yr = y + r * C, *g = dy + r * C;
      T* out = dx + r * C;
      if (log) {
        V total(sum_vectors<T>(
            C, [&](int64_t i, int n) __attribute__((always_inline)) { return load_n(g + i, n); }));
        each_vector<T>(
            C, [&](int64_t i, int n) __attribute__((always_inline)) {
              store_n(out + i, (load_n(g + i, n) - exp(load_n(yr + i, n)) * total) * V(scale), n);
            });
      } else {
        V total(sum_vectors<T>(
            C, [&](int64_t i, int n) __attribute__((always_inline)) { return load_n(g + i, n) * load_n(yr + i, n); }));
        each_vector<T>(
            C, [&](int64_t i, int n) __attribute__((always_inline)) {
              store_n(out + i, (load_n(g + i, n) - total) * load_n(yr + i, n) * V(scale), n);
            });
      }
    }
  });
}

static void forward(const SoftmaxForward& a) {
  visit_floating(a.x.dtype, [&](auto tag) { forward_rows<typename decltype(tag)::type>(a); });
}
static void backward(const SoftmaxBackward& a) {
  visit_floating(a.y.dtype, [&](auto tag) { backward_rows<typename decltype(tag)::type>(a); });
}
static bool forward_supports(const SoftmaxForward& a) {
  return computes(a.x.dtype) && a.y.dtype == a.x.dtype && a.x.ndim > 0 && a.x.is_contiguous() && a.y.is_contiguous();
}
static bool backward_supports(const SoftmaxBackward& a) {
  return computes(a.y.dtype) && a.dy.dtype == a.y.dtype && a.dx.dtype == a.y.dtype && a.y.ndim > 0 &&
         a.y.is_contiguous() && a.dy.is_contiguous() && a.dx.is_contiguous();
}

SF_KERNEL(softmax_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, forward, forward_supports)
SF_KERNEL(softmax_backward, DeviceType::CPU, "native", SF_ISA_PRIORITY, backward, backward_supports)

}  // namespace SF_ISA
}  // namespace sf
