// Attention of heads wider than 256 (a VAE has one of 512 over all pixels) by two matrix products, with the scores of
// some thousand queries at a time between them: that many columns of the result leave no registers for FlashAttention's
// tiles, which would compute the scores of such a head twice at half of cuBLASLt's rate. Scores are float32, weights
// have the dtype of the values.
#include <algorithm>

#include "scaffolding/backend/cuda/rows.cuh"
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/ops/attention/kernel.h"
#include "scaffolding/ops/matmul/kernel.h"

namespace sf::cuda {
namespace {

constexpr int64_t kMostQueries =
    4096;  // at a time: their product with the values fills 132 multiprocessors with tiles of 128 x 128
constexpr int64_t kMostScratch = 448ll << 20;  // bytes of scores and weights
constexpr int64_t kFewestScores = 1ll << 20;  // of a head, below which one launch of FlashAttention's kernel is as good

// A block per row: weights = softmax of scores, and log(sum(exp(scores))) where lse is given.
template <class T, int V>
SF_ROW_KERNEL weights_of_scores(const float* scores, T* weights, float* lse, int64_t cols, PreviousGrid previous) {
  using E = Exponential<T>;
  const RowGroup<kThreads> g{kThreads};
  const float* x = scores + blockIdx.x * cols;
  previous.wait();
  const float unit = E::unit(1.0f);
  float top = -INFINITY, total = 0;
  for_my_columns<V, 0>(g, cols, [&](int64_t c, int) {
    float v[V], highest = top;
    read_lanes<V>(x + c, v);
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] *= unit, highest = larger_of(highest, v[i]);
    // the first time 0 by whatever it is, which is not NaN: the scores of finite numbers are finite
    total *= E::of(top - highest);
    top = highest;
#pragma unroll
    for (int i = 0; i < V; ++i) total += E::of(v[i] - top);
  });
  const float highest = g.max(top);
  total = g.sum(top == -INFINITY ? 0.0f : total * E::of(top - highest));
  const float factor = 1.0f / total;
  T* y = weights + blockIdx.x * cols;
  for_my_columns<V, 0>(g, cols, [&](int64_t c, int) {
    float v[V];
    read_lanes<V>(x + c, v);
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] = E::of(v[i] * unit - highest) * factor;
    write_lanes<V>(y + c, v);
  });
  if (lse && threadIdx.x == 0) lse[blockIdx.x] = E::natural(highest) + log_of(total);
}

// Rows first .. first + rows - 1 of one head of t[B, H, L, D], as a matrix of a product.
TensorView matrix(const TensorView& t, int64_t b, int64_t h, int64_t first, int64_t rows) {
  TensorView m = t;
  m.data = t.as<char>() + (b * t.strides[0] + h * t.strides[1] + first * t.strides[2]) * int64_t(size_of(t.dtype));
  m.ndim = 3;
  m.sizes[0] = 1, m.sizes[1] = rows, m.sizes[2] = t.sizes[3];
  m.strides[0] = 0, m.strides[1] = t.strides[2], m.strides[2] = t.strides[3];
  return m;
}
TensorView dense(const TensorView& like, void* data, DType dtype, int64_t rows, int64_t cols) {
  TensorView m = like;
  m.data = data, m.dtype = dtype, m.ndim = 3;
  m.sizes[0] = 1, m.sizes[1] = rows, m.sizes[2] = cols;
  m.strides[0] = 0, m.strides[1] = cols, m.strides[2] = 1;
  return m;
}

void multiply(const TensorView& a, const TensorView& b, const TensorView& c, double alpha) {
  Gemm g{};
  g.a = a, g.b = b, g.c = c, g.alpha = alpha;
  gemm.find(c.device, g)(g);
}

void forward(const AttentionForward& a) {
  const int64_t queries = a.q.sizes[2], keys = a.k.sizes[2];
  auto with = [&](auto tag) {
    using T = decltype(tag);
    const int64_t fit = kMostScratch / (keys * int64_t(sizeof(float) + sizeof(T))),
                  at_once = std::min({queries, kMostQueries, std::max<int64_t>(1, fit)});
    Scratch scores(a.q.device, size_t(at_once * keys) * sizeof(float)),
        weights(a.q.device, size_t(at_once * keys) * sizeof(T));
    float* lse = a.lse ? a.lse.as<float>() : nullptr;
    constexpr int V = lanes_for<T>();
    for (int64_t b = 0; b < a.q.sizes[0]; ++b)
      for (int64_t h = 0; h < a.q.sizes[1]; ++h)
        for (int64_t first = 0; first < queries; first += at_once) {
          const int64_t rows = std::min(at_once, queries - first);
          TensorView s = dense(a.q, scores.as<void>(), kFloat32, rows, keys),
                     w = dense(a.q, weights.as<void>(), a.q.dtype, rows, keys);
          TensorView k = matrix(a.k, b, h, 0, keys);
          std::swap(k.sizes[1], k.sizes[2]), std::swap(k.strides[1], k.strides[2]);
          multiply(matrix(a.q, b, h, first, rows), k, s, a.scale);
          float* to = lse ? lse + (b * a.q.sizes[1] + h) * queries + first : nullptr;
          auto* kernel = keys % V == 0 ? weights_of_scores<T, V> : weights_of_scores<T, 1>;
          launch("attention", a.q.device, unsigned(rows), kernel, s.as<const float>(), w.as<T>(), to, keys);
          multiply(w, matrix(a.v, b, h, 0, keys), matrix(a.y, b, h, first, rows), 1);
        }
  };
  if (a.q.dtype == kBFloat16) with(BFloat16());
  else with(Half());
}
bool supports(const AttentionForward& a) {
  return is_reduced(a.q.dtype) && (a.q.sizes[3] > 256 || a.v.sizes[3] > 256) && !a.mask && !a.is_causal &&
         a.q.sizes[1] == a.k.sizes[1] && a.q.sizes[0] * a.q.sizes[1] > 0 &&
         a.q.sizes[2] * a.k.sizes[2] >= kFewestScores;
}

SF_KERNEL(attention_forward, DeviceType::CUDA, "products", 2, forward, supports)

}  // namespace
}  // namespace sf::cuda
