// Python callables among a tensor's gradient hooks. Types of their own,
// so that the garbage collector can find the callables:
// a hook that uses its own tensor (`x.register_hook(lambda g: g * x)`) is a cycle through C++.
#pragma once
#include "python/bindings/core/py_callable.h"
#include "scaffolding/autograd/node.h"

namespace sf::py {

struct GradientHook {  // an autograd::TensorHook
  Held function;
  Tensor operator()(const Tensor& gradient) const;
};
struct PostAccumulateHook {
  Held function;
  void operator()(const Tensor& leaf) const;
};

inline bool may_have_hooks(const TensorImpl& t) { return t.meta || (t.grad_fn && t.grad_fn->hooks); }
// For tp_traverse and tp_clear of a tensor's Python object. Hooks that others own too, or may call yet, are left alone.
int visit_hooks(const Tensor& t, visitproc visit, void* arg);
void clear_hooks(const Tensor& t);

}  // namespace sf::py
