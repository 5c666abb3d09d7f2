// batch_norm on CUDA: a block per channel adds up in float64 and a fixed order (a mean, then squares of what differs from it), one pass writes
// the result. Channels-last memory is read a channel at a time: right, but far from the memory's speed.
#include "scaffolding/backend/cuda/math.cuh"
#include "scaffolding/backend/cuda/rows.cuh"
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/ops/batch_norm/kernel.h"

namespace sf::cuda {
namespace {

// x[N, C, space]: NCHW or NHWC in memory.
struct Space {
  int64_t n = 0, c = 0, space = 1, of_n = 0, of_c = 0, of_space = 0;
  explicit Space(const TensorView& x) : n(x.sizes[0]), c(x.sizes[1]) {
    for (int d = 2; d < x.ndim; ++d) space *= x.sizes[d];
    bool last = !x.is_contiguous() && x.is_channels_last();
    of_n = c * space, of_c = last ? 1 : space, of_space = last ? c : 1;
  }
  __device__ int64_t at(int64_t channel, int64_t i) const { return i / space * of_n + channel * of_c + i % space * of_space; }
  __device__ int64_t channel_of(int64_t element) const { return element / of_c % c; }
};

template <class T> struct Batch {
  Space s;
  const T *x, *dy;
  T* out;
  Numbers weight, bias, running_mean, running_var, dweight, dbias;
  real_t<T>*mean, *rstd;
  double* sums;  // [2][C]
  double momentum, eps;
  bool training;
};

// sum over the channel of f(element), the same in all threads of the block.
template <class T, class F> __device__ double channel_sum(const Batch<T>& b, const F& f) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < b.s.n * b.s.space; i += kThreads) sum += f(b.s.at(blockIdx.x, i));
  return RowThreads<kThreads>::sum(sum);
}

template <class T> __global__ void __launch_bounds__(kThreads) channel_statistics(Batch<T> b) {
  using A = real_t<T>;
  int64_t c = blockIdx.x, count = b.s.n * b.s.space;
  double mean, variance;
  if (b.training) {
    mean = channel_sum(b, [&](int64_t at) { return double(widen(b.x[at])); }) / double(count);
    double m2 = channel_sum(b, [&](int64_t at) {
      double d = double(widen(b.x[at])) - mean;
      return d * d;
    });
    variance = m2 / double(count);
    if (threadIdx.x == 0) {
      auto update = [&](const Numbers& running, double value) {
        if (running) running.set(c, A((1 - b.momentum) * entry<double>(running, c) + b.momentum * value));
      };
      update(b.running_mean, mean);
      update(b.running_var, count > 1 ? m2 / double(count - 1) : double(NAN));
    }
  } else {
    mean = entry<double>(b.running_mean, c), variance = entry<double>(b.running_var, c);
  }
  if (threadIdx.x == 0) b.mean[c] = A(mean), b.rstd[c] = A(1 / root(variance + b.eps));
}

template <class T> __global__ void __launch_bounds__(kThreads) normalise(Batch<T> b, int64_t total) {
  using A = real_t<T>;
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= total) return;
  int64_t c = b.s.channel_of(i);
  A y = (A(widen(b.x[i])) - b.mean[c]) * b.rstd[c];
  if (b.weight) y *= entry<A>(b.weight, c);
  if (b.bias) y += entry<A>(b.bias, c);
  b.out[i] = to_storage<T>(y);
}

// sum(dy) and sum(dy hat) of a channel.
template <class T> __global__ void __launch_bounds__(kThreads) gradient_sums(Batch<T> b) {
  using A = real_t<T>;
  int64_t c = blockIdx.x;
  double mean = double(b.mean[c]), rstd = double(b.rstd[c]);
  double sum = channel_sum(b, [&](int64_t at) { return double(widen(b.dy[at])); });
  double sum_hat = channel_sum(b, [&](int64_t at) { return double(widen(b.dy[at])) * (double(widen(b.x[at])) - mean) * rstd; });
  if (threadIdx.x != 0) return;
  b.sums[c] = sum, b.sums[b.s.c + c] = sum_hat;
  if (b.dweight) b.dweight.set(c, A(sum_hat));
  if (b.dbias) b.dbias.set(c, A(sum));
}

template <class T> __global__ void __launch_bounds__(kThreads) gradients(Batch<T> b, int64_t total) {
  using A = real_t<T>;
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= total) return;
  int64_t c = b.s.channel_of(i);
  A g = widen(b.dy[i]);
  if (b.training) {
    double count = double(b.s.n * b.s.space);
    A hat = (A(widen(b.x[i])) - b.mean[c]) * b.rstd[c];
    g -= A(b.sums[c] / count) + hat * A(b.sums[b.s.c + c] / count);
  }
  g *= b.rstd[c];
  if (b.weight) g *= entry<A>(b.weight, c);
  b.out[i] = to_storage<T>(g);
}

void forward(const BatchNormForward& f) {
  as_float(f.x.dtype, [&](auto t) {
    using T = decltype(t);
    Batch<T> b{Space(f.x)};
    b.x = f.x.as<const T>(), b.out = f.y.as<T>();
    b.weight = f.weight, b.bias = f.bias, b.running_mean = f.running_mean, b.running_var = f.running_var;
    b.mean = f.mean.as<real_t<T>>(), b.rstd = f.rstd.as<real_t<T>>();
    b.momentum = f.momentum, b.eps = f.eps, b.training = f.training;
    int64_t total = f.x.numel();
    if (b.s.c > 0) launch("batch_norm", f.x.device, unsigned(b.s.c), channel_statistics<T>, b);
    if (total > 0) launch("batch_norm", f.x.device, blocks_for(total, 1), normalise<T>, b, total);
  });
}

void backward(const BatchNormBackward& g) {
  as_float(g.x.dtype, [&](auto t) {
    using T = decltype(t);
    Batch<T> b{Space(g.x)};
    Scratch sums(g.x.device, size_t(2 * b.s.c) * sizeof(double));
    b.x = g.x.as<const T>(), b.dy = g.dy.as<const T>(), b.out = g.dx.as<T>();
    b.weight = g.weight, b.dweight = g.dweight, b.dbias = g.dbias;
    b.mean = g.mean.as<real_t<T>>(), b.rstd = g.rstd.as<real_t<T>>(), b.sums = sums.as<double>(), b.training = g.training;
    int64_t total = g.x.numel();
    if (b.s.c > 0) launch("batch_norm_backward", g.x.device, unsigned(b.s.c), gradient_sums<T>, b);
    if (total > 0) launch("batch_norm_backward", g.x.device, blocks_for(total, 1), gradients<T>, b, total);
  });
}

SF_KERNEL(batch_norm_forward, DeviceType::CUDA, "native", 0, forward, nullptr)
SF_KERNEL(batch_norm_backward, DeviceType::CUDA, "native", 0, backward, nullptr)

}  // namespace
}  // namespace sf::cuda
