// In-place writes on the tape. An in-place op is its out-of-place twin plus assign_inplace: the new bytes are copied
// over the old, and the tensor takes the new value's place on the tape. Writes through a view reach its base,
// as in torch:
// the base's gradient then flows to the written region through the view and everywhere else to the old base. Other
// views of that base notice by its inplace_epoch, and take their new place on the tape when they are next used.
#include "scaffolding/autograd/called_ops.h"
#include "scaffolding/autograd/observer.h"
#include "scaffolding/autograd/take_over.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/cpu/sealed_pages.h"

namespace sf::autograd {

void mark_view(Tensor& y, const Tensor& x) {
  y.impl()->inference = x.impl()->inference;
  y.impl()->no_grad_view = !grad_enabled() || x.impl()->no_grad_view;
  if (!grad_enabled()) return;
  TensorImpl* base = x.impl()->base ? x.impl()->base.get() : x.impl();
  y.impl()->base = Ref<TensorImpl>(base);
  y.impl()->base_epoch = base->inplace_epoch;
}

static bool is_overlapping(const TensorImpl& t) {
  if (t.sizes.contains(0)) return false;
  for (int64_t i = 0; i < t.sizes.size(); ++i)
    if (t.strides[i] == 0 && t.sizes[i] > 1) return true;
  return false;
}

void check_inplace(const char* op, const Tensor& self) {
  if (Observer* o = Observer::current()) [[unlikely]]
    o->written(op);
  TensorImpl* t = self.impl();
  SF_CHECK_AS(RuntimeError, !grad_enabled() || !t->requires_grad || t->grad_fn, op,
              ": a leaf that requires a gradient cannot be written in place; use no_grad or the out-of-place op");
  TensorImpl* base = t->base.get();
  SF_CHECK_AS(
      RuntimeError, !grad_enabled() || !base || !base->requires_grad || base->grad_fn, op,
      ": a view of a leaf that requires a gradient cannot be written in place; use no_grad or the out-of-place op");
  SF_CHECK_AS(
      RuntimeError, !is_overlapping(*t), op,
      ": an expanded tensor has several elements in one place and cannot be written in place; clone() it first");
  SF_CHECK_AS(RuntimeError, !t->inference || inference_mode_enabled(), op,
              ": a tensor made in inference_mode cannot be written in place outside it; clone() it first");
  cpu::will_write(self);
}

// The part of `grad` (laid out as base) that a view with the given geometry covers.
static Tensor region_of(const Tensor& grad, const TensorImpl& base, const Shape& sizes, const Shape& strides,
                        int64_t offset) {
  return grad.as_strided(sizes, strides, grad.storage_offset() + offset - base.offset);
}

static Tensor in_layout_of(const Tensor& grad, const TensorImpl& base) {
  Tensor g = empty_strided(base.sizes, base.strides, grad.dtype(), grad.device());
  g.copy_(grad);
  return g;
}

// y takes the place of `t` on the tape. A gradient that t retains follows it to its new node, as in torch.
static void take_place(TensorImpl* t, const Tensor& y) {
  std::shared_ptr<Tensor> kept = t->meta ? t->meta->retained : nullptr;
  if (kept && t->grad_fn && t->grad_fn->hooks)
    std::erase_if(t->grad_fn->hooks->retained, [&](auto& entry) { return entry.second == kept; });
  t->grad_fn = y.impl()->grad_fn;
  t->output_nr = y.impl()->output_nr;
  if (kept && t->grad_fn) t->grad_fn->hooks_or_new().retained.push_back({t->output_nr, kept});
}

void refresh_view(const Tensor& view) {
  TensorImpl* v = view.impl();
  Tensor base{v->base};
  EnableGrad on;
  take_place(v, base.as_strided(v->sizes, v->strides, v->offset));
  v->base_epoch = base.impl()->inplace_epoch;
}

// A tensor's value under a node of its own, so that hooks on it are not hooks on y.
static Tensor same_value(const char* op, const Tensor& y) {
  return record(op, y.detach(), {y}, [](const Tensor& dy) -> Tensors { return {dy}; });
}
// A constant written over a tensor of the tape: the tensor stays on it, with a gradient of zero for what it was.
static Tensor constant_over(const char* op, const Tensor& self, const Tensor& y) {
  return record(op, y.detach(), {self}, [](const Tensor& dy) -> Tensors { return {zeros_like(dy)}; });
}

Tensor& assign_inplace(const char* op, Tensor& self, const Tensor& y) {
  check_defined(op, "self", self);
  check_inplace(op, self);
  SF_CHECK(y.shape() == self.shape(), op, ": the result of shape ", y.shape(), " does not fit in the tensor of shape ",
           self.shape());
  SF_CHECK_AS(
      TypeError,
      y.dtype() == self.dtype() || is_floating(self.dtype()) || (!is_floating(y.dtype()) && (self.dtype() != kBool)),
      op, ": a result of dtype ", y.dtype(), " cannot be stored in a ", self.dtype(), " tensor; convert it first");
  Tensor value = y.dtype() == self.dtype() ? y : y.to(self.dtype());
  TensorImpl* t = self.impl();
  TensorImpl* base = t->base.get();
  bool taped = grad_enabled() && (value.requires_grad() || self.requires_grad() || (base && base->grad_fn));
  Edge old_base;
  SF_CHECK_AS(RuntimeError, !taped || !t->no_grad_view, op,
              ": the tensor is a view made under no_grad, so its base would not see the gradient; make the view while "
              "recording, or clone() it");
  if (taped && base) {
    SF_CHECK_AS(RuntimeError, !is_overlapping(*base), op, ": the tensor is a view of an expanded tensor ", base->sizes,
                ", which has several elements in one place; clone() that first");
    old_base = edge_of(Tensor{t->base});
  }
  if (taped && !base) {
    if (!value.requires_grad()) value = constant_over(op, self, value);
    else if (!value.impl()->grad_fn || value.impl()->refs.load() > 2) value = same_value(op, value);  // 2: y and value
  }
  if (value.storage() == self.storage() && !value.is_same(self)) copy_bytes(self, value.clone());  // may overlap
  else copy_bytes(self, value);
  bump_version(self);
  if (!taped) return self;
  if (!base) {
    take_place(t, value);
    ++t->inplace_epoch;
    return self;
  }
  // A write through a view: the base gets a node of its own.
  Ref<TensorImpl> base_geometry(new TensorImpl);  // sizes, strides and offset only: the base itself would be a cycle
  base_geometry->sizes = base->sizes;
  base_geometry->strides = base->strides;
  base_geometry->offset = base->offset;
  auto backward = [geometry = base_geometry, sizes = t->sizes, strides = t->strides,
                   offset = t->offset](const Tensor& dy) -> Tensors {
    Tensor rest = in_layout_of(dy, *geometry);
    Tensor region = region_of(rest, *geometry, sizes, strides, offset);
    Tensor inner = region.clone();
    region.zero_();
    return {rest, inner};
  };
  auto* node = new detail::ClosureNode<decltype(backward)>(op, std::move(backward));
  Ref<Node> hold(node);
  node->add_edge(old_base);
  node->add_edge(edge_of(value));
  Tensor place = Tensor{t->base}.detach();
  detail::attach(std::move(hold), place, 0);
  take_place(base, place);
  ++base->inplace_epoch;
  refresh_view(self);
  return self;
}

// t came from an op on the tape and nothing else but `users` holds its memory: t may have another's.
static bool has_own_memory(const TensorImpl& t, uint32_t users) {
  return t.grad_fn && !t.base && t.storage->refs.load() == users && !t.storage->lender && grad_enabled();
}
static Tensor& exchange(const char* op, Tensor& self, const Tensor& y) {
  TensorImpl *t = self.impl(), *from = y.impl();
  if (from->base || !from->grad_fn || from->dtype != t->dtype || from->sizes != t->sizes ||
      from->strides != t->strides || from->offset)
    return assign_inplace(op, self, y);
  check_inplace(op, self);
  t->storage = from->storage;
  t->data = from->data;
  t->offset = 0;
  t->contiguous = from->contiguous;
  take_place(t, y);
  ++t->inplace_epoch;
  return self;
}

Tensor& take_over(const char* op, Tensor& self, const Tensor& y) {
  return self && has_own_memory(*self.impl(), 1) ? exchange(op, self, y) : assign_inplace(op, self, y);
}

Tensor& overwrite(const char* op, Tensor& self, const std::function<Tensor(const Tensor&)>& f, bool random) {
  check_defined(op, "self", self);
  if (!grad_enabled()) return assign_inplace(op, self, f(self));
  check_inplace(op, self);
  bool own = has_own_memory(*self.impl(), 1);
  if (!own && random) return assign_inplace(op, self, f(self.clone()));
  auto before = self.storage()->refs.load();
  Tensor y = f(self);
  if (own && y.storage() != self.storage()) return exchange(op, self, y);
  bool is_kept = self.storage()->refs.load() > before && y.storage() != self.storage();  // f's gradient will read it
  if (is_kept) y = f(self.clone());
  return assign_inplace(op, self, y);
}

}  // namespace sf::autograd
