#include "scaffolding/models/parts/packed_projections.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/autograd/set_data.h"
#include "scaffolding/models/parts/attention.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/models/unets/unet_2d_condition.h"
#include "scaffolding/nn/looked_at.h"
#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/view/view.h"

namespace sf::models {

namespace {

// False where tensors are of several kinds, so that they cannot be one.
bool can_pack(const Tensors& tensors) {
  const Tensor& first = tensors[0];
  for (const Tensor& t : tensors) {
    if (!t || t.dtype() != first.dtype() || t.device() != first.device() || t.ndim() != first.ndim() || t.device().is_meta()) return false;
    for (int64_t i = 1; i < t.ndim(); ++i)
      if (t.size(i) != first.size(i)) return false;
  }
  return true;
}

void pack(const Tensors& tensors) {
  if (side_by_side(tensors)) return;
  autograd::NoGrad off;
  Tensors values;
  for (const Tensor& t : tensors) values.push_back(t.detach());
  const Tensor all = cat(values, 0);
  int64_t at = 0;
  for (const Tensor& t : tensors) {
    autograd::set_data(t, all.narrow(0, at, t.size(0)));
    at += t.size(0);
  }
}

}  // namespace

Tensor side_by_side(const Tensors& tensors) {
  const Tensor& first = tensors[0];
  if (!can_pack(tensors)) return {};
  int64_t rows = 0, offset = first.storage_offset();
  for (const Tensor& t : tensors) {
    if (t.storage().get() != first.storage().get() || t.storage_offset() != offset || !t.is_contiguous()) return {};
    rows += t.size(0), offset += t.numel();
  }
  Shape sizes = first.shape();
  sizes[0] = rows;
  return Tensor::strided(first.storage(), sizes, first.strides(), first.storage_offset(), first.dtype());
}

int64_t pack_attention(nn::Module& model) {
  int64_t packed = 0;
  for (auto& named : nn::named_modules(model)) {
    auto* a = dynamic_cast<Attention*>(named.module);
    if (!a || is_looked_at(*a)) continue;
    if (a->takes_float8(false)) {
      const nn::LinearFP8 *q = float8_layer(a->to_q), *k = float8_layer(a->to_k), *v = float8_layer(a->to_v);
      const Tensors codes{q->weight, k->weight, v->weight}, scales{q->scale, k->scale, v->scale}, shifts{q->bias, k->bias, v->bias};
      if (!can_pack(codes) || !can_pack(scales) || (q->bias && !can_pack(shifts))) continue;
      pack(codes), pack(scales);
      if (q->bias) pack(shifts);
      ++packed;
      continue;
    }
    if (is_looked_at(a->to_q) || is_looked_at(a->to_k) || is_looked_at(a->to_v)) continue;
    const Tensors weights{a->to_q.weight, a->to_k.weight, a->to_v.weight}, biases{a->to_q.bias, a->to_k.bias, a->to_v.bias};
    const bool has_bias = biases[0] && biases[1] && biases[2], has_none = !biases[0] && !biases[1] && !biases[2];
    if (!can_pack(weights) || !(has_none || (has_bias && can_pack(biases)))) continue;
    pack(weights);
    if (has_bias) pack(biases);
    ++packed;
  }
  return packed;
}

void pack_time_projections(const std::vector<const ResnetBlock2D*>& blocks) {
  Tensors weights, biases, of_convolutions;
  for (const ResnetBlock2D* b : blocks) {
    if (!b->time_emb_proj || b->scale_shift || is_looked_at(*b->time_emb_proj) || is_looked_at(b->conv1)) return;
    weights.push_back(b->time_emb_proj->weight), biases.push_back(b->time_emb_proj->bias), of_convolutions.push_back(b->conv1.bias);
  }
  if (weights.empty() || !can_pack(weights) || !can_pack(biases) || !can_pack(of_convolutions)) return;
  pack(weights), pack(biases), pack(of_convolutions);
}

void pack_projections(nn::Module& model) {
  pack_attention(model);
  if (auto* unet = dynamic_cast<UNet2DConditionModel*>(&model)) pack_time_projections(unet->timed_blocks());
}

}  // namespace sf::models
