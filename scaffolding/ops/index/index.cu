// Indexing on CUDA. Writes to equal positions happen in the order of the index, without atomics: points are first
// sorted by where they go, and one thread does all of one place. A wrong position is reported (backend/cuda/reports.h)
// and left out, so that no call waits for the GPU and captured graphs check theirs too.
#include "scaffolding/backend/cuda/capture.h"
#include "scaffolding/backend/cuda/cub.h"
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/reports.h"
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/backend/cuda/vec.cuh"
#include "scaffolding/backend/cuda/walk.cuh"
#include "scaffolding/ops/index/kernel.h"

namespace sf::cuda {
namespace {

struct Wrong {
  int32_t found, any;
  int64_t value;
};

// Any thread's will do: each writes a wrong value, and 8 bytes are written at once.
__global__ void __launch_bounds__(kThreads)
    check_positions(Walk<2> w, int64_t low, int64_t high, int64_t stride, bool adds, Report report) {
  uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  if (i >= w.n) return;
  int64_t at[2];
  w.offsets(i, at);
  const int64_t v = *reinterpret_cast<const int64_t*>(w.data[1] + at[1]);
  const bool wrong = v < low || v >= high;
  if (adds) {
    int64_t& offset = *reinterpret_cast<int64_t*>(w.data[0] + at[0]);
    offset = wrong ? INT64_MIN / 2 : offset + (v < 0 ? v + high : v) * stride;
  }
  if (!wrong) return;
  *static_cast<volatile int64_t*>(report.value) = v;
  __threadfence_system();
  *static_cast<volatile int32_t*>(report.raised) = 1;
  __threadfence_system();
  *static_cast<volatile int32_t*>(report.any) = 1;
}

void queue_check(const Positions& k, const Report& report) {
  TensorView offset = k.index;
  if (k.offset) {
    offset.data = k.offset;
    int64_t step = 1;
    for (int d = offset.ndim - 1; d >= 0; --d) offset.strides[d] = step, step *= offset.sizes[d];
  }
  const size_t item[] = {sizeof(int64_t), sizeof(int64_t)};
  for_walks<2>(cpu::StridedLoop{&offset, &k.index}, item, 1, [&](const Walk<2>& w) {
    launch(k.op, k.index.device, blocks_for(w.n, 1), check_positions, w, k.low, k.high, k.stride, k.offset != nullptr,
           report);
  });
}

void positions(const Positions& k) {
  if (k.index.numel() == 0) return;
  if (CudaGraph::recording() || !(k.waits || checks_wait()))
    return queue_check(k, Reports::instance().of(k.op, k.dim, k.high));
  Device device = k.index.device;
  Scratch scratch(device, sizeof(Wrong));
  DeviceScope scope(device.index);
  Stream stream = Stream::current(device.index);
  Wrong* there = scratch.as<Wrong>();
  check(cudaMemsetAsync(there, 0, sizeof(Wrong), stream.handle), k.op);
  queue_check(k, {&there->value, &there->found, &there->any});
  Wrong wrong;
  check(cudaMemcpyAsync(&wrong, there, sizeof wrong, cudaMemcpyDefault, stream.handle), k.op);
  stream.synchronize();
  if (!wrong.found) return;
  *k.bad = wrong.value;
  *k.found = true;
}

template <class F> void by_size(DType t, const F& f) {
  switch (size_of(t)) {
    case 1: return f(uint8_t());
    case 2: return f(uint16_t());
    case 4: return f(uint32_t());
    default: return f(uint64_t());
  }
}

// V elements that lie side by side: in one access where the address, which may come from an index, allows it.
template <class T, int V> __device__ Vec<T, V> load_any(const char* p) {
  if (reinterpret_cast<uintptr_t>(p) % (sizeof(T) * V) == 0) return *reinterpret_cast<const Vec<T, V>*>(p);
  Vec<T, V> x;
#pragma unroll
  for (int v = 0; v < V; ++v) x.v[v] = reinterpret_cast<const T*>(p)[v];
  return x;
}
template <class T, int V> __device__ void store_any(char* p, const Vec<T, V>& x) {
  if (reinterpret_cast<uintptr_t>(p) % (sizeof(T) * V) == 0) {
    *reinterpret_cast<Vec<T, V>*>(p) = x;
    return;
  }
#pragma unroll
  for (int v = 0; v < V; ++v) reinterpret_cast<T*>(p)[v] = x.v[v];
}

// Where all but the indices are dense along dimension 0, which the indices broadcast over: loop's dimension 0 in
// vectors of `lanes`. False elsewhere.
bool in_vectors(cpu::StridedLoop& loop, int dense, int64_t item, int64_t lanes) {
  if (loop.sizes[0] % lanes != 0) return false;
  for (int k = 0; k < loop.operands; ++k)
    if (loop.strides[k][0] != (k < dense ? item : 0)) return false;
  loop.sizes[0] /= lanes;
  for (int k = 0; k < dense; ++k) loop.strides[k][0] *= lanes;
  return true;
}

template <class U, int V>
__global__ void __launch_bounds__(kThreads)
    take_elements(Walk<3> w, int64_t scale, int64_t bound, PreviousGrid previous) {
  constexpr int kEach = 2;  // of a thread, both on their way at once
  uint32_t first = blockIdx.x * uint32_t(kThreads * kEach) + threadIdx.x;
  previous.wait();
  int64_t at[kEach][3];
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    if (first + j * kThreads >= w.n) break;
    w.offsets(first + j * kThreads, at[j]);
    const int64_t position = *reinterpret_cast<const int64_t*>(w.data[2] + at[j][2]);
    at[j][1] += (uint64_t(position) < uint64_t(bound) ? position : 0) * scale;
  }
  Vec<U, V> x[kEach];
#pragma unroll
  for (int j = 0; j < kEach; ++j)
    if (first + j * kThreads < w.n) x[j] = load_any<U, V>(w.data[1] + at[j][1]);
#pragma unroll
  for (int j = 0; j < kEach; ++j)
    if (first + j * kThreads < w.n) store_any(w.data[0] + at[j][0], x[j]);
}

void take(const Take& t) {
  by_size(t.out.dtype, [&](auto u) {
    using U = decltype(u);
    constexpr int V = 16 / int(sizeof(U));
    const size_t item[] = {sizeof(U), sizeof(U), sizeof(int64_t)};
    cpu::StridedLoop loop{&t.out, &t.in, &t.offset};
    auto kernel = in_vectors(loop, 2, int64_t(sizeof(U)), V) ? take_elements<U, V> : take_elements<U, 1>;
    for_walks<3>(loop, item, 1, [&](const Walk<3>& w) {
      launch("take", t.out.device, blocks_for(w.n, 2), kernel, w, t.scale * int64_t(sizeof(U)), t.bound);
    });
  });
}

// ---- writing

// How elements are added: 16-bit floats in float32, rounded once for each place.
template <class T> struct Adding { using type = decltype(widen(T())); };
template <> struct Adding<bool> { using type = bool; };
template <class T> __device__ inline typename Adding<T>::type added(typename Adding<T>::type a, T b) {
  if constexpr (std::is_same_v<T, bool>) return a || b;
  else if constexpr (std::is_integral_v<T>) return T(uint64_t(a) + uint64_t(b));
  else return a + widen(b);
}
template <class T> __device__ inline T rounded(typename Adding<T>::type x) {
  if constexpr (std::is_arithmetic_v<T>) return x;
  else return narrow<T>(x);
}

// Calls f(T{}, accumulate) with the element type where it is added, an integer of its size where it is moved.
template <class F> void by_type(DType t, bool accumulate, const F& f) {
  if (!accumulate) return by_size(t, [&](auto u) { f(u, std::false_type()); });
  visit_dtype(t, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, Float8E4M3> && !std::is_same_v<T, Float8E5M2>) f(T(), std::true_type());
  });
}

struct Along {
  int64_t n, src_step, offset_step, scale;  // steps in bytes along the indexed dimension
  int64_t bound;
};

// A thread per lane (all other dimensions), in order along the indexed one.
template <class T, bool kAdds> __global__ void __launch_bounds__(kThreads) scatter_lanes(Walk<3> w, Along a) {
  uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  if (i >= w.n) return;
  int64_t at[3];
  w.offsets(i, at);
  for (int64_t j = 0; j < a.n; ++j) {
    const int64_t position = *reinterpret_cast<const int64_t*>(w.data[2] + at[2] + j * a.offset_step);
    if (uint64_t(position) >= uint64_t(a.bound)) continue;
    T* y = reinterpret_cast<T*>(w.data[0] + at[0] + position * a.scale);
    T x = *reinterpret_cast<const T*>(w.data[1] + at[1] + j * a.src_step);
    if constexpr (kAdds) *y = rounded<T>(added<T>(typename Adding<T>::type(widen(*y)), x));
    else *y = x;
  }
}

void without_dim(TensorView& v, int dim) {
  for (int d = dim; d + 1 < v.ndim; ++d) {
    v.sizes[d] = v.sizes[d + 1];
    v.strides[d] = v.strides[d + 1];
  }
  --v.ndim;
}

void scatter_by_lanes(const Scatter& s) {
  TensorView out = s.out, src = s.src, offset = s.offset;
  for (TensorView* v : {&out, &src, &offset}) without_dim(*v, s.dim);
  cpu::StridedLoop lanes{&out, &src, &offset};
  by_type(s.out.dtype, s.accumulate, [&](auto t, auto adds) {
    using T = decltype(t);
    int64_t item_size = int64_t(sizeof(T));
    Along a{s.src.sizes[s.dim], s.src.strides[s.dim] * item_size, s.offset.strides[s.dim] * 8, s.scale * item_size,
            s.bound};
    const size_t item[] = {sizeof(T), sizeof(T), sizeof(int64_t)};
    for_walks<3>(lanes, item, 1, [&](const Walk<3>& w) {
      launch("scatter", s.out.device, blocks_for(w.n, 1), scatter_lanes<T, decltype(adds)::value>, w, a);
    });
  });
}

// Offsets as unsigned keys of the same order, and the points' numbers.
__global__ void __launch_bounds__(kThreads)
    number_points(const int64_t* offset, int64_t n, uint64_t* keys, uint32_t* point) {
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  keys[i] = uint64_t(offset[i]) ^ uint64_t(1) << 63;
  point[i] = uint32_t(i);
}

// runs: at the first of equal points how many they are, at the others 0. The points are in order.
__global__ void __launch_bounds__(kThreads)
    count_runs(const int64_t* offset, const uint32_t* order, uint32_t n, uint32_t* runs) {
  uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  if (i >= n) return;
  int64_t mine = offset[order[i]];
  if (i > 0 && offset[order[i - 1]] == mine) {
    runs[i] = 0;
    return;
  }
  uint32_t low = i, high = n;  // equal at low, and not at high
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (offset[order[middle]] == mine) low = middle;
    else high = middle;
  }
  runs[i] = high - i;
}

struct Points {
  const int64_t* offset;
  const uint32_t* order;  // the points by rising offset, equal ones in the order given
  const uint32_t* runs;
};

// The points of n offsets, and their memory.
struct SortedPoints {
  SortedPoints(const char* op, Device device, const int64_t* offset, int64_t n)
      : keys(device, size_t(n) * sizeof(uint64_t)),
        other_keys(device, size_t(n) * sizeof(uint64_t)),
        points(device, size_t(n) * sizeof(uint32_t)),
        other_points(device, size_t(n) * sizeof(uint32_t)),
        runs(device, size_t(n) * sizeof(uint32_t)) {
    launch(op, device, blocks_for(n, 1), number_points, offset, n, keys.as<uint64_t>(), points.as<uint32_t>());
    const uint32_t* order = sort_rows(op, device,
                                      {keys.as<void>(), other_keys.as<void>(), points.as<uint32_t>(),
                                       other_points.as<uint32_t>(), int(sizeof(uint64_t)), 64, 1, n});
    launch(op, device, blocks_for(n, 1), count_runs, offset, order, uint32_t(n), runs.as<uint32_t>());
    sorted = {offset, order, runs.as<const uint32_t>()};
  }
  Scratch keys, other_keys, points, other_points, runs;
  Points sorted;
};

// Where each element goes, in elements from the result's first (negative: nowhere), and where it is, in bytes from the
// source's.
__global__ void __launch_bounds__(kThreads)
    write_places(Walk<3> w, int64_t item, int64_t scale, int64_t bound, int64_t* place, int64_t* from) {
  uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  if (i >= w.n) return;
  int64_t at[3];
  w.offsets(i, at);
  const int64_t position = *reinterpret_cast<const int64_t*>(w.data[2] + at[2]);
  place[i] = uint64_t(position) < uint64_t(bound) ? at[0] / item + position * scale : -1;
  from[i] = at[1];
}

// A thread per place: the first of the elements that go there does them all, in order.
template <class T, bool kAdds>
__global__ void __launch_bounds__(kThreads)
    scatter_points(Points p, const int64_t* from, uint32_t n, const char* src, T* out) {
  uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  uint32_t run = i < n ? p.runs[i] : 0;
  if (run == 0) return;
  const int64_t place = p.offset[p.order[i]];
  if (place < 0) return;
  T* y = out + place;
  if constexpr (kAdds) {
    typename Adding<T>::type sum = widen(*y);
    for (uint32_t k = i; k < i + run; ++k)
      sum = widen(rounded<T>(added<T>(sum, *reinterpret_cast<const T*>(src + from[p.order[k]]))));
    *y = rounded<T>(sum);
  } else {
    *y = *reinterpret_cast<const T*>(src + from[p.order[i + run - 1]]);
  }
}

// The dimension is long and beside it there is little: a thread for each lane would leave the GPU idle. Its elements
// are sorted by where they go.
void scatter_sorted(const Scatter& s) {
  const int64_t n = s.src.numel();
  Device device = s.out.device;
  Scratch place(device, size_t(n) * sizeof(int64_t)), from(device, size_t(n) * sizeof(int64_t));
  by_type(s.out.dtype, s.accumulate, [&](auto t, auto adds) {
    using T = decltype(t);
    const size_t item[] = {sizeof(T), sizeof(T), sizeof(int64_t)};
    // Whatever the order of the walk's dimensions: elements for one place differ in the indexed one alone.
    for_walks<3>(cpu::StridedLoop{&s.out, &s.src, &s.offset}, item, 1, [&](const Walk<3>& w) {
      launch("scatter", device, blocks_for(w.n, 1), write_places, w, int64_t(sizeof(T)), s.scale, s.bound,
             place.as<int64_t>(), from.as<int64_t>());
    });
    SortedPoints points("scatter", device, place.as<const int64_t>(), n);
    launch("scatter", device, blocks_for(n, 1), scatter_points<T, decltype(adds)::value>, points.sorted,
           from.as<const int64_t>(), uint32_t(n), static_cast<const char*>(s.src.data), static_cast<T*>(s.out.data));
  });
}

constexpr int64_t kShort = 64, kManyLanes = 4096;

void scatter(const Scatter& s) {
  const int64_t count = s.src.numel(), along = s.src.sizes[s.dim];
  const bool sorts = count > 0 && along > kShort && count < along * kManyLanes && count <= int64_t(INT32_MAX);
  sorts ? scatter_sorted(s) : scatter_by_lanes(s);
}

struct Slices {
  uint32_t points, threads;  // threads of a point: whole blocks, or as many as it has lanes where those fill less
  int64_t src_step, item, bound;
};

// A thread per V lanes and place: the first of the points that go there does them all, in order.
template <class T, bool kAdds, int V>
__global__ void __launch_bounds__(kThreads) put_lanes(Walk<2> w, Points p, Slices s) {
  const uint32_t thread = blockIdx.x * uint32_t(kThreads) + threadIdx.x, first = thread / s.threads,
                 i = thread - first * s.threads;
  if (first >= s.points || i >= w.n) return;
  const uint32_t run = p.runs[first];
  if (run == 0) return;
  int64_t offset = p.offset[p.order[first]];
  if (uint64_t(offset) >= uint64_t(s.bound)) return;
  int64_t at[2];
  w.offsets(i, at);
  char* y = w.data[0] + at[0] + offset * s.item;
  const char* from = w.data[1] + at[1];
  if constexpr (kAdds) {
    Vec<T, V> old = load_any<T, V>(y);
    typename Adding<T>::type sum[V];
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] = widen(old.v[v]);
    auto add = [&](const Vec<T, V>& x) {
#pragma unroll
      for (int v = 0; v < V; ++v) sum[v] = added<T>(sum[v], x.v[v]);
    };
    constexpr uint32_t kEach = 4;  // on their way at once
    uint32_t k = first, end = first + run;
    for (; k + kEach <= end; k += kEach) {
      Vec<T, V> x[kEach];
#pragma unroll
      for (uint32_t j = 0; j < kEach; ++j) x[j] = load_any<T, V>(from + p.order[k + j] * s.src_step);
#pragma unroll
      for (uint32_t j = 0; j < kEach; ++j) add(x[j]);
    }
    for (; k < end; ++k) add(load_any<T, V>(from + p.order[k] * s.src_step));
#pragma unroll
    for (int v = 0; v < V; ++v) old.v[v] = rounded<T>(sum[v]);
    store_any(y, old);
  } else {
    store_any(y, load_any<T, V>(from + p.order[first + run - 1] * s.src_step));
  }
}

void put(const Put& k) {
  TensorView out = k.out, src = k.src;
  int64_t n = src.sizes[k.dim];
  if (n == 0 || src.numel() == 0) return;
  without_dim(out, k.dim);
  without_dim(src, k.dim);
  Device device = k.out.device;
  SortedPoints points("put", device, k.offset, n);
  cpu::StridedLoop lanes{&out, &src};
  by_type(k.out.dtype, k.accumulate, [&](auto t, auto adds) {
    using T = decltype(t);
    constexpr bool kAdds = decltype(adds)::value;
    constexpr int V = sizeof(T) == 1 ? 8 : 16 / int(sizeof(T));
    auto kernel = in_vectors(lanes, 2, int64_t(sizeof(T)), V) ? put_lanes<T, kAdds, V> : put_lanes<T, kAdds, 1>;
    Slices s{uint32_t(n), 1, k.src.strides[k.dim] * int64_t(sizeof(T)), int64_t(sizeof(T)), k.bound};
    const size_t item[] = {sizeof(T), sizeof(T)};
    for_walks<2>(lanes, item, 1, [&](const Walk<2>& w) {
      // Below 2^32 threads, since n slices have less than 2^31 elements.
      s.threads = w.n < uint32_t(kThreads) ? w.n : blocks_for(w.n, 1) * unsigned(kThreads);
      launch("put", device, blocks_for(n * int64_t(s.threads), 1), kernel, w, points.sorted, s);
    });
  });
}

bool few_enough(const Put& k) { return k.src.numel() <= int64_t(INT32_MAX); }

SF_KERNEL(positions_kernel, DeviceType::CUDA, "native", 0, positions, nullptr)
SF_KERNEL(take_kernel, DeviceType::CUDA, "native", 0, take, nullptr)
SF_KERNEL(scatter_kernel, DeviceType::CUDA, "native", 0, scatter, nullptr)
SF_KERNEL(put_kernel, DeviceType::CUDA, "native", 0, put, few_enough)

}  // namespace
}  // namespace sf::cuda
