// Indexing on the CPU. Reads walk the output. Writes to equal positions happen in the order of the index: threads share
// lanes (the elements of a slice), not positions; sums of 16-bit floats are first sorted by destination,
// to add in float32.
#include <atomic>
#include <cstring>
#include <vector>

#include "scaffolding/backend/cpu/strided.h"
#include "scaffolding/ops/index/kernel.h"
#include "scaffolding/ops/index/sorted_points.h"

namespace sf {
namespace {

constexpr int64_t kGrain = 1 << 14;
constexpr int64_t kLooked = 1 << 11;  // positions that are looked at and then used, while the cache has them

// Whether all of n dense positions are in [low, high): a difference below 0 shows in the sum of all bits.
bool all_inside(const int64_t* p, int64_t n, int64_t low, int64_t high) {
  uint64_t outside = 0, first = uint64_t(low), last = uint64_t(high) - 1;
  for (int64_t i = 0; i < n; ++i) outside |= (uint64_t(p[i]) - first) | (last - uint64_t(p[i]));
  return int64_t(outside) >= 0;
}

void positions(const Positions& k) {
  cpu::StridedLoop loop{&k.index};
  if (!k.offset) {
    int64_t step = loop.strides[0][0];
    loop.run(kGrain, [&](char* const* p, int64_t n) {
      if (step == sizeof(int64_t) && all_inside(reinterpret_cast<const int64_t*>(p[0]), n, k.low, k.high)) return;
      for (int64_t i = 0; i < n; ++i) {
        int64_t v = *reinterpret_cast<const int64_t*>(p[0] + i * step);
        if (v < k.low || v >= k.high) [[unlikely]] {  // any thread's find will do
          std::atomic_ref(*k.bad).store(v, std::memory_order_relaxed);
          std::atomic_ref(*k.found).store(true, std::memory_order_relaxed);
          return;
        }
      }
    });
    return;
  }
  const TensorView& x = k.index;
  const auto* p = x.as<const int64_t>();
  int64_t total = x.numel();
  auto add = [&](int64_t i, int64_t v) {
    if (v < k.low || v >= k.high) [[unlikely]] {
      std::atomic_ref(*k.bad).store(v, std::memory_order_relaxed);
      std::atomic_ref(*k.found).store(true, std::memory_order_relaxed);
      return;
    }
    k.offset[i] += (v < 0 ? v + k.high : v) * k.stride;
  };
  if (x.is_contiguous()) {
    parallel_for(total, kGrain, [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i) add(i, p[i]);
    });
    return;
  }
  int64_t index[kMaxDims] = {};  // row-major, to number the offsets
  for (int64_t i = 0; i < total; ++i) {
    add(i, *p);
    for (int d = x.ndim - 1; d >= 0; --d) {
      p += x.strides[d];
      if (++index[d] < x.sizes[d]) break;
      p -= x.strides[d] * x.sizes[d];
      index[d] = 0;
    }
  }
}

// ---- reading

template <class U> void take_as(const Take& t) {
  cpu::StridedLoop loop{&t.out, &t.in, &t.offset};
  int64_t so = loop.strides[0][0], si = loop.strides[1][0], sx = loop.strides[2][0],
          scale = t.scale * int64_t(sizeof(U));
  auto look = [&](const char* x, int64_t n) {
    if (sx == sizeof(int64_t)) return all_inside(reinterpret_cast<const int64_t*>(x), n, 0, t.bound);
    for (int64_t i = 0; i < n; ++i)
      if (!all_inside(reinterpret_cast<const int64_t*>(x + i * sx), 1, 0, t.bound)) return false;
    return true;
  };
  auto take_all = [&](char* const* p, int64_t n) {
    if (sx == 0) {  // one position for the row
      const char* in = p[1] + *reinterpret_cast<const int64_t*>(p[2]) * scale;
      if (so == sizeof(U) && si == sizeof(U)) std::memcpy(p[0], in, size_t(n) * sizeof(U));
      else
        for (int64_t i = 0; i < n; ++i) *reinterpret_cast<U*>(p[0] + i * so) = *reinterpret_cast<const U*>(in + i * si);
      return;
    }
    if (so == sizeof(U) && si == 0 && sx == sizeof(int64_t)) {  // of one line, dense
      auto* y = reinterpret_cast<U*>(p[0]);
      auto* at = reinterpret_cast<const int64_t*>(p[2]);
      if (scale == sizeof(U))
        for (int64_t i = 0; i < n; ++i) y[i] = reinterpret_cast<const U*>(p[1])[at[i]];
      else
        for (int64_t i = 0; i < n; ++i) y[i] = *reinterpret_cast<const U*>(p[1] + at[i] * scale);
      return;
    }
    for (int64_t i = 0; i < n; ++i)
      *reinterpret_cast<U*>(p[0] + i * so) =
          *reinterpret_cast<const U*>(p[1] + i * si + *reinterpret_cast<const int64_t*>(p[2] + i * sx) * scale);
  };
  loop.run(kGrain, [&](char* const* p, int64_t n) {
    if (!t.wrong) return take_all(p, n);
    for (int64_t b = 0; b < n; b += kLooked) {
      int64_t m = std::min(kLooked, n - b);
      char* q[] = {p[0] + b * so, p[1] + b * si, p[2] + b * sx};
      if (look(q[2], m)) take_all(q, m);
      else std::atomic_ref(*t.wrong).store(true, std::memory_order_relaxed);
    }
  });
}
void take(const Take& t) {
  switch (size_of(t.out.dtype)) {
    case 1: return take_as<uint8_t>(t);
    case 2: return take_as<uint16_t>(t);
    case 4: return take_as<uint32_t>(t);
    default: return take_as<uint64_t>(t);
  }
}

// ---- adding

template <class T> T sum_of(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) return a || b;
  else if constexpr (std::is_integral_v<T>) return T(uint64_t(a) + uint64_t(b));
  else if constexpr (std::is_arithmetic_v<T>) return a + b;
  else return from_float<T>(to_float(a) + to_float(b));
}

// Calls f(type_tag<T>, accumulate): T is the element type where it is added, an integer of its size where it is moved.
template <class F> void visit(DType t, bool accumulate, const F& f) {
  if (accumulate)
    return visit_dtype(t, [&](auto tag) {
      // not float8
      if constexpr (sizeof(typename decltype(tag)::type) > 1 || std::is_arithmetic_v<typename decltype(tag)::type>)
        f(tag, std::true_type{});
    });
  switch (size_of(t)) {
    case 1: return f(type_tag<uint8_t>{}, std::false_type{});
    case 2: return f(type_tag<uint16_t>{}, std::false_type{});
    case 4: return f(type_tag<uint32_t>{}, std::false_type{});
    default: return f(type_tag<uint64_t>{}, std::false_type{});
  }
}

void without_dim(TensorView& v, int dim) {
  for (int d = dim; d + 1 < v.ndim; ++d) {
    v.sizes[d] = v.sizes[d + 1];
    v.strides[d] = v.strides[d + 1];
  }
  --v.ndim;
}

void scatter(const Scatter& s) {
  // Lanes (all other dimensions) run in parallel; along dim each lane is written in order.
  TensorView out = s.out, src = s.src, offset = s.offset;
  int64_t item = int64_t(size_of(out.dtype)), n = src.sizes[s.dim], dst = src.strides[s.dim] * item,
          dx = offset.strides[s.dim] * 8;
  without_dim(out, s.dim);
  without_dim(src, s.dim);
  without_dim(offset, s.dim);
  cpu::StridedLoop loop{&out, &src, &offset};
  int64_t so = loop.strides[0][0], ss = loop.strides[1][0], sx = loop.strides[2][0], scale = s.scale * item;
  bool lane_by_lane = dx <= sx;  // which of the two loops walks the index more closely
  visit(s.out.dtype, s.accumulate, [&](auto tag, auto adds) {
    using T = typename decltype(tag)::type;
    auto one = [&](char* const* p, int64_t i, int64_t j) {
      auto* y = reinterpret_cast<T*>(p[0] + i * so + *reinterpret_cast<const int64_t*>(p[2] + i * sx + j * dx) * scale);
      T v = *reinterpret_cast<const T*>(p[1] + i * ss + j * dst);
      if constexpr (decltype(adds)::value) *y = sum_of<T>(*y, v);
      else *y = v;
    };
    loop.run(std::max<int64_t>(1, kGrain / n), [&](char* const* p, int64_t lanes) {
      if (lane_by_lane && scale == int64_t(sizeof(T)) && dst == int64_t(sizeof(T)) && dx == sizeof(int64_t)) {  // dense
        for (int64_t i = 0; i < lanes; ++i) {
          auto* y = reinterpret_cast<T*>(p[0] + i * so);
          auto* x = reinterpret_cast<const T*>(p[1] + i * ss);
          auto* at = reinterpret_cast<const int64_t*>(p[2] + i * sx);
          for (int64_t j = 0; j < n; ++j) {
            if constexpr (decltype(adds)::value) y[at[j]] = sum_of<T>(y[at[j]], x[j]);
            else y[at[j]] = x[j];
          }
        }
        return;
      }
      if (lane_by_lane)
        for (int64_t i = 0; i < lanes; ++i)
          for (int64_t j = 0; j < n; ++j) one(p, i, j);
      else
        for (int64_t j = 0; j < n; ++j)
          for (int64_t i = 0; i < lanes; ++i) one(p, i, j);
    });
  });
}

// ---- whole slices

// The slices of a Put without the dimension of points. Steps in bytes: between lanes of out and src,
// and between points of src.
struct Slices {
  const int64_t* offset;
  int64_t points, out_step, src_step, point_step;
};

// All points in order, n lanes each, from p = {out, src}.
template <class T, bool adds> void write(const Slices& g, char* const* p, int64_t n) {
  for (int64_t j = 0; j < g.points; ++j) {
    if (g.offset[j] < 0) continue;
    char* y = p[0] + g.offset[j] * int64_t(sizeof(T));
    const char* x = p[1] + j * g.point_step;
    bool dense = g.out_step == sizeof(T) && g.src_step == sizeof(T);
    if constexpr (adds) {
      if (dense)
        for (int64_t i = 0; i < n; ++i)
          reinterpret_cast<T*>(y)[i] = sum_of<T>(reinterpret_cast<T*>(y)[i], reinterpret_cast<const T*>(x)[i]);
      else
        for (int64_t i = 0; i < n; ++i) {
          T* to = reinterpret_cast<T*>(y + i * g.out_step);
          *to = sum_of<T>(*to, *reinterpret_cast<const T*>(x + i * g.src_step));
        }
    } else if (dense && n > 1) {
      std::memcpy(y, x, size_t(n) * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i)
        *reinterpret_cast<T*>(y + i * g.out_step) = *reinterpret_cast<const T*>(x + i * g.src_step);
    }
  }
}

// Sums of 16-bit floats in float32: each destination is read and written once.
template <class T> void add_sorted(const Slices& g, const int64_t* order, int64_t count, char* const* p, int64_t n) {
  constexpr int64_t kChunk = 256;
  float sum[kChunk];
  for (int64_t first = 0, last; first < count; first = last) {
    int64_t offset = g.offset[order[first]];
    for (last = first + 1; last < count && g.offset[order[last]] == offset;) ++last;
    char* y = p[0] + offset * int64_t(sizeof(T));
    for (int64_t i0 = 0; i0 < n; i0 += kChunk) {
      int64_t m = std::min(kChunk, n - i0);
      for (int64_t i = 0; i < m; ++i) sum[i] = to_float(*reinterpret_cast<const T*>(y + (i0 + i) * g.out_step));
      for (int64_t j = first; j < last; ++j) {
        const char* x = p[1] + order[j] * g.point_step + i0 * g.src_step;
        for (int64_t i = 0; i < m; ++i) sum[i] += to_float(*reinterpret_cast<const T*>(x + i * g.src_step));
      }
      for (int64_t i = 0; i < m; ++i) {
        T v = from_float<T>(sum[i]);
        std::memcpy(y + (i0 + i) * g.out_step, &v, sizeof v);
      }
    }
  }
}

void put(const Put& k) {
  TensorView out = k.out, src = k.src;
  Slices g{k.offset, src.sizes[k.dim], 0, 0, src.strides[k.dim] * int64_t(size_of(src.dtype))};
  if (g.points == 0) return;
  without_dim(out, k.dim);
  without_dim(src, k.dim);
  cpu::StridedLoop lanes{&out, &src};
  g.out_step = lanes.strides[0][0];
  g.src_step = lanes.strides[1][0];
  int64_t grain = std::max<int64_t>(64, kGrain / g.points);  // whole cache lines of a slice
  if (k.accumulate && is_reduced(out.dtype)) {
    std::vector<int64_t> order(size_t(2 * g.points));
    int64_t count = sort_points(g.offset, g.points, order.data());
    auto* run = out.dtype == kFloat16 ? &add_sorted<Half> : &add_sorted<BFloat16>;
    lanes.run(grain, [&](char* const* p, int64_t n) { run(g, order.data(), count, p, n); });
    return;
  }
  visit(out.dtype, k.accumulate, [&](auto tag, auto adds) {
    using T = typename decltype(tag)::type;
    lanes.run(grain, [&](char* const* p, int64_t n) { write<T, decltype(adds)::value>(g, p, n); });
  });
}

// ---- nonzero

// Pieces are counted, so that each thread knows where its positions go.
void nonzero(const NonZero& k) {
  constexpr int64_t kPiece = 1 << 15;
  const TensorView& x = k.in;
  const int64_t n = x.numel(), pieces = (n + kPiece - 1) / kPiece;
  std::vector<int64_t> first(size_t(pieces + 1));
  visit_dtype(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto holds = [](T v) {
      if constexpr (std::is_arithmetic_v<T>) return v != T(0);
      else return to_float(v) != 0;
    };
    auto each_piece = [&](const auto& f) {
      parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) f(x.as<const T>(), i, i * kPiece, std::min(n, (i + 1) * kPiece));
      });
    };
    each_piece([&](const T* p, int64_t piece, int64_t begin, int64_t end) {
      int32_t count = 0;
      for (int64_t i = begin; i < end; ++i) count += holds(p[i]);
      first[size_t(piece + 1)] = count;
    });
    for (size_t i = 0; i < size_t(pieces); ++i) first[i + 1] += first[i];
    *k.count = first.back();
    if (!k.positions) return;
    // Without a branch: each position is written over until it is one to keep.
    each_piece([&](const T* p, int64_t piece, int64_t begin, int64_t end) {
      const int ndim = x.ndim;
      int64_t* const out = k.positions + first[size_t(piece)] * ndim;
      const int64_t last = ndim ? x.sizes[ndim - 1] : 1, count = first[size_t(piece + 1)] - first[size_t(piece)];
      int64_t index[kMaxDims] = {}, rest = begin / last, found = 0;
      for (int d = ndim - 2; d >= 0; rest /= x.sizes[d--]) index[d] = rest % x.sizes[d];
      for (int64_t i = begin, in_row = begin % last; i < end && found < count; in_row = 0) {
        auto row = [&](const auto& put) {
          for (; in_row < last && found < count; ++in_row, ++i) {
            put(out + found * ndim);
            found += holds(p[i]);
          }
        };
        if (ndim <= 1) row([&](int64_t* to) { *to = in_row; });
        else if (ndim == 2) row([&](int64_t* to) { to[0] = index[0], to[1] = in_row; });
        else
          row([&](int64_t* to) {
            std::copy_n(index, ndim - 1, to);
            to[ndim - 1] = in_row;
          });
        for (int d = ndim - 2; d >= 0 && ++index[d] == x.sizes[d]; --d) index[d] = 0;
      }
    });
  });
}

}  // namespace

// A stable radix sort, 11 bits a pass.
int64_t sort_points(const int64_t* offset, int64_t n, int64_t* order) {
  bool sorted = true;
  int64_t largest = 0, last = -1, count = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (offset[i] < 0) continue;
    order[count++] = i;
    sorted = sorted && offset[i] >= last;
    last = offset[i];
    largest = std::max(largest, last);
  }
  if (sorted) return count;
  constexpr int kBits = 11;
  int64_t *from = order, *to = order + n;
  for (int shift = 0; shift < 63 && largest >> shift; shift += kBits) {
    int64_t start[(1 << kBits) + 1] = {};
    auto digit = [&](int64_t p) { return (offset[p] >> shift) & ((1 << kBits) - 1); };
    for (int64_t i = 0; i < count; ++i) ++start[digit(from[i]) + 1];
    for (int i = 0; i < 1 << kBits; ++i) start[i + 1] += start[i];
    for (int64_t i = 0; i < count; ++i) to[start[digit(from[i])]++] = from[i];
    std::swap(from, to);
  }
  if (from != order) std::memcpy(order, from, size_t(count) * sizeof(int64_t));
  return count;
}

namespace {

SF_KERNEL(positions_kernel, DeviceType::CPU, "native", 0, positions, nullptr)
SF_KERNEL(take_kernel, DeviceType::CPU, "native", 0, take, nullptr)
SF_KERNEL(scatter_kernel, DeviceType::CPU, "native", 0, scatter, nullptr)
SF_KERNEL(put_kernel, DeviceType::CPU, "native", 0, put, nullptr)
SF_KERNEL(nonzero_kernel, DeviceType::CPU, "native", 0, nonzero, nullptr)

}  // namespace
}  // namespace sf
