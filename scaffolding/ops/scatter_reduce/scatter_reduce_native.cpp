// Products and extrema on the CPU: lines along the dimension, each by one thread in its order.
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/scatter_reduce/kernel.h"

namespace sf {
namespace {

template <class T> T value_of(T x) { return x; }
float value_of(Half x) { return to_float(x); }
float value_of(BFloat16 x) { return to_float(x); }

template <class T> bool wins(T a, T b, bool largest) {
  auto x = value_of(a), y = value_of(b);
  return x != x || (y == y && (largest ? x > y : x < y));
}
template <class T> T times(T a, T b) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) return from_float<T>(to_float(a) * to_float(b));
  else if constexpr (std::is_same_v<T, bool>) return a && b;
  else if constexpr (std::is_integral_v<T>) return T(uint64_t(a) * uint64_t(b));  // wraps
  else return a * b;
}

template <class T> void lines(const ScatterReduce& s) {
  int64_t n = s.index.sizes[s.dim], count = s.index.numel() / n;
  int64_t si = s.index.strides[s.dim], ss = s.src.strides[s.dim], so = s.out.strides[s.dim];
  parallel_for(count, (1 << 13) / n + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      auto* index = s.index.as<const int64_t>();
      auto* src = s.src.as<const T>();
      auto* out = s.out.as<T>();
      int64_t rest = r;
      for (int d = s.index.ndim - 1; d >= 0; --d) {
        if (d == s.dim) continue;
        int64_t at = rest % s.index.sizes[d];
        rest /= s.index.sizes[d];
        index += at * s.index.strides[d], src += at * s.src.strides[d], out += at * s.out.strides[d];
      }
      for (int64_t i = 0; i < n; ++i) {
        T& y = out[index[i * si] * so];
        T x = src[i * ss];
        if (s.what == ScatterReduce::Prod) y = times(y, x);
        else if (wins(x, y, s.what == ScatterReduce::Max)) y = x;
      }
    }
  });
}

void scatter_reduce_cpu(const ScatterReduce& s) {
  visit_dtype(s.out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!is_float8(dtype_of<T>::value)) lines<T>(s);
  });
}

SF_KERNEL(scatter_reduce_kernel, DeviceType::CPU, "native", 0, scatter_reduce_cpu, nullptr)

}  // namespace
}  // namespace sf
