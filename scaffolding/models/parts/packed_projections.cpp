#include "scaffolding/models/parts/packed_projections.h"

#include <algorithm>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/autograd/set_data.h"
#include "scaffolding/nn/streaming/streamer.h"
#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/view/view.h"

namespace sf::models {

namespace {

// False where tensors are of several kinds, so that they cannot be one.
bool can_pack(const Tensors& tensors) {
  const Tensor& first = tensors[0];
  for (const Tensor& t : tensors) {
    if (!t || t.dtype() != first.dtype() || t.device() != first.device() || t.ndim() != first.ndim() ||
        t.device().is_meta())
      return false;
    for (int64_t i = 1; i < t.ndim(); ++i)
      if (t.size(i) != first.size(i)) return false;
  }
  return true;
}

void pack(const Tensors& tensors) {
  autograd::NoGrad off;
  if (side_by_side(tensors) || nn::Streamer::lay_side_by_side(tensors)) return;
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

bool lay_side_by_side(const std::vector<Tensors>& lists) {
  if (!std::all_of(lists.begin(), lists.end(), [](const Tensors& list) { return list.empty() || can_pack(list); }))
    return false;
  for (const Tensors& list : lists)
    if (!list.empty()) pack(list);
  return true;
}

int64_t pack_projections(nn::Module& model) {
  int64_t packed = 0;
  for (auto& named : nn::named_modules(model))
    if (auto* part = dynamic_cast<PackedPart*>(named.module)) packed += part->pack();
  return packed;
}

}  // namespace sf::models
