// scaled_mm where cuBLASLt has no one call for all of it: scales of rows and columns off compute capability 9.0, a bias
// beside a residual, sizes that are no multiples of 16, GPUs without float8. The product goes to float32 unscaled, and
// one pass of ours does the rest. Where float8 has no product, bfloat16 has: it holds every float8 exactly, and the
// sums are float32's either way.
#include <optional>

#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/real.cuh"
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/ops/copy/kernel.h"
#include "scaffolding/ops/matmul/cublaslt_product.h"
#include "scaffolding/ops/matmul/kernel.h"
#include "scaffolding/ops/quantize/scaled_product.h"

namespace sf::cuda {
namespace {

struct Scales {
  const float *rows, *columns;
  bool per_row, per_column;
};

// c[row, V columns] = product * scales + bias + residual. blocks: of a row.
template <class T, class B, int V>
__global__ void __launch_bounds__(kThreads)
    scale_product(const float* product, Scales s, const B* bias, const T* residual, T* c, int64_t n, uint32_t blocks,
                  PreviousGrid previous) {
  const uint32_t row = blockIdx.x / blocks;
  const int64_t column = (int64_t(blockIdx.x - row * blocks) * kThreads + threadIdx.x) * V;
  previous.wait();
  if (column >= n) return;
  const int64_t at = row * n + column;
  const Vec<float, V> x = *reinterpret_cast<const Vec<float, V>*>(product + at);
  const float of_row = s.rows[s.per_row ? row : 0];
  Vec<T, V> y;
#pragma unroll
  for (int v = 0; v < V; ++v) {
    float sum = x.v[v] * of_row * s.columns[s.per_column ? column + v : 0];
    if (bias) sum += float(widen(bias[column + v]));
    if (residual) sum += float(widen(residual[at + v]));
    y.v[v] = to_storage<T>(sum);
  }
  *reinterpret_cast<Vec<T, V>*>(c + at) = y;
}

TensorView dense(void* data, DType dtype, const TensorView& like, bool columns_first) {
  TensorView t = like;
  t.data = data, t.dtype = dtype;
  t.strides[0] = columns_first ? 1 : like.sizes[1], t.strides[1] = columns_first ? like.sizes[0] : 1;
  return t;
}

// An operand as bfloat16, in the layout that it has.
struct Widened {
  Scratch memory;
  TensorView view;
  Widened(const TensorView& x, bool columns_first)
      : memory(x.device, size_t(x.numel()) * sizeof(BFloat16)),
        view(dense(memory.as<void>(), kBFloat16, x, columns_first)) {
    Copy to{view, x};
    copy_kernel.find(x.device, to)(to);
  }
};

void multiply(const ScaledProduct& p, float* product) {
  ScaledProduct plain = p;
  plain.scale_a = plain.scale_b = plain.bias = plain.residual = TensorView();
  plain.c = dense(product, kFloat32, p.c, false);
  if (has_float8_product(plain) && run_float8_product(plain)) return;
  Widened a(p.a, false), b(p.b, true);
  Gemm g;
  g.a = batch_of_one(a.view), g.b = batch_of_one(b.view), g.c = batch_of_one(plain.c);
  auto kernel = gemm.find(p.c.device, g);
  SF_CHECK_AS(NotSupported, kernel, "scaled_mm: no kernel for bfloat16 on ", p.c.device);
  kernel(g);
}

}  // namespace

void scaled_product_in_passes(const ScaledProduct& p) {
  const int64_t m = p.c.sizes[0], n = p.c.sizes[1];
  Scratch product(p.c.device, size_t(m * n) * sizeof(float));
  multiply(p, product.as<float>());
  const Scales scales{p.scale_a.as<const float>(), p.scale_b.as<const float>(), p.scale_a.numel() > 1,
                      p.scale_b.numel() > 1};
  as_float(p.c.dtype, [&](auto t) {
    using T = decltype(t);
    auto finish = [&](auto b, auto v) {
      using B = decltype(b);
      constexpr int V = v();
      const unsigned blocks = blocks_for(n, V);
      launch("scaled_mm", p.c.device, blocks * unsigned(m), scale_product<T, B, V>, product.as<const float>(), scales,
             p.bias ? p.bias.as<const B>() : nullptr, p.residual ? p.residual.as<const T>() : nullptr, p.c.as<T>(), n,
             blocks);
    };
    auto with_bias = [&](auto v) {
      if (p.bias && p.bias.dtype == kBFloat16) finish(BFloat16(), v);
      else finish(T(), v);
    };
    const bool vectors = n % 4 == 0 && reinterpret_cast<uintptr_t>(p.c.data) % (4 * sizeof(T)) == 0;
    vectors ? with_bias(std::integral_constant<int, 4>()) : with_bias(std::integral_constant<int, 1>());
  });
}

namespace {

bool supports(const ScaledProduct& p) {
  const bool bias = !p.bias || p.bias.dtype == p.c.dtype || p.bias.dtype == kBFloat16;
  return (p.c.dtype == kFloat32 || is_reduced(p.c.dtype)) && bias && p.c.is_contiguous() &&
         p.c.sizes[0] * int64_t(blocks_for(p.c.sizes[1], 1)) <= INT32_MAX;
}

SF_KERNEL(scaled_product, DeviceType::CUDA, "passes", 5, scaled_product_in_passes, supports)

}  // namespace
}  // namespace sf::cuda
