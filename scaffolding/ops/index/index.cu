// Indexing on CUDA. Writes to equal positions happen in the order of the index, without atomics: points are first sorted by where
// they go, and one thread does all of one place. Checking positions waits for the GPU, so that a wrong one is an error here. In a captured graph
// nothing can wait: there a wrong one stops the replay (CUDA's "unspecified launch failure"), as it stops every call in PyTorch.
#include "scaffolding/backend/cuda/capture.h"
#include "scaffolding/backend/cuda/cub.h"
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/backend/cuda/vec.cuh"
#include "scaffolding/backend/cuda/walk.cuh"
#include "scaffolding/ops/index/kernel.h"

namespace sf::cuda {
namespace {

struct Wrong {
  int64_t found, value;
};

__global__ void __launch_bounds__(kThreads) check_positions(Walk<2> w, int64_t low, int64_t high, int64_t stride, bool adds, Wrong* wrong) {
  uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  if (i >= w.n) return;
  int64_t at[2];
  w.offsets(i, at);
  int64_t v = *reinterpret_cast<const int64_t*>(w.data[1] + at[1]);
  if (v < low || v >= high) {  // any thread's will do
    wrong->value = v;
    wrong->found = 1;
  } else if (adds) {
    *reinterpret_cast<int64_t*>(w.data[0] + at[0]) += (v < 0 ? v + high : v) * stride;
  }
}

__global__ void stop_if_wrong(const Wrong* wrong) {
  if (wrong->found) __trap();
}

void positions(const Positions& k) {
  if (k.index.numel() == 0) return;
  Device device = k.index.device;
  TensorView offset = k.index;
  if (k.offset) {
    offset.data = k.offset;
    int64_t step = 1;
    for (int d = offset.ndim - 1; d >= 0; --d) offset.strides[d] = step, step *= offset.sizes[d];
  }
  Scratch scratch(device, sizeof(Wrong));
  DeviceScope scope(device.index);
  Stream stream = Stream::current(device.index);
  check(cudaMemsetAsync(scratch.as<Wrong>(), 0, sizeof(Wrong), stream.handle), "index");
  const size_t item[] = {sizeof(int64_t), sizeof(int64_t)};
  for_walks<2>(cpu::StridedLoop{&offset, &k.index}, item, 1, [&](const Walk<2>& w) {
    launch("index", device, blocks_for(w.n, 1), check_positions, w, k.low, k.high, k.stride, k.offset != nullptr, scratch.as<Wrong>());
  });
  if (CudaGraph::recording()) return launch("index", device, 1, stop_if_wrong, static_cast<const Wrong*>(scratch.as<Wrong>()));
  Wrong wrong;
  check(cudaMemcpyAsync(&wrong, scratch.as<Wrong>(), sizeof wrong, cudaMemcpyDefault, stream.handle), "index");
  stream.synchronize();
  if (!wrong.found) return;
  *k.bad = wrong.value;
  *k.found = true;
}

template <class U> __global__ void __launch_bounds__(kThreads) take_elements(Walk<3> w, int64_t scale) {
  uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  if (i >= w.n) return;
  int64_t at[3];
  w.offsets(i, at);
  int64_t offset = *reinterpret_cast<const int64_t*>(w.data[2] + at[2]) * scale;
  *reinterpret_cast<U*>(w.data[0] + at[0]) = *reinterpret_cast<const U*>(w.data[1] + at[1] + offset);
}

template <class F> void by_size(DType t, const F& f) {
  switch (size_of(t)) {
    case 1: return f(uint8_t());
    case 2: return f(uint16_t());
    case 4: return f(uint32_t());
    default: return f(uint64_t());
  }
}

void take(const Take& t) {
  by_size(t.out.dtype, [&](auto u) {
    using U = decltype(u);
    const size_t item[] = {sizeof(U), sizeof(U), sizeof(int64_t)};
    for_walks<3>(cpu::StridedLoop{&t.out, &t.in, &t.offset}, item, 1,
                 [&](const Walk<3>& w) { launch("take", t.out.device, blocks_for(w.n, 1), take_elements<U>, w, t.scale * int64_t(sizeof(U))); });
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
};

// A thread per lane (all other dimensions), in order along the indexed one.
template <class T, bool kAdds> __global__ void __launch_bounds__(kThreads) scatter_lanes(Walk<3> w, Along a) {
  uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  if (i >= w.n) return;
  int64_t at[3];
  w.offsets(i, at);
  for (int64_t j = 0; j < a.n; ++j) {
    T* y = reinterpret_cast<T*>(w.data[0] + at[0] + *reinterpret_cast<const int64_t*>(w.data[2] + at[2] + j * a.offset_step) * a.scale);
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

void scatter(const Scatter& s) {
  TensorView out = s.out, src = s.src, offset = s.offset;
  for (TensorView* v : {&out, &src, &offset}) without_dim(*v, s.dim);
  cpu::StridedLoop lanes{&out, &src, &offset};
  by_type(s.out.dtype, s.accumulate, [&](auto t, auto adds) {
    using T = decltype(t);
    int64_t item_size = int64_t(sizeof(T));
    Along a{s.src.sizes[s.dim], s.src.strides[s.dim] * item_size, s.offset.strides[s.dim] * 8, s.scale * item_size};
    const size_t item[] = {sizeof(T), sizeof(T), sizeof(int64_t)};
    for_walks<3>(lanes, item, 1, [&](const Walk<3>& w) { launch("scatter", s.out.device, blocks_for(w.n, 1), scatter_lanes<T, decltype(adds)::value>, w, a); });
  });
}

// Offsets as unsigned keys of the same order, and the points' numbers.
__global__ void __launch_bounds__(kThreads) number_points(const int64_t* offset, int64_t n, uint64_t* keys, uint32_t* point) {
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  keys[i] = uint64_t(offset[i]) ^ uint64_t(1) << 63;
  point[i] = uint32_t(i);
}

struct Points {
  const int64_t* offset;
  const uint32_t* order;  // the points by rising offset, equal ones in the order given
  int64_t n, src_step, item;
};

// A thread per lane and place: the first of the points that go there does them all.
template <class T, bool kAdds> __global__ void __launch_bounds__(kThreads) put_lanes(Walk<2> w, Points p) {
  int64_t blocks = (int64_t(w.n) + kThreads - 1) / kThreads, first = blockIdx.x / blocks;
  uint32_t i = uint32_t(blockIdx.x % blocks) * kThreads + threadIdx.x;
  if (i >= w.n) return;
  int64_t offset = p.offset[p.order[first]];
  if (offset < 0 || (first > 0 && p.offset[p.order[first - 1]] == offset)) return;
  int64_t at[2];
  w.offsets(i, at);
  T* y = reinterpret_cast<T*>(w.data[0] + at[0] + offset * p.item);
  const char* from = w.data[1] + at[1];
  int64_t k = first;
  if constexpr (kAdds) {
    typename Adding<T>::type sum = widen(*y);
    for (; k < p.n && p.offset[p.order[k]] == offset; ++k) sum = added<T>(sum, *reinterpret_cast<const T*>(from + int64_t(p.order[k]) * p.src_step));
    *y = rounded<T>(sum);
  } else {
    while (k + 1 < p.n && p.offset[p.order[k + 1]] == offset) ++k;
    *y = *reinterpret_cast<const T*>(from + int64_t(p.order[k]) * p.src_step);
  }
}

void put(const Put& k) {
  TensorView out = k.out, src = k.src;
  int64_t n = src.sizes[k.dim];
  if (n == 0 || src.numel() == 0) return;
  without_dim(out, k.dim);
  without_dim(src, k.dim);
  Device device = k.out.device;
  Scratch keys(device, size_t(n) * sizeof(uint64_t)), other_keys(device, size_t(n) * sizeof(uint64_t));
  Scratch points(device, size_t(n) * sizeof(uint32_t)), other_points(device, size_t(n) * sizeof(uint32_t));
  launch("put", device, blocks_for(n, 1), number_points, k.offset, n, keys.as<uint64_t>(), points.as<uint32_t>());
  const uint32_t* order =
      sort_rows("put", device, {keys.as<void>(), other_keys.as<void>(), points.as<uint32_t>(), other_points.as<uint32_t>(), int(sizeof(uint64_t)), 64, 1, n});
  cpu::StridedLoop lanes{&out, &src};
  by_type(k.out.dtype, k.accumulate, [&](auto t, auto adds) {
    using T = decltype(t);
    Points p{k.offset, order, n, k.src.strides[k.dim] * int64_t(sizeof(T)), int64_t(sizeof(T))};
    const size_t item[] = {sizeof(T), sizeof(T)};
    for_walks<2>(lanes, item, 1, [&](const Walk<2>& w) { launch("put", device, blocks_for(w.n, 1) * unsigned(n), put_lanes<T, decltype(adds)::value>, w, p); });
  });
}

bool few_enough(const Put& k) { return k.src.numel() <= int64_t(INT32_MAX); }

SF_KERNEL(positions_kernel, DeviceType::CUDA, "native", 0, positions, nullptr)
SF_KERNEL(take_kernel, DeviceType::CUDA, "native", 0, take, nullptr)
SF_KERNEL(scatter_kernel, DeviceType::CUDA, "native", 0, scatter, nullptr)
SF_KERNEL(put_kernel, DeviceType::CUDA, "native", 0, put, few_enough)

}  // namespace
}  // namespace sf::cuda
