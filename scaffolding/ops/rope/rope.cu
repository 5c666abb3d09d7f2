// Rotary position embedding on CUDA. A thread takes 16 bytes of pairs that lie side by side, or of each of both halves,
// of a few rows that share their angles (heads); it reads all of a row's before it writes, so that y may be x. A pair
// at a time where sizes, strides or addresses allow no vectors.
#include <algorithm>

#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/real.cuh"
#include "scaffolding/backend/cuda/walk.cuh"
#include "scaffolding/ops/rope/kernel.h"

namespace sf::cuda {
namespace {

// Of a row: units that rotate, then units that are copied.
struct Rotation {
  Walk<4> rows;  // y, x, cos, sin
  Divider units;
  uint32_t first_row, total, rotating;
  uint32_t half, rotated, width;  // elements: R / 2, R, D
  bool interleaved, paired_tables, inverse;
  uint32_t each;           // rows that a thread rotates by the same angles
  int64_t x_step, y_step;  // bytes from one of them to the next
};

template <class A, int n> __device__ void load_numbers(A (&to)[n], const A* from) {
  constexpr int kLanes = n * int(sizeof(A)) < 16 ? n : 16 / int(sizeof(A));
#pragma unroll
  for (int i = 0; i < n; i += kLanes) {
    Vec<A, kLanes> x = *reinterpret_cast<const Vec<A, kLanes>*>(from + i);
#pragma unroll
    for (int j = 0; j < kLanes; ++j) to[i + j] = x.v[j];
  }
}

template <class A> struct Pair { A a, b; };
// a and b, an angle's entries for a and for b.
template <class A> __device__ Pair<A> turned(A a, A b, A cos_a, A sin_a, A cos_b, A sin_b, bool inverse) {
  if (inverse) return {a * cos_a + b * sin_b, b * cos_b - a * sin_a};
  return {a * cos_a - b * sin_a, b * cos_b + a * sin_b};
}

template <class T> struct Row {
  const char* x;
  char* y;
  const real_t<T>*cos, *sin;
  uint32_t unit;
};
template <class T> __device__ Row<T> row_of(const Rotation& r, uint32_t i) {
  uint32_t row = r.units.quotient(i);
  int64_t at[4];
  r.rows.offsets(r.first_row + row, at);
  auto table = [&](int k) { return reinterpret_cast<const real_t<T>*>(r.rows.data[k] + at[k]); };
  return {r.rows.data[1] + at[1], r.rows.data[0] + at[0], table(2), table(3), i - row * r.units.d};
}

template <class T> __global__ void __launch_bounds__(kThreads) rotate_pairs(Rotation r, PreviousGrid previous) {
  uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  previous.wait();
  if (i >= r.total) return;
  Row<T> row = row_of<T>(r, i);
  bool rotates = row.unit < r.rotating;
  uint32_t pair = row.unit, first = r.interleaved ? 2 * pair : pair, second = r.interleaved ? first + 1 : pair + r.half;
  if (!rotates) first = row.unit - r.rotating + r.rotated;
  uint32_t at_first = r.paired_tables ? pair : first, at_second = r.paired_tables ? pair : second;
  real_t<T> cos_a = 0, sin_a = 0, cos_b = 0, sin_b = 0;
  if (rotates)
    cos_a = row.cos[at_first], sin_a = row.sin[at_first], cos_b = row.cos[at_second], sin_b = row.sin[at_second];
#pragma unroll 1
  for (uint32_t n = 0; n < r.each; ++n, row.x += r.x_step, row.y += r.y_step) {
    const T* x = reinterpret_cast<const T*>(row.x);
    T* to = reinterpret_cast<T*>(row.y);
    if (rotates) {
      real_t<T> a = widen(x[first]), b = widen(x[second]);
      auto y = turned(a, b, cos_a, sin_a, cos_b, sin_b, r.inverse);
      to[first] = to_storage<T>(y.a);
      to[second] = to_storage<T>(y.b);
    } else {
      to[first] = x[first];
    }
  }
}

template <class T> __global__ void __launch_bounds__(kThreads) rotate_neighbours(Rotation r, PreviousGrid previous) {
  using A = real_t<T>;
  constexpr int V = 16 / int(sizeof(T));
  uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  previous.wait();
  if (i >= r.total) return;
  Row<T> row = row_of<T>(r, i);
  bool rotates = row.unit < r.rotating;
  A cos[V], sin[V];
  if (rotates && r.paired_tables) {
    A c[V / 2], s[V / 2];
    load_numbers(c, row.cos + row.unit * (V / 2));
    load_numbers(s, row.sin + row.unit * (V / 2));
#pragma unroll
    for (int v = 0; v < V; ++v) cos[v] = c[v / 2], sin[v] = s[v / 2];
  } else if (rotates) {
    load_numbers(cos, row.cos + row.unit * V);
    load_numbers(sin, row.sin + row.unit * V);
  }
#pragma unroll 1
  for (uint32_t n = 0; n < r.each; ++n, row.x += r.x_step, row.y += r.y_step) {
    auto x = reinterpret_cast<const Vec<T, V>*>(row.x)[row.unit];
    if (rotates) {
#pragma unroll
      for (int v = 0; v < V; v += 2) {
        auto y = turned(A(widen(x.v[v])), A(widen(x.v[v + 1])), cos[v], sin[v], cos[v + 1], sin[v + 1], r.inverse);
        x.v[v] = to_storage<T>(y.a), x.v[v + 1] = to_storage<T>(y.b);
      }
    }
    reinterpret_cast<Vec<T, V>*>(row.y)[row.unit] = x;
  }
}

template <class T> __global__ void __launch_bounds__(kThreads) rotate_halves(Rotation r, PreviousGrid previous) {
  using A = real_t<T>;
  constexpr int V = 16 / int(sizeof(T));
  uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  previous.wait();
  if (i >= r.total) return;
  Row<T> row = row_of<T>(r, i);
  bool rotates = row.unit < r.rotating;
  uint32_t first = row.unit * V, second = r.paired_tables ? first : first + r.half;
  A cos_a[V], sin_a[V], cos_b[V], sin_b[V];
  if (rotates) {
    load_numbers(cos_a, row.cos + first);
    load_numbers(sin_a, row.sin + first);
    load_numbers(cos_b, row.cos + second);
    load_numbers(sin_b, row.sin + second);
  }
#pragma unroll 1
  for (uint32_t n = 0; n < r.each; ++n, row.x += r.x_step, row.y += r.y_step) {
    auto* x = reinterpret_cast<const Vec<T, V>*>(row.x);
    auto* y = reinterpret_cast<Vec<T, V>*>(row.y);
    Vec<T, V> b = x[row.unit + r.rotating];
    if (rotates) {
      Vec<T, V> a = x[row.unit];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        auto pair = turned(A(widen(a.v[v])), A(widen(b.v[v])), cos_a[v], sin_a[v], cos_b[v], sin_b[v], r.inverse);
        a.v[v] = to_storage<T>(pair.a), b.v[v] = to_storage<T>(pair.b);
      }
      y[row.unit] = a;
    }
    y[row.unit + r.rotating] = b;
  }
}

TensorView without_last(TensorView v) {
  --v.ndim;
  return v;
}

template <class T> void rope_of(const RopeApply& a) {
  using A = real_t<T>;
  constexpr int V = 16 / int(sizeof(T));
  Rotation r{};
  TensorView y = without_last(a.y), x = without_last(a.x), cos = without_last(a.cos), sin = without_last(a.sin);
  cpu::StridedLoop loop{&y, &x, &cos, &sin};
  int last = a.x.ndim - 1;
  r.width = uint32_t(a.x.sizes[last]), r.rotated = uint32_t(a.cos.sizes[last]) * (a.paired_tables ? 2 : 1),
  r.half = r.rotated / 2;
  r.interleaved = a.interleaved, r.paired_tables = a.paired_tables, r.inverse = a.inverse;
  // Vectors of x and y have 16 bytes; those of the tables up to 16.
  bool vectors = r.width % V == 0 && (a.interleaved ? r.rotated : r.half) % V == 0;
  for (int k = 0; k < 4; ++k) {
    int64_t all = int64_t(reinterpret_cast<uintptr_t>(loop.data[k])),
            fit = k < 2 ? 16 : std::min<int64_t>(16, V / (a.interleaved && a.paired_tables ? 2 : 1) * sizeof(A));
    for (int d = 0; d < loop.ndim; ++d) all |= loop.sizes[d] > 1 ? loop.strides[k][d] : 0;
    vectors = vectors && all % fit == 0;
  }
  // A dimension that the tables broadcast over gives each thread several rows,
  // while there are threads enough for the whole GPU.
  r.each = 1;
  for (int d = 0; d < loop.ndim && r.each == 1; ++d) {
    if (loop.strides[2][d] != 0 || loop.strides[3][d] != 0) continue;
    while (r.each < 4 && loop.sizes[d] % 2 == 0 && a.x.numel() / (int64_t(r.each) * V) >= int64_t(1) << 17)
      loop.sizes[d] /= 2, r.each *= 2;
    r.y_step = loop.strides[0][d], r.x_step = loop.strides[1][d];
    for (int k = 0; k < 4; ++k) loop.strides[k][d] *= r.each;
    if (d > 0) loop.rows /= r.each;
  }
  uint32_t lanes = vectors ? V : 1;
  r.rotating = (vectors && a.interleaved ? r.rotated : r.half) / lanes;
  uint32_t units = r.rotating + (r.width - r.rotated) / lanes;
  r.units = Divider(units);
  const size_t item[] = {sizeof(T), sizeof(T), sizeof(A), sizeof(A)};
  for_walks<4>(loop, item, 1, [&](const Walk<4>& rows) {
    r.rows = rows;
    for (uint32_t n; r.first_row < rows.n; r.first_row += n) {
      n = std::min(rows.n - r.first_row, uint32_t(INT32_MAX) / units);
      r.total = n * units;
      launch("rope", a.x.device, blocks_for(r.total, 1),
             !vectors        ? rotate_pairs<T>
             : a.interleaved ? rotate_neighbours<T>
                             : rotate_halves<T>,
             r);
    }
    r.first_row = 0;
  });
}

void rope(const RopeApply& a) {
  if (a.x.numel() == 0) return;
  as_float(a.x.dtype, [&](auto t) { rope_of<decltype(t)>(a); });
}
SF_KERNEL(rope_apply, DeviceType::CUDA, "native", 0, rope, [](const RopeApply& a) {
  return is_floating(a.x.dtype) && !is_float8(a.x.dtype) && a.x.sizes[a.x.ndim - 1] <= INT32_MAX;
})

}  // namespace
}  // namespace sf::cuda
