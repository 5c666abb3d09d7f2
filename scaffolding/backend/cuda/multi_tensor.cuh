// Passes over the elements of many tensors, dozens a launch: optimizers and their like.
#pragma once
#include "scaffolding/backend/cuda/extent.cuh"
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/real.cuh"

namespace sf::cuda {

__device__ inline Numbers numbers_at(const void* data, DType dtype) {
  Numbers n;
  n.data = const_cast<void*>(data), n.dtype = dtype;
  return n;
}

inline constexpr int64_t kElementsPerBlock = 4096;

// As many descriptors of tensors as fit into 3 KiB of arguments, of the 4 KiB there are.
template <class T> struct TensorBatch {
  static constexpr int kMost = int(3072 / (sizeof(T) + sizeof(uint32_t)));
  T tensors[kMost];
  uint32_t first_block[kMost];
  int count = 0;
};

template <class T, class F> __global__ void __launch_bounds__(kThreads) tensor_elements(TensorBatch<T> batch, F f) {
  int k = 0;
  while (k + 1 < batch.count && blockIdx.x >= batch.first_block[k + 1]) ++k;
  const T& t = batch.tensors[k];
  int64_t first = int64_t(blockIdx.x - batch.first_block[k]) * kElementsPerBlock,
          end = first + kElementsPerBlock < t.numel ? first + kElementsPerBlock : t.numel;
  for (int64_t i = first + threadIdx.x; i < end; i += kThreads) f(t, i);
}

// f(tensor, i) on the device for every element of the tensors that are wanted. f: plain data with a __device__ operator().
template <class T, class Wanted, class F>
void each_tensor_element(const char* op, Device device, const T* tensors, int64_t count, const Wanted& wanted, const F& f) {
  TensorBatch<T> batch;
  uint32_t blocks = 0;
  auto flush = [&] {
    if (blocks > 0) launch(op, device, blocks, tensor_elements<T, F>, batch, f);
    batch.count = 0;
    blocks = 0;
  };
  for (int64_t i = 0; i < count; ++i) {
    if (tensors[i].numel == 0 || !wanted(tensors[i])) continue;
    batch.tensors[batch.count] = tensors[i];
    batch.first_block[batch.count++] = blocks;
    blocks += uint32_t((tensors[i].numel + kElementsPerBlock - 1) / kElementsPerBlock);
    if (batch.count == TensorBatch<T>::kMost) flush();
  }
  flush();
}

// A step does not name its device: it is the one of the memory.
template <class T, class Memory> Device device_of_step(const char* op, const T* tensors, int64_t count, const Memory& memory) {
  for (int64_t i = 0; i < count; ++i)
    if (tensors[i].numel > 0) return device_of(memory(tensors[i]), op);
  return Device(Device::CUDA, 0);
}

}  // namespace sf::cuda
