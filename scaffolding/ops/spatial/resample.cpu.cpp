// Each output row is made in two steps: the input rows it needs are summed into one row of scratch, whole vectors at a
// time, and that row is then shrunk or stretched along the width. Scratch stays in cache;
// input and output are touched once.
#include "scaffolding/backend/cpu/simd.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/spatial/kernel.h"

namespace sf {
namespace SF_ISA {
namespace {

using SF_ISA::load;
using SF_ISA::load_n;
using SF_ISA::store;
using SF_ISA::store_n;

// The vector of a sum: kLanes floats, or one double.
template <class Sum> struct Vector;
template <> struct Vector<float> {
  using type = vf;
  static constexpr int lanes = kLanes;
};
template <> struct Vector<double> {
  using type = double;
  static constexpr int lanes = 1;
};
SF_INLINE double load(const double* p) { return *p; }
SF_INLINE void store(double* p, double v) { *p = v; }
SF_INLINE double load_n(const double* p, int n) { return n ? *p : 0; }
SF_INLINE void store_n(double* p, double v, int n) {
  if (n) *p = v;
}
template <class T> SF_INLINE void store_one(T* p, float v) { *p = from_float<T>(v); }
SF_INLINE void store_one(double* p, double v) { *p = v; }
SF_INLINE const float* weights_of(const TapsView& t, float) { return t.weight32; }
SF_INLINE const double* weights_of(const TapsView& t, double) { return t.weight; }

constexpr int kRows = 8;  // input rows summed in one pass

// out[i] = (add ? out[i] : 0) + sum of weight[r] * row[r][i].
template <class Sum, class T, class O>
SF_INLINE void sum_rows(O* out, const T* const* row, const Sum* weight, int rows, int64_t n, bool add) {
  using V = typename Vector<Sum>::type;
  constexpr int L = Vector<Sum>::lanes;
  int64_t i = 0;
  for (; i + L <= n; i += L) {
    V s = add ? load(out + i) : V(Sum(0));
    for (int r = 0; r < rows; ++r) s = fma(V(weight[r]), load(row[r] + i), s);
    store(out + i, s);
  }
  if (i < n) {
    int m = int(n - i);
    V s = add ? load_n(out + i, m) : V(Sum(0));
    for (int r = 0; r < rows; ++r) s = fma(V(weight[r]), load_n(row[r] + i, m), s);
    store_n(out + i, s, m);
  }
}

// One channel: neighbours in memory are neighbours along the width. K taps per output, known at compile time.
template <int K> SF_INLINE void full_taps(float* y, const float* x, const TapsView& t, int64_t outputs) {
  for (int64_t o = t.full_begin; o < t.full_end; ++o) {
    float s = 0;
    for (int k = 0; k < K; ++k) s += t.by_tap[k * outputs + o] * x[t.start[o] + k];
    y[o] = s;
  }
}
template <class Sum> SF_INLINE void taps_between(Sum* y, const Sum* x, const TapsView& t, int64_t b, int64_t e) {
  const Sum* weight = weights_of(t, Sum());
  for (int64_t o = b; o < e; ++o) {
    const Sum* w = weight + o * t.width;
    const Sum* from = x + t.start[o];
    Sum s = 0;
    for (int k = 0; k < t.count[o]; ++k) s += w[k] * from[k];
    y[o] = s;
  }
}
SF_INLINE void along_width(float* y, const float* x, const TapsView& t, int64_t outputs) {
  bool fixed = t.width >= 1 && t.width <= 4;
  taps_between(y, x, t, 0, fixed ? t.full_begin : outputs);
  if (!fixed) return;
  if (t.width == 1) full_taps<1>(y, x, t, outputs);
  else if (t.width == 2) full_taps<2>(y, x, t, outputs);
  else if (t.width == 3) full_taps<3>(y, x, t, outputs);
  else full_taps<4>(y, x, t, outputs);
  taps_between(y, x, t, t.full_end, outputs);
}
SF_INLINE void along_width(double* y, const double* x, const TapsView& t, int64_t outputs) {
  taps_between(y, x, t, 0, outputs);
}

// Channels innermost: y[o][c] from x[i][c], n channels; y's pixels are `pixel` channels apart.
template <class Sum, class T>
SF_INLINE void along_width(T* y, const Sum* x, const TapsView& t, int64_t outputs, int64_t n, int64_t pixel) {
  using V = typename Vector<Sum>::type;
  constexpr int L = Vector<Sum>::lanes;
  const Sum* weight = weights_of(t, Sum());
  for (int64_t o = 0; o < outputs; ++o) {
    const Sum* w = weight + o * t.width;
    const Sum* from = x + t.start[o] * n;
    int taps = t.count[o];
    int64_t c = 0;
    for (; c + L <= n; c += L) {
      V s(Sum(0));
      for (int k = 0; k < taps; ++k) s = fma(V(w[k]), load(from + k * n + c), s);
      store(y + o * pixel + c, s);
    }
    if (c < n) {
      int m = int(n - c);
      V s(Sum(0));
      for (int k = 0; k < taps; ++k) s = fma(V(w[k]), load_n(from + k * n + c, m), s);
      store_n(y + o * pixel + c, s, m);
    }
  }
}

template <class T, class Sum> SF_INLINE void rows(const Resample& a, int64_t begin, int64_t end) {
  const int64_t* in = a.from.size;
  const int64_t* out = a.to.size;
  int64_t inner = a.from.inner, row_in = in[2] * inner, row_out = out[2] * inner;
  Sum* scratch = static_cast<Sum*>(a.scratch) + thread_index() * a.scratch_per_thread;
  Sum* wide = scratch + in[2] * a.block;
  const TapsView &td = a.taps[0], &th = a.taps[1], &tw = a.taps[2];
  for (int64_t r = begin; r < end; ++r) {
    int64_t h = r % out[1], d = r / out[1] % out[0], n = r / (out[1] * out[0]);
    T* y = static_cast<T*>(a.out) + r * row_out;
    const T* x = static_cast<const T*>(a.in) + n * in[0] * in[1] * row_in;
    const Sum *wd = weights_of(td, Sum()) + d * td.width, *wh = weights_of(th, Sum()) + h * th.width;
    for (int64_t c0 = 0; c0 < inner; c0 += a.block) {
      int64_t channels = a.block < inner - c0 ? a.block : inner - c0;
      // Step one. Rows are contiguous unless channels are done in blocks.
      const T* row[kRows];
      Sum weight[kRows];
      int waiting = 0;
      bool first = true;
      auto flush = [&](auto* to, int64_t pixel) {  // to: `channels` of every `pixel` numbers
        if (channels == inner) {
          sum_rows<Sum>(to, row, weight, waiting, row_in, !first);
        } else {
          for (int64_t w = 0; w < in[2]; ++w) {
            const T* at[kRows];
            for (int i = 0; i < waiting; ++i) at[i] = row[i] + w * inner;
            sum_rows<Sum>(to + w * pixel, at, weight, waiting, channels, !first);
          }
        }
        first = false;
        waiting = 0;
      };
      int total = td.count[d] * th.count[h], seen = 0;
      bool direct = tw.identity && total <= kRows;  // nothing to do along the width, and all rows fit in one pass
      for (int i = 0; i < td.count[d]; ++i)
        for (int j = 0; j < th.count[h]; ++j) {
          row[waiting] = x + ((td.start[d] + i) * in[1] + th.start[h] + j) * row_in + c0;
          weight[waiting++] = wd[i] * wh[j];
          if (++seen < total && waiting == kRows) flush(scratch, channels);
        }
      if (direct) {
        flush(y + c0, inner);
        continue;
      }
      flush(scratch, channels);
      // Step two.
      if (inner > 1) {
        along_width<Sum>(y + c0, scratch, tw, out[2], channels, inner);
      } else if constexpr (__is_same(T, Sum)) {
        along_width(y, scratch, tw, out[2]);
      } else {
        along_width(wide, scratch, tw, out[2]);
        for (int64_t o = 0; o < out[2]; ++o) store_one(y + o, wide[o]);
      }
    }
  }
}

template <class T, class Sum> SF_INLINE void run(const Resample& a) {
  int64_t row = a.to.size[2] * a.to.inner;
  parallel_for(a.to.outer * a.to.size[0] * a.to.size[1], row > 8192 ? 1 : 8192 / row,
               [&](int64_t b, int64_t e) { rows<T, Sum>(a, b, e); });
}

void resample(const Resample& a) {
  if (a.dtype == kFloat32) run<float, float>(a);
  else if (a.dtype == kBFloat16) run<BFloat16, float>(a);
  else if (a.dtype == kFloat16) run<Half, float>(a);
  else run<double, double>(a);
}
bool is_real(const Resample& a) { return is_floating(a.dtype) && !is_float8(a.dtype); }

SF_KERNEL(resample_kernel, DeviceType::CPU, "native", SF_ISA_PRIORITY, resample, is_real)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
