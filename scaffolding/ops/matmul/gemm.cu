// Matrix products on CUDA without a library: any strides, every dtype, any inner size, so also what cuBLASLt does not
// take (whole numbers, k = 0). Tiles of 64 x 64 in shared memory, 4 x 4 sums a thread; no tensor cores. And the pass
// after a product of cuBLASLt.
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/real.cuh"
#include "scaffolding/ops/matmul/activate.cuh"
#include "scaffolding/ops/matmul/gemm_finish.h"

namespace sf::cuda {
namespace {

constexpr int kTile = 64, kDepth = 16, kSide = 4;  // kThreads = (kTile / kSide)^2
static_assert(kThreads == (kTile / kSide) * (kTile / kSide));

// A [batch, m, n] matrix in memory whose floating dtype is known at run time.
struct Place {
  Numbers numbers;
  int64_t strides[3] = {};
  Place() = default;
  explicit Place(const TensorView& t) : numbers(t) {
    for (int d = 0; t.defined() && d < 3; ++d) strides[d] = t.strides[d];
  }
  __device__ int64_t at(int64_t b, int64_t i, int64_t j) const {
    return b * strides[0] + i * strides[1] + j * strides[2];
  }
};

// A: float or double, in which numbers are finished.
template <class A> struct Finish {
  Place c, pre;
  Numbers bias;
  Activation act;
  A beta;

  explicit Finish(const Gemm& g) : c(g.c), pre(g.pre), bias(g.bias), act(g.act), beta(A(g.beta)) {}
  __device__ void store(int64_t b, int64_t i, int64_t j, A x) const {
    if (bias) x += entry<A>(bias, j);
    if (pre.numbers) pre.numbers.set(pre.at(b, i, j), x);
    x = activate(act, x);
    int64_t at = c.at(b, i, j);
    if (beta != 0) x += beta * entry<A>(c.numbers, at);
    c.numbers.set(at, x);
  }
};

template <class A>
__global__ void __launch_bounds__(kThreads)
    finish_kernel(Finish<A> f, Place product, int64_t m, int64_t n, int64_t total) {
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < total; i += int64_t(gridDim.x) * kThreads) {
    int64_t row = i / n, col = i % n;
    f.store(row / m, row % m, col, entry<A>(product.numbers, product.at(row / m, row % m, col)));
  }
}

template <class T> struct Sum { using type = real_t<T>; };
template <class T>
requires std::is_integral_v<T>
struct Sum<T> {
  using type = uint64_t;
};  // wraps around, and its low bits are those of every shorter type

template <class T> struct Tiles {
  using A = typename Sum<T>::type;
  const T *a, *b;
  int64_t as[3], bs[3];  // strides
  int64_t m, n, k;
  int64_t tiles_m, tiles_n;
  A alpha, beta;
  T* c;  // of whole numbers
  int64_t cs[3];
};
template <class T> using FinishOf = Finish<std::conditional_t<std::is_same_v<T, double>, double, float>>;

// A block makes one tile of c. Each step brings kDepth columns of a and rows of b into shared memory, with neighbouring
// threads on the operand's dense dimension, and every thread adds kDepth outer products of 4 + 4 numbers.
template <class T> __global__ void __launch_bounds__(kThreads) gemm_tiles(Tiles<T> g, FinishOf<T> f) {
  using A = typename Tiles<T>::A;
  __shared__ A a[kDepth][kTile + 1], b[kDepth][kTile + 1];  // + 1: a transposed tile is stored without bank conflicts
  int64_t tile = blockIdx.x, tn = tile % g.tiles_n * kTile, tm = tile / g.tiles_n % g.tiles_m * kTile,
          batch = tile / (g.tiles_n * g.tiles_m);
  const T *pa = g.a + batch * g.as[0], *pb = g.b + batch * g.bs[0];
  bool a_along_k = g.as[2] == 1, b_along_n = g.bs[2] == 1;
  int t = int(threadIdx.x), row = t / (kTile / kSide) * kSide, col = t % (kTile / kSide) * kSide;
  A sums[kSide][kSide] = {};
  for (int64_t k0 = 0; k0 < g.k; k0 += kDepth) {
    for (int x = t; x < kTile * kDepth; x += kThreads) {
      int k = a_along_k ? x % kDepth : x / kTile, i = a_along_k ? x / kDepth : x % kTile;
      a[k][i] = k0 + k < g.k && tm + i < g.m ? A(widen(pa[(tm + i) * g.as[1] + (k0 + k) * g.as[2]])) : A(0);
      int kb = b_along_n ? x / kTile : x % kDepth, j = b_along_n ? x % kTile : x / kDepth;
      b[kb][j] = k0 + kb < g.k && tn + j < g.n ? A(widen(pb[(k0 + kb) * g.bs[1] + (tn + j) * g.bs[2]])) : A(0);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k)
#pragma unroll
      for (int i = 0; i < kSide; ++i)
#pragma unroll
        for (int j = 0; j < kSide; ++j) sums[i][j] += a[k][row + i] * b[k][col + j];
    __syncthreads();
  }
  for (int i = 0; i < kSide; ++i)
    for (int j = 0; j < kSide; ++j) {
      int64_t r = tm + row + i, c = tn + col + j;
      if (r >= g.m || c >= g.n) continue;
      if constexpr (std::is_integral_v<T>) {
        int64_t at = batch * g.cs[0] + r * g.cs[1] + c * g.cs[2];
        g.c[at] = T(sums[i][j] * g.alpha + (g.beta != 0 ? g.beta * A(g.c[at]) : A(0)));
      } else {
        f.store(batch, r, c, g.alpha * sums[i][j]);
      }
    }
}

template <class T> void multiply(const Gemm& g) {
  Tiles<T> x{};
  x.a = g.a.as<T>(), x.b = g.b.as<T>();
  for (int d = 0; d < 3; ++d) x.as[d] = g.a.strides[d], x.bs[d] = g.b.strides[d], x.cs[d] = g.c.strides[d];
  x.m = g.c.sizes[1], x.n = g.c.sizes[2], x.k = g.a.sizes[2];
  x.tiles_m = (x.m + kTile - 1) / kTile, x.tiles_n = (x.n + kTile - 1) / kTile;
  using A = typename Tiles<T>::A;
  if constexpr (std::is_integral_v<T>) x.alpha = A(int64_t(g.alpha)), x.beta = A(int64_t(g.beta)), x.c = g.c.as<T>();
  else x.alpha = A(g.alpha);  // beta is of what finishes
  launch("matmul", g.c.device, unsigned(x.tiles_m * x.tiles_n * g.c.sizes[0]), gemm_tiles<T>, x, FinishOf<T>(g));
}

void run(const Gemm& g) {
  if (g.c.numel() == 0) return;
  if (as_float(g.a.dtype, [&](auto t) { multiply<decltype(t)>(g); })) return;
  switch (g.a.dtype) {
    case kInt8: return multiply<int8_t>(g);
    case kUInt8: return multiply<uint8_t>(g);
    case kInt16: return multiply<int16_t>(g);
    case kInt32: return multiply<int32_t>(g);
    default: return multiply<int64_t>(g);
  }
}
bool supports(const Gemm& g) {
  return g.c.sizes[0] * ((g.c.sizes[1] + kTile - 1) / kTile) * ((g.c.sizes[2] + kTile - 1) / kTile) <= INT32_MAX;
}

SF_KERNEL(gemm, DeviceType::CUDA, "native", 0, run, supports)

}  // namespace

void finish_product(const Gemm& g, const TensorView& product) {
  int64_t total = g.c.numel(), m = g.c.sizes[1], n = g.c.sizes[2];
  if (total == 0) return;
  unsigned blocks = unsigned(total < int64_t(kThreads) << 20 ? (total + kThreads - 1) / kThreads : 1 << 20);
  if (g.c.dtype == kFloat64)
    launch("matmul", g.c.device, blocks, finish_kernel<double>, Finish<double>(g), Place(product), m, n, total);
  else launch("matmul", g.c.device, blocks, finish_kernel<float>, Finish<float>(g), Place(product), m, n, total);
}

}  // namespace sf::cuda
