// Passes over the elements of many tensors, dozens a launch: optimizers and their like.
#pragma once
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/pointers.cuh"
#include "scaffolding/backend/cuda/real.cuh"

namespace sf::cuda {

__device__ inline Numbers numbers_at(const void* data, DType dtype) {
  Numbers n;
  n.data = const_cast<void*>(data), n.dtype = dtype;
  return n;
}

inline constexpr int64_t kElementsPerBlock = 4096;
inline constexpr int kNeighbours = 4;  // elements that a thread takes at once: 16 bytes of float32

// x[k] of V neighbours in memory, of any floating dtype.
template <int V, class A> __device__ inline void read_numbers(const void* data, DType dtype, int64_t i, A (&x)[V]) {
  auto as = [&](auto tag) {
    auto bits = *reinterpret_cast<const Vec<decltype(tag), V>*>(static_cast<const decltype(tag)*>(data) + i);
#pragma unroll
    for (int k = 0; k < V; ++k) x[k] = A(widen(bits.v[k]));
  };
  switch (dtype) {
    case kFloat32: return as(float());
    case kBFloat16: return as(BFloat16());
    case kFloat16: return as(Half());
    default: return as(double());
  }
}
template <int V, class A> __device__ inline void write_numbers(void* data, DType dtype, int64_t i, const A (&x)[V]) {
  auto as = [&](auto tag) {
    using T = decltype(tag);
    Vec<T, V> bits;
#pragma unroll
    for (int k = 0; k < V; ++k) bits.v[k] = to_storage<T>(x[k]);
    *reinterpret_cast<Vec<T, V>*>(static_cast<T*>(data) + i) = bits;
  };
  switch (dtype) {
    case kFloat32: return as(float());
    case kBFloat16: return as(BFloat16());
    case kFloat16: return as(Half());
    default: return as(double());
  }
}
// Whether vectors of kNeighbours elements of this size can be moved from a tensor's first element on;
// null tensors do not matter.
inline bool aligned_for_neighbours(const void* p, size_t item) {
  return reinterpret_cast<uintptr_t>(p) % (item * kNeighbours) == 0;
}

// As many descriptors of tensors as fit into 3 KiB of arguments, of the 4 KiB there are.
template <class T> struct TensorBatch {
  static constexpr int kMost = int(3072 / (sizeof(T) + sizeof(uint32_t) + sizeof(bool)));
  T tensors[kMost];
  uint32_t first_block[kMost];
  bool vectors[kMost];
  int count = 0;

  // The tensor of the calling block.
  __device__ int index() const {
    int low = 0, high = count;
    while (high - low > 1) {
      int middle = (low + high) / 2;
      (first_block[middle] <= blockIdx.x ? low : high) = middle;
    }
    return low;
  }
};

template <class T, class F>
__global__ void __launch_bounds__(kThreads) tensor_elements(TensorBatch<T> batch, F given, PreviousGrid previous) {
  previous.wait();
  // asked of the arguments: of a pointer in a copy the compiler forgets that it is device memory
  if (given.skip()) return;
  const F f = given.of_now();
  const int k = batch.index();
  const T& t = batch.tensors[k];
  const int64_t first = int64_t(blockIdx.x - batch.first_block[k]) * kElementsPerBlock,
                end = first + kElementsPerBlock < t.numel ? first + kElementsPerBlock : t.numel;
  if (batch.vectors[k] && end - first == kElementsPerBlock) {
#pragma unroll 2
    for (int64_t i = first + threadIdx.x * kNeighbours; i < end; i += kThreads * kNeighbours)
      f.template update<kNeighbours>(t, i);
  } else {
#pragma unroll 1
    for (int64_t i = first + threadIdx.x; i < end; i += kThreads) f.template update<1>(t, i);
  }
}

// run(batch, blocks) for batches of the tensors that are wanted, a block for every `per_block` elements of one.
template <class T, class Wanted, class Aligned, class Run>
void for_tensor_batches(const T* tensors, int64_t count, int64_t per_block, const Wanted& wanted,
                        const Aligned& aligned, const Run& run) {
  TensorBatch<T> batch;
  uint32_t blocks = 0;
  auto flush = [&] {
    if (blocks > 0) run(batch, blocks);
    batch.count = 0;
    blocks = 0;
  };
  for (int64_t i = 0; i < count; ++i) {
    if (tensors[i].numel == 0 || !wanted(tensors[i])) continue;
    batch.tensors[batch.count] = tensors[i];
    batch.vectors[batch.count] = aligned(tensors[i]);
    batch.first_block[batch.count++] = blocks;
    blocks += uint32_t((tensors[i].numel + per_block - 1) / per_block);
    if (batch.count == TensorBatch<T>::kMost) flush();
  }
  flush();
}

// Every element of the tensors that are wanted. F is plain data; on the device f.skip() says that nothing is to
// be done, f.of_now() has the numbers of this moment, and f.update<V>(tensor, i) does the V elements from i on; on the
// host F::aligned(tensor) says whether V may be kNeighbours.
template <class T, class Wanted, class F>
void each_tensor_element(const char* op, Device device, const T* tensors, int64_t count, const Wanted& wanted,
                         const F& f) {
  for_tensor_batches(tensors, count, kElementsPerBlock, wanted, F::aligned,
                     [&](const TensorBatch<T>& batch, unsigned blocks) {
                       launch(op, device, blocks, tensor_elements<T, F>, batch, f);
                     });
}

// A step does not name its device: it is the one of the memory.
template <class T, class Memory>
Device device_of_step(const char* op, const T* tensors, int64_t count, const Memory& memory) {
  for (int64_t i = 0; i < count; ++i)
    if (tensors[i].numel > 0) return device_of(memory(tensors[i]), op);
  return Device(Device::CUDA, 0);
}

}  // namespace sf::cuda
