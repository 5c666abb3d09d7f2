// Hooks on gradients. A hook on a tensor sees its gradient during backward and may return another of the same shape;
// hooks run in the order of registration, before the gradient is retained or accumulated.
// Hooks may register and remove hooks and may call backward themselves. They belong to the tensor's thread.
#pragma once
#include "scaffolding/autograd/node.h"

namespace sf::autograd {

// A registered hook. Dropping the handle leaves the hook in place.
class HookHandle {
 public:
  HookHandle() = default;
  HookHandle(uint64_t id, std::function<void()> remove) : id_(id), remove_(std::move(remove)) {}
  void remove();  // does nothing the second time, or when the tensor is gone
  uint64_t id() const { return id_; }

 private:
  uint64_t id_ = 0;
  std::function<void()> remove_;
};

// RuntimeError when t does not require a gradient. On a tensor that is not a leaf the hook stays with the op that made
// it: a later in-place write gives the tensor a new op.
HookHandle register_hook(const Tensor& t, TensorHook hook);

// hook(leaf) after a backward pass has added to leaf.grad(); it may read, replace or clear it.
HookHandle register_post_accumulate_grad_hook(const Tensor& leaf, std::function<void(const Tensor&)> hook);

// retain_grad() on each: after backward their grad() holds the gradient.
void retain_grads(const Tensors& tensors);

}  // namespace sf::autograd
