// group_norm (+ SiLU) on CUDA, contiguous and channels-last alike. Statistics of pieces, then of groups by Chan's rule in double;
// one pass writes y. Sums are in a fixed order: no atomics.
#include "scaffolding/backend/cuda/rows.cuh"
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/ops/group_norm/kernel.h"

namespace sf::cuda {
namespace {

constexpr int64_t kPiece = 16384;  // elements under one sum

// x[N, C, space]: NCHW or NHWC in memory.
template <class T> struct Channels {
  const T *x, *dy;
  T* out;  // y or dx
  Numbers weight, bias;
  int64_t batch, channels, space, groups;
  real_t<T>*mean, *rstd;
  real_t<T> eps;
  bool last;  // channels-last
  bool silu;

  __device__ int64_t group_channels() const { return channels / groups; }
  __device__ int64_t group_size() const { return group_channels() * space; }
  // Where element i of group g (of N * G) is; i counts in the order of memory.
  __device__ int64_t at(int64_t g, int64_t i) const {
    if (!last) return g * group_size() + i;
    int64_t width = group_channels(), n = g / groups, pixel = i / width;
    return (n * space + pixel) * channels + (g % groups) * width + (i - pixel * width);
  }
};

struct Moments {
  double mean, m2;
};

template <class T> __global__ void __launch_bounds__(kThreads) piece_moments(Channels<T> c, int64_t pieces, Moments* out) {
  using A = real_t<T>;
  using G = RowThreads<kThreads>;
  int64_t group = blockIdx.x / pieces, first = blockIdx.x % pieces * kPiece, end = first + kPiece < c.group_size() ? first + kPiece : c.group_size();
  // Sums of distances from the piece's first element: no cancellation where the mean is far from 0.
  A shift = widen(c.x[c.at(group, first)]), sum = 0, squares = 0;
  for (int64_t i = first + threadIdx.x; i < end; i += kThreads) {
    A d = A(widen(c.x[c.at(group, i)])) - shift;
    sum += d;
    squares += d * d;
  }
  double s = G::sum(double(sum)), q = G::sum(double(squares)), n = double(end - first);
  if (threadIdx.x == 0) out[blockIdx.x] = {double(shift) + s / n, q - s * s / n};
}

template <class T> __global__ void __launch_bounds__(kThreads) group_moments(Channels<T> c, int64_t pieces, const Moments* of_piece) {
  using A = real_t<T>;
  int64_t group = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (group >= c.batch * c.groups) return;
  double mean = 0, m2 = 0, count = 0;
  for (int64_t p = 0; p < pieces; ++p) {
    Moments m = of_piece[group * pieces + p];
    int64_t left = c.group_size() - p * kPiece;
    double n = double(left < kPiece ? left : kPiece), delta = m.mean - mean;
    mean += delta * (n / (count + n));
    m2 += m.m2 + delta * delta * (count * n / (count + n));
    count += n;
  }
  c.mean[group] = A(mean);
  c.rstd[group] = A(1.0 / ::sqrt((m2 > 0 ? m2 : 0) / count + double(c.eps)));
}

// A thread takes V neighbours in memory. They share a channel in NCHW where V divides space, and lie in one pixel in NHWC where V
// divides the channels.
template <class T, int V> __global__ void __launch_bounds__(kThreads) normalise(Channels<T> c, int64_t count) {
  using A = real_t<T>;
  int64_t first = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (first >= count) return;
  A v[V];
  read_lanes<V>(c.x + first, v);
  for (int i = 0; i < V; ++i) {
    int64_t at = first + i, channel = c.last ? at % c.channels : at / c.space % c.channels, n = at / (c.channels * c.space);
    int64_t group = n * c.groups + channel / c.group_channels();
    A z = (v[i] - c.mean[group]) * c.rstd[group];
    if (c.weight) z *= entry<A>(c.weight, channel);
    if (c.bias) z += entry<A>(c.bias, channel);
    v[i] = c.silu ? z / (A(1) + exp_of(-z)) : z;
  }
  write_lanes<V>(c.out + first, v);
}

template <class T> struct AtElement {
  real_t<T> hat, dz;  // the normalised element, and the gradient of weight * hat + bias
};
template <class T> __device__ AtElement<T> gradient_at(const Channels<T>& c, int64_t at, int64_t channel, int64_t group) {
  using A = real_t<T>;
  A hat = (A(widen(c.x[at])) - c.mean[group]) * c.rstd[group], dz = widen(c.dy[at]);
  if (c.silu) {
    A z = hat * (c.weight ? entry<A>(c.weight, channel) : A(1)) + (c.bias ? entry<A>(c.bias, channel) : A(0));
    A s = A(1) / (A(1) + exp_of(-z));
    dz *= s * (A(1) + z * (A(1) - s));
  }
  return {hat, dz};
}

// Sums over the space of one channel of one picture: of dz, and of dz * hat.
struct ChannelSums {
  double dz, dz_hat;
};

// NCHW: a block per channel.
template <class T> __global__ void __launch_bounds__(kThreads) plane_sums(Channels<T> c, ChannelSums* out) {
  using G = RowThreads<kThreads>;
  int64_t plane = blockIdx.x, channel = plane % c.channels, group = plane / c.channels * c.groups + channel / c.group_channels();
  double dz = 0, dz_hat = 0;
  for (int64_t i = threadIdx.x; i < c.space; i += kThreads) {
    AtElement<T> e = gradient_at(c, plane * c.space + i, channel, group);
    dz += double(e.dz);
    dz_hat += double(e.dz) * double(e.hat);
  }
  dz = G::sum(dz);
  dz_hat = G::sum(dz_hat);
  if (threadIdx.x == 0) out[plane] = {dz, dz_hat};
}

// NHWC: 32 channels by 8 pixels a block.
template <class T> __global__ void __launch_bounds__(kThreads) pixel_sums(Channels<T> c, ChannelSums* out) {
  constexpr int kRows = kThreads / kWarp;
  __shared__ double sums[2][kRows][kWarp];
  int column = int(threadIdx.x) % kWarp, row = int(threadIdx.x) / kWarp;
  int64_t wide = (c.channels + kWarp - 1) / kWarp, n = blockIdx.x / wide, channel = blockIdx.x % wide * kWarp + column;
  double dz = 0, dz_hat = 0;
  if (channel < c.channels) {
    int64_t group = n * c.groups + channel / c.group_channels();
    for (int64_t i = row; i < c.space; i += kRows) {
      AtElement<T> e = gradient_at(c, (n * c.space + i) * c.channels + channel, channel, group);
      dz += double(e.dz);
      dz_hat += double(e.dz) * double(e.hat);
    }
  }
  sums[0][row][column] = dz;
  sums[1][row][column] = dz_hat;
  __syncthreads();
  if (row > 0 || channel >= c.channels) return;
  for (int r = 1; r < kRows; ++r) dz += sums[0][r][column], dz_hat += sums[1][r][column];
  out[n * c.channels + channel] = {dz, dz_hat};
}

// What dx subtracts: the means over each group of weight * dz and of weight * dz * hat.
template <class T> __global__ void __launch_bounds__(kThreads) group_means(Channels<T> c, const ChannelSums* of_channel, ChannelSums* of_group) {
  int64_t group = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (group >= c.batch * c.groups) return;
  int64_t width = c.group_channels(), n = group / c.groups, first = group % c.groups * width;
  double dz = 0, dz_hat = 0;
  for (int64_t i = first; i < first + width; ++i) {
    double weight = c.weight ? entry<double>(c.weight, i) : 1.0;
    dz += weight * of_channel[n * c.channels + i].dz;
    dz_hat += weight * of_channel[n * c.channels + i].dz_hat;
  }
  of_group[group] = {dz / double(c.group_size()), dz_hat / double(c.group_size())};
}

template <class T> __global__ void __launch_bounds__(kThreads) gradient(Channels<T> c, int64_t count, const ChannelSums* of_group) {
  using A = real_t<T>;
  int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count) return;
  int64_t channel = c.last ? at % c.channels : at / c.space % c.channels, n = at / (c.channels * c.space);
  int64_t group = n * c.groups + channel / c.group_channels();
  AtElement<T> e = gradient_at(c, at, channel, group);
  A weight = c.weight ? entry<A>(c.weight, channel) : A(1);
  c.out[at] = to_storage<T>(c.rstd[group] * (weight * e.dz - A(of_group[group].dz) - e.hat * A(of_group[group].dz_hat)));
}

template <class A>
__global__ void __launch_bounds__(kThreads) parameter_gradients(int64_t batch, int64_t channels, const ChannelSums* sums, Numbers dweight, Numbers dbias) {
  int64_t channel = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (channel >= channels) return;
  double dz = 0, dz_hat = 0;
  for (int64_t n = 0; n < batch; ++n) dz += sums[n * channels + channel].dz, dz_hat += sums[n * channels + channel].dz_hat;
  if (dweight) dweight.set(channel, A(dz_hat));
  if (dbias) dbias.set(channel, A(dz));
}

template <class T>
Channels<T> channels_of(const TensorView& x, const TensorView& weight, const TensorView& bias, int64_t groups, bool silu, const TensorView& mean,
                        const TensorView& rstd) {
  Channels<T> c{};
  c.x = x.as<T>();
  c.weight = weight, c.bias = bias;
  c.batch = x.sizes[0], c.channels = x.sizes[1], c.space = c.batch * c.channels > 0 ? x.numel() / (c.batch * c.channels) : 0, c.groups = groups;
  c.mean = mean.as<real_t<T>>(), c.rstd = rstd.as<real_t<T>>();
  c.last = !x.is_contiguous();
  c.silu = silu;
  return c;
}

void forward(const GroupNormForward& f) {
  as_float(f.x.dtype, [&](auto t) {
    using T = decltype(t);
    Channels<T> c = channels_of<T>(f.x, f.weight, f.bias, f.groups, f.silu, f.mean, f.rstd);
    c.eps = real_t<T>(f.eps);
    int64_t count = f.x.numel(), groups = c.batch * c.groups;
    if (count == 0) return;
    int64_t pieces = (count / groups + kPiece - 1) / kPiece;
    Scratch moments(f.x.device, size_t(groups * pieces) * sizeof(Moments));
    launch("group_norm", f.x.device, unsigned(groups * pieces), piece_moments<T>, c, pieces, moments.as<Moments>());
    launch("group_norm", f.x.device, blocks_for(groups, 1), group_moments<T>, c, pieces, moments.as<const Moments>());
    if (!f.y.defined()) return;
    c.out = f.y.as<T>();
    constexpr int V = lanes_for<T>();
    if (aligned_rows<T, V>(count, c.x, c.out)) launch("group_norm", f.x.device, blocks_for(count, V), normalise<T, V>, c, count);
    else launch("group_norm", f.x.device, blocks_for(count, 1), normalise<T, 1>, c, count);
  });
}

void backward(const GroupNormBackward& b) {
  as_float(b.x.dtype, [&](auto t) {
    using T = decltype(t);
    Channels<T> c = channels_of<T>(b.x, b.weight, b.bias, b.groups, b.silu, b.mean, b.rstd);
    c.dy = b.dy.as<T>();
    c.out = b.dx.as<T>();
    int64_t count = b.x.numel(), planes = c.batch * c.channels, groups = c.batch * c.groups;
    Scratch channel_sums(b.x.device, size_t(planes) * sizeof(ChannelSums)), group_sums(b.x.device, size_t(groups) * sizeof(ChannelSums));
    auto *of_channel = channel_sums.as<ChannelSums>(), *of_group = group_sums.as<ChannelSums>();
    if (count > 0) {
      if (c.last) launch("group_norm_backward", b.x.device, unsigned(c.batch * ((c.channels + kWarp - 1) / kWarp)), pixel_sums<T>, c, of_channel);
      else launch("group_norm_backward", b.x.device, unsigned(planes), plane_sums<T>, c, of_channel);
      launch("group_norm_backward", b.x.device, blocks_for(groups, 1), group_means<T>, c, of_channel, of_group);
      launch("group_norm_backward", b.x.device, blocks_for(count, 1), gradient<T>, c, count, of_group);
    }
    if ((b.dweight.defined() || b.dbias.defined()) && c.channels > 0)
      launch("group_norm_backward", b.x.device, blocks_for(c.channels, 1), parameter_gradients<real_t<T>>, count > 0 ? c.batch : int64_t(0), c.channels,
             of_channel, Numbers(b.dweight), Numbers(b.dbias));
  });
}

bool dense(const TensorView& x) { return x.is_contiguous() || x.is_channels_last(); }
SF_KERNEL(group_norm_forward, DeviceType::CUDA, "native", 0, forward, [](const GroupNormForward& f) { return dense(f.x); })
SF_KERNEL(group_norm_backward, DeviceType::CUDA, "native", 0, backward, [](const GroupNormBackward& b) { return dense(b.x); })

}  // namespace
}  // namespace sf::cuda
