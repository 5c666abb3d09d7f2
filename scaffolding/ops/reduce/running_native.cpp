// Running extrema and sums of exponentials on the CPU: a line at a time.
#include <cmath>

#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/reduce/running_kernel.h"

namespace sf {
namespace {

template <class T> T value_of(T x) { return x; }
float value_of(Half x) { return to_float(x); }
float value_of(BFloat16 x) { return to_float(x); }
template <class T, class S> T stored(S x) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) return from_float<T>(float(x));
  else return T(x);
}

// f(first element of line r of each view). Lines are numbered by all dimensions but the last.
template <int N, class F> void each_line(const TensorView* const (&views)[N], const F& f) {
  const TensorView& v = *views[0];
  int last = v.ndim - 1;
  int64_t n = v.sizes[last], lines = v.numel() / n;
  parallel_for(lines, (1 << 13) / n + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      int64_t at[N] = {}, rest = r;
      for (int d = last - 1; d >= 0; --d) {
        for (int k = 0; k < N; ++k) at[k] += rest % v.sizes[d] * views[k]->strides[d];
        rest /= v.sizes[d];
      }
      f(at);
    }
  });
}

template <class T> void extremum(const RunningExtremum& r) {
  int last = r.in.ndim - 1;
  int64_t n = r.in.sizes[last], sx = r.in.strides[last], sv = r.values.strides[last], si = r.indices.strides[last];
  each_line<3>({&r.in, &r.values, &r.indices}, [&](const int64_t* at) {
    auto* x = r.in.as<const T>() + at[0];
    auto* value = r.values.as<T>() + at[1];
    auto* index = r.indices.as<int64_t>() + at[2];
    int64_t best = 0;
    auto most = value_of(x[0]);
    for (int64_t i = 0; i < n; ++i) {
      auto now = value_of(x[i * sx]);
      if (now != now || (most == most && (r.largest ? now >= most : now <= most))) most = now, best = i;
      value[i * sv] = x[best * sx];
      index[i * si] = best;
    }
  });
}
void extremum_cpu(const RunningExtremum& r) {
  visit_dtype(r.in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!is_float8(dtype_of<T>::value)) extremum<T>(r);
  });
}

// The sum is exp(top) * rest with the largest exponent so far as top, in double.
template <class T> void log_sum(const RunningLogSum& r) {
  int last = r.in.ndim - 1;
  int64_t n = r.in.sizes[last], sx = r.in.strides[last], sy = r.out.strides[last];
  each_line<2>({&r.in, &r.out}, [&](const int64_t* at) {
    auto* x = r.in.as<const T>() + at[0];
    auto* y = r.out.as<T>() + at[1];
    double top = -INFINITY, rest = 0;
    for (int64_t k = 0; k < n; ++k) {
      int64_t i = r.reverse ? n - 1 - k : k;
      double now = double(value_of(x[i * sx]));
      if (now > top) {
        rest = (std::isinf(now) ? 0 : rest * std::exp(top - now)) + 1;
        top = now;
      } else if (now != now) {
        top = now;
      } else if (now > -INFINITY && top == top) {
        rest += std::isinf(top) ? 0 : std::exp(now - top);
      }
      y[i * sy] = stored<T>(std::isinf(top) ? top : top + std::log(rest));
    }
  });
}
void log_sum_cpu(const RunningLogSum& r) {
  switch (r.in.dtype) {
    case kFloat64: return log_sum<double>(r);
    case kFloat32: return log_sum<float>(r);
    case kFloat16: return log_sum<Half>(r);
    default: return log_sum<BFloat16>(r);
  }
}

SF_KERNEL(running_extremum_kernel, DeviceType::CPU, "native", 0, extremum_cpu, nullptr)
SF_KERNEL(running_log_sum_kernel, DeviceType::CPU, "native", 0, log_sum_cpu, nullptr)

}  // namespace
}  // namespace sf
