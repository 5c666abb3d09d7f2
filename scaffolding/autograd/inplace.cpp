// In-place writes on the tape. An in-place op is its out-of-place twin plus assign_inplace: the new bytes are copied over
// the old, and the tensor takes the new value's place on the tape. Writes through a view reach its base, as in torch:
// the base's gradient then flows to the written region through the view and everywhere else to the old base.
#include "scaffolding/autograd/tape.h"
#include "scaffolding/ops/copy/copy.h"

namespace sf::autograd {

void mark_view(Tensor& y, const Tensor& x) {
  if (!grad_enabled()) return;
  TensorImpl* base = x.impl()->base ? x.impl()->base.get() : x.impl();
  y.impl()->base = Ref<TensorImpl>(base);
  y.impl()->base_epoch = base->inplace_epoch;
}

void check_inplace(const char* op, const Tensor& self) {
  SF_CHECK_AS(RuntimeError, !grad_enabled() || !self.impl()->requires_grad || self.impl()->grad_fn, op,
              ": a leaf that requires a gradient cannot be written in place; use no_grad or the out-of-place op");
  TensorImpl* base = self.impl()->base.get();
  SF_CHECK_AS(RuntimeError, !grad_enabled() || !base || !base->requires_grad || base->grad_fn, op,
              ": a view of a leaf that requires a gradient cannot be written in place; use no_grad or the out-of-place op");
  for (int64_t i = 0; i < self.ndim(); ++i)
    SF_CHECK_AS(RuntimeError, self.strides()[i] != 0 || self.shape()[i] <= 1, op,
                ": an expanded tensor has several elements in one place and cannot be written in place; clone() it first");
}

// The part of `grad` (laid out as base) that a view with the given geometry covers.
static Tensor region_of(const Tensor& grad, const TensorImpl& base, const Shape& sizes, const Shape& strides, int64_t offset) {
  return grad.as_strided(sizes, strides, grad.storage_offset() + offset - base.offset);
}

static Tensor in_layout_of(const Tensor& grad, const TensorImpl& base) {
  Tensor g = empty_strided(base.sizes, base.strides, grad.dtype(), grad.device());
  g.copy_(grad);
  return g;
}

void refresh_view(const Tensor& view) {
  TensorImpl* v = view.impl();
  Tensor base{v->base};
  EnableGrad on;
  Tensor fresh = base.as_strided(v->sizes, v->strides, v->offset);
  v->grad_fn = fresh.impl()->grad_fn;
  v->output_nr = fresh.impl()->output_nr;
  v->base_epoch = base.impl()->inplace_epoch;
}

Tensor& assign_inplace(const char* op, Tensor& self, const Tensor& y) {
  check_defined(op, "self", self);
  check_inplace(op, self);
  SF_CHECK(y.shape() == self.shape(), op, ": the result of shape ", y.shape(), " does not fit in the tensor of shape ", self.shape());
  SF_CHECK_AS(TypeError, y.dtype() == self.dtype() || is_floating(self.dtype()) || (!is_floating(y.dtype()) && (self.dtype() != kBool)), op,
              ": a result of dtype ", y.dtype(), " cannot be stored in a ", self.dtype(), " tensor; convert it first");
  Tensor value = y.dtype() == self.dtype() ? y : y.to(self.dtype());
  bool taped = grad_enabled() && (value.requires_grad() || self.requires_grad() || (self.impl()->base && self.impl()->base->grad_fn));
  Edge old_base;
  TensorImpl* base = self.impl()->base.get();
  if (taped && base) old_base = edge_of(Tensor{self.impl()->base});
  copy_bytes(self, value);
  bump_version(self);
  if (!taped) return self;
  if (!base) {
    self.impl()->grad_fn = value.impl()->grad_fn;
    self.impl()->output_nr = value.impl()->output_nr;
    return self;
  }
  // A write through a view: the base gets a node of its own.
  TensorImpl* v = self.impl();
  Ref<TensorImpl> base_geometry(new TensorImpl);   // sizes, strides and offset only: the base itself would be a cycle
  base_geometry->sizes = base->sizes;
  base_geometry->strides = base->strides;
  base_geometry->offset = base->offset;
  auto backward = [geometry = base_geometry, sizes = v->sizes, strides = v->strides, offset = v->offset](const Tensor& dy) -> Tensors {
    Tensor rest = in_layout_of(dy, *geometry);
    Tensor region = region_of(rest, *geometry, sizes, strides, offset);
    Tensor inner = region.clone();
    region.zero_();
    return {rest, inner};
  };
  auto* node = new detail::ClosureNode<decltype(backward)>(op, std::move(backward));
  Ref<Node> hold(node);
  node->edges.push_back(old_base);
  node->edges.push_back(edge_of(value));
  Tensor base_tensor{v->base};
  detail::attach(node, base_tensor, 0);
  ++base->inplace_epoch;
  refresh_view(self);
  return self;
}

}  // namespace sf::autograd
