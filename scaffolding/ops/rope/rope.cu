// Rotary position embedding on CUDA: a thread per pair, which reads both elements before it writes them, so that y may be x.
#include "scaffolding/backend/cuda/element.cuh"
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/real.cuh"
#include "scaffolding/ops/rope/kernel.h"

namespace sf::cuda {
namespace {

template <class T> struct Rotation {
  const T* x;
  T* y;
  const real_t<T>*cos, *sin;
  RowPlaces x_rows, y_rows, cos_rows, sin_rows;
  int64_t pairs, rotated, total;  // of a row: all pairs, the last of them half a pair where D is odd, and those that rotate
  int64_t width;
  bool interleaved, paired_tables, inverse;
};

template <class T> __global__ void __launch_bounds__(kThreads) rotate_pairs(Rotation<T> r) {
  using A = real_t<T>;
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= r.total) return;
  int64_t row = i / r.pairs, pair = i % r.pairs;
  const T* x = r.x + r.x_rows.at(row);
  T* y = r.y + r.y_rows.at(row);
  if (pair >= r.rotated) {
    for (int64_t k = 2 * pair; k < 2 * pair + 2 && k < r.width; ++k) y[k] = x[k];
    return;
  }
  const A *cos = r.cos + r.cos_rows.at(row), *sin = r.sin + r.sin_rows.at(row);
  int64_t first = r.interleaved ? 2 * pair : pair, second = r.interleaved ? first + 1 : pair + r.rotated;
  int64_t at_first = r.paired_tables ? pair : first, at_second = r.paired_tables ? pair : second;
  A a = widen(x[first]), b = widen(x[second]), c1 = cos[at_first], s1 = sin[at_first], c2 = cos[at_second], s2 = sin[at_second];
  y[first] = to_storage<T>(r.inverse ? a * c1 + b * s2 : a * c1 - b * s1);
  y[second] = to_storage<T>(r.inverse ? b * c2 - a * s1 : b * c2 + a * s2);
}

void rope(const RopeApply& a) {
  int last = a.x.ndim - 1;
  if (a.x.numel() == 0) return;
  as_float(a.x.dtype, [&](auto t) {
    using T = decltype(t);
    Rotation<T> r{};
    r.x = a.x.as<const T>(), r.y = a.y.as<T>(), r.cos = a.cos.as<const real_t<T>>(), r.sin = a.sin.as<const real_t<T>>();
    r.x_rows = RowPlaces(a.x), r.y_rows = RowPlaces(a.y), r.cos_rows = RowPlaces(a.cos), r.sin_rows = RowPlaces(a.sin);
    r.width = a.x.sizes[last], r.pairs = (r.width + 1) / 2, r.rotated = a.cos.sizes[last] / (a.paired_tables ? 1 : 2);
    r.total = a.x.numel() / r.width * r.pairs;
    r.interleaved = a.interleaved, r.paired_tables = a.paired_tables, r.inverse = a.inverse;
    launch("rope", a.x.device, blocks_for(r.total, 1), rotate_pairs<T>, r);
  });
}
SF_KERNEL(rope_apply, DeviceType::CUDA, "native", 0, rope, [](const RopeApply& a) { return is_floating(a.x.dtype) && !is_float8(a.x.dtype); })

}  // namespace
}  // namespace sf::cuda
