// The norm of a model's gradients and their scaling on CUDA: dozens of tensors a launch, 16 bytes a load.
#include "scaffolding/backend/cuda/multi_tensor.cuh"
#include "scaffolding/backend/cuda/rows.cuh"
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/nn/clip_grad_kernel.h"

namespace sf::cuda {
namespace {

using nn::GradientPart;
using nn::ScaleAll;
using nn::SquareSumOfAll;

constexpr int64_t kPiece = 32768;  // elements of a block: some 26 thousand blocks for a UNet of 870 million

using Parts = TensorBatch<GradientPart>;

// A block's elements of one part.
struct Piece {
  GradientPart part;
  int64_t first, end;
};
__device__ Piece piece_of(const Parts& parts) {
  const int k = parts.index();
  Piece p{parts.tensors[k], int64_t(blockIdx.x - parts.first_block[k]) * kPiece, 0};
  p.end = p.first + kPiece < p.part.numel ? p.first + kPiece : p.part.numel;
  return p;
}

// f(pointer, how many) for the thread's elements, in runs of one vector,
// and of one element where memory does not allow vectors and at the end.
template <class T, class F> __device__ void for_my_elements(const Piece& p, const F& f) {
  constexpr int V = lanes_for<T>();
  T* data = static_cast<T*>(p.part.data);
  const int64_t body =
      reinterpret_cast<uintptr_t>(data) % (sizeof(T) * V) == 0 ? p.first + (p.end - p.first) / V * V : p.first;
  for (int64_t i = p.first + int64_t(threadIdx.x) * V; i < body; i += int64_t(kThreads) * V)
    f(data + i, std::integral_constant<int, V>());
  for (int64_t i = body + threadIdx.x; i < p.end; i += kThreads) f(data + i, std::integral_constant<int, 1>());
}
template <class F> __device__ void with_type(DType t, const F& f) {
  switch (t) {
    case kFloat32: return f(float{});
    case kBFloat16: return f(BFloat16{});
    case kFloat16: return f(Half{});
    default: return f(double{});
  }
}

__global__ void __launch_bounds__(kThreads) square_sums(Parts parts, double* of_block, PreviousGrid previous) {
  const Piece p = piece_of(parts);
  previous.wait();
  double sum = 0;
  with_type(p.part.dtype, [&](auto t) {
    using T = decltype(t);
    for_my_elements<T>(p, [&](const T* at, auto v) {
      real_t<T> x[v()];
      read_lanes<v()>(at, x);
#pragma unroll
      for (int i = 0; i < v(); ++i) sum += double(x[i]) * double(x[i]);
    });
  });
  sum = RowThreads<kThreads>::sum(sum);
  if (threadIdx.x == 0) of_block[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    sum_of_blocks(const double* of_block, int64_t count, double* total, PreviousGrid previous) {
  previous.wait();
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += of_block[i];
  sum = RowThreads<kThreads>::sum(sum);
  if (threadIdx.x == 0) *total = sum;
}

__global__ void __launch_bounds__(kThreads) scale_elements(Parts parts, Numbers factor, PreviousGrid previous) {
  previous.wait();
  const double by = entry<double>(factor, 0);
  if (by == 1) return;
  const Piece p = piece_of(parts);
  with_type(p.part.dtype, [&](auto t) {
    using T = decltype(t);
    for_my_elements<T>(p, [&](T* at, auto v) {
      real_t<T> x[v()];
      read_lanes<v()>(at, x);
#pragma unroll
      for (int i = 0; i < v(); ++i) x[i] *= real_t<T>(by);
      write_lanes<v()>(at, x);
    });
  });
}

template <class F> void for_parts(const GradientPart* parts, int64_t count, const F& f) {
  auto all = [](const GradientPart&) { return true; };
  for_tensor_batches(parts, count, kPiece, all, all, f);
}

void square_sum(const SquareSumOfAll& s) {
  int64_t blocks = 0, before = 0;
  for (int64_t i = 0; i < s.count; ++i) blocks += (s.parts[i].numel + kPiece - 1) / kPiece;
  Scratch of_block(s.device, size_t(blocks) * sizeof(double));
  for_parts(s.parts, s.count, [&](const Parts& p, unsigned n) {
    launch("total norm", s.device, n, square_sums, p, of_block.as<double>() + before);
    before += n;
  });
  launch("total norm", s.device, 1u, sum_of_blocks, static_cast<const double*>(of_block.as<double>()), blocks, s.total);
}

void scale(const ScaleAll& s) {
  for_parts(s.parts, s.count, [&](const Parts& p, unsigned n) {
    launch("clip_grads_with_norm_", s.device, n, scale_elements, p, Numbers(s.factor));
  });
}

SF_KERNEL(nn::square_sum_of_all, DeviceType::CUDA, "native", 0, square_sum, nullptr)
SF_KERNEL(nn::scale_all, DeviceType::CUDA, "native", 0, scale, nullptr)

}  // namespace
}  // namespace sf::cuda
