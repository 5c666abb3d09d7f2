#include "scaffolding/models/parts/norm.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

TransformerNorm::TransformerNorm(int64_t channels, double e, bool elementwise_affine,
                                 std::optional<int64_t> num_embeddings)
    : dim(channels), eps(e) {
  if (num_embeddings) {
    emb.emplace(*num_embeddings, dim);
    linear.emplace(dim, 2 * dim);
  } else if (elementwise_affine) {
    weight = nn::parameter(ones({dim}));
    bias = nn::parameter(zeros({dim}));
  }
}

Tensor TransformerNorm::forward(const Tensor& x, const Tensor& timestep) const {
  if (!emb) return layer_norm(x, {dim}, weight, bias, eps);
  SF_CHECK(timestep && timestep.ndim() <= 1, "AdaLayerNorm: needs a timestep of no or one dimension");
  const int64_t batch = x.size(0);
  Tensor numbers = timestep.ndim() ? timestep : timestep.unsqueeze(0);
  SF_CHECK(numbers.size(0) == 1 || numbers.size(0) == batch,
           "AdaLayerNorm: timestep must be one number or one for each of ", batch, " samples, got ", timestep.shape());
  Tensors parts = chunk((*linear)(silu((*emb)(numbers))), 2, -1);  // scale, shift
  return layer_norm_modulate(x, parts[0].expand({batch, dim}), parts[1].expand({batch, dim}), {}, {}, eps);
}

bool TransformerNorm::writes_float8() const {
  return !emb && is_plain(*this) && !autograd::grad_enabled() && !autocast::active();
}
ProjectionInput TransformerNorm::in_float8(const Tensor& x) const {
  return {layer_norm_fp8(x, weight, bias, eps), x.dtype()};
}

namespace {
constexpr double kGatedEps = 1e-6;  // diffusers'

BlockModulation of_rows(const Tensors& m) { return {m[0], m[1], m[2], m[3], m[4], m[5]}; }
}  // namespace

Tensors rows_with_table(const Tensor& table, const Tensor& given) {
  const Tensor sum = table.unsqueeze(0) + given;
  Tensors rows;
  for (int64_t i = 0; i < sum.size(1); ++i) rows.push_back(sum.select(1, i));
  return rows;
}

BlockModulation block_modulation(const Tensor& all) { return of_rows(chunk(all, 6, 1)); }
BlockModulation block_modulation(const Tensor& all, const Tensor& table) {
  return of_rows(rows_with_table(table, all.reshape({all.size(0), 6, -1})));
}

AdaLayerNormZero::AdaLayerNormZero(int64_t embedding_dim, int64_t num_embeddings)
    : emb(num_embeddings, embedding_dim), linear(embedding_dim, 6 * embedding_dim) {}

BlockModulation AdaLayerNormZero::forward(const Tensor& timestep, const Tensor& class_labels, DType dtype) const {
  return block_modulation(linear(silu(emb.forward(timestep, class_labels, dtype))));
}

Tensor modulated(const nn::LayerNorm& norm, const Tensor& x, const Tensor& scale, const Tensor& shift) {
  return is_plain(norm) ? layer_norm_modulate(x, scale, shift, norm.weight, norm.bias, norm.eps)
                        : modulate(norm(x), scale, shift);
}

AdaLayerNormGated::AdaLayerNormGated(int64_t dim, int64_t n)
    : parts(n), linear(dim, n * dim), norm(Shape{dim}, kGatedEps, false) {}

Tensors AdaLayerNormGated::forward(const Tensor& x, const Tensor& temb) const {
  const Tensors m = chunk(linear(silu(temb)), parts, 1);
  Tensors out{modulated(norm, x, m[1], m[0])};
  out.insert(out.end(), m.begin() + 2, m.end());
  return out;
}

AdaLayerNormContinuous::AdaLayerNormContinuous(int64_t dim, int64_t embedding_dim, double eps, bool elementwise_affine)
    : linear(embedding_dim, 2 * dim), norm(Shape{dim}, eps, elementwise_affine) {}

Tensor AdaLayerNormContinuous::forward(const Tensor& x, const Tensor& temb) const {
  const Tensors m = chunk(linear(silu(temb)), 2, 1);
  return modulated(norm, x, m[0], m[1]);
}

Tensor scaled(const nn::RMSNorm& norm, const Tensor& x, const Tensor& scale) {
  if (!is_plain(norm) || !norm.eps) return norm(x) * (1 + scale).unsqueeze(1);
  return rms_norm_modulate(x, scale, zeros_like(scale), norm.weight, *norm.eps);
}

AdaLayerNorm::AdaLayerNorm(int64_t embedding_dim, int64_t dim, double eps, bool elementwise_affine)
    : linear(embedding_dim, 2 * dim), norm(Shape{dim}, eps, elementwise_affine) {}

Tensor AdaLayerNorm::forward(const Tensor& x, const Tensor& temb) const {
  const Tensors parts = chunk(linear(silu(temb)), 2, 1);
  return modulated(norm, x, parts[1], parts[0]);
}

}  // namespace sf::models
