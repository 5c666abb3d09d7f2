// Reverse-mode tape. Ops call record(); nothing below the ops knows that gradients exist.
//
//   return autograd::record("mul", y, {a, b}, [a = save(a), b = save(b)](const Tensor& dy) -> Tensors {
//     return {dy * b.get(), dy * a.get()};
//   });
//
// A closure returns one gradient per input (an empty Tensor for none), already of the input's shape.
// Second derivatives:
// a closure written with ops is differentiated by running it with recording on; one that calls kernels directly passes
// a `reference` too, the op as maths, which is differentiated instead when create_graph is set.
// A closure that takes (dy, y) gets the op's output as well, without keeping a cycle alive.
// Ops with several outputs record with Tensors and get Tensors of gradients (absent ones empty).
#pragma once
#include <functional>
#include <initializer_list>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/autograd/node.h"
#include "scaffolding/autograd/saved.h"

namespace sf::autograd {

// The inputs of an op, borrowed for the duration of record().
struct InputRef {
  const Tensor* p;
  InputRef(const Tensor& t) : p(&t) {}
};
class Inputs {
 public:
  Inputs(std::initializer_list<InputRef> l) : n_(l.size()) { refs_ = l.begin(); }
  Inputs(const Tensors& v) : tensors_(v.data()), n_(v.size()) {}
  size_t size() const { return n_; }
  const Tensor& operator[](size_t i) const { return refs_ ? *refs_[i].p : tensors_[i]; }

 private:
  const InputRef* refs_ = nullptr;
  const Tensor* tensors_ = nullptr;
  size_t n_;
};

inline bool any_requires_grad(const Inputs& inputs) {
  if (!grad_enabled()) return false;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].requires_grad()) return true;
  return false;
}

namespace detail {
void check_anomaly(const char* name, const Tensor& y, const Inputs& inputs);
}

// The op as maths, from the same inputs, recorded op by op: differentiated when create_graph is set.
using Reference = std::function<Tensors(const Tensors& inputs)>;

namespace detail {
void attach(Ref<Node> node, Tensor& y, uint32_t output_nr);
void connect(Node* node, const Inputs& inputs);

template <class F> class ClosureNode final : public Node {
 public:
  ClosureNode(const char* name, F f) : Node(name), f_(std::move(f)) {}
  Tensors apply(Tensors& dys) override {
    check_not_released(f_.has_value());
    if constexpr (std::is_invocable_v<F&, const Tensors&>) return (*f_)(static_cast<const Tensors&>(dys));
    else if constexpr (std::is_invocable_v<F&, const Tensor&, const Tensor&>) return (*f_)(dys[0], output());
    else return (*f_)(dys[0]);
  }
  void release_saved() override {
    f_.reset();
    drop_output();
    reference = nullptr;
  }
  static constexpr bool kWantsOutput =
      !std::is_invocable_v<F&, const Tensors&> && std::is_invocable_v<F&, const Tensor&, const Tensor&>;

 private:
  std::optional<F> f_;
};
}  // namespace detail

template <class F>
Tensor record(const char* name, Tensor y, const Inputs& inputs, F&& backward, Reference reference = nullptr) {
  if (detail::mode.anomaly) [[unlikely]]
    detail::check_anomaly(name, y, inputs);
  if (!any_requires_grad(inputs)) return y;
  using N = detail::ClosureNode<std::decay_t<F>>;
  auto node = Ref<Node>::fresh(new N(name, std::forward<F>(backward)));
  if (reference) node->reference = std::move(reference);
  detail::connect(node.get(), inputs);
  if constexpr (N::kWantsOutput) node->save_output(y);
  detail::attach(std::move(node), y, 0);
  return y;
}

// Several outputs; integer ones (indices) may stay off the tape: they are passed by but get no gradient.
template <class F>
void record_outputs(const char* name, Tensors& ys, const Inputs& inputs, F&& backward, Reference reference = nullptr) {
  if (detail::mode.anomaly) [[unlikely]]
    for (auto& y : ys) detail::check_anomaly(name, y, inputs);
  if (!any_requires_grad(inputs)) return;
  auto node = Ref<Node>::fresh(new detail::ClosureNode<std::decay_t<F>>(name, std::forward<F>(backward)));
  if (reference) node->reference = std::move(reference);
  detail::connect(node.get(), inputs);
  for (size_t i = 0; i < ys.size(); ++i)
    if (ys[i] && is_floating(ys[i].dtype())) detail::attach(node, ys[i], uint32_t(i));
}

// For ops without a gradient (argmax, comparisons) nothing is called. For ops that should have one and do not:
void refuse_gradient(const char* op, const Inputs& inputs);  // RuntimeError when a gradient would be needed

// y = f(self, ...) computed out of place becomes the new value of self: bytes, tape and version counter.
// Refuses leaves that require a gradient (as torch does) and views whose base is on the tape get their base's tape
// mended.
Tensor& assign_inplace(const char* op, Tensor& self, const Tensor& y);
// To be called by ops that write self's bytes without recording (no gradient wanted): checks and bumps the version.
void check_inplace(const char* op, const Tensor& self);
inline void bump_version(const Tensor& t) { ++t.impl()->storage->version; }

// Where a gradient for t goes: its node, itself when it is a leaf, nowhere when it needs none.
Edge edge_of(const Tensor& t);
// A view's node, made anew after its base was written in place.
void refresh_view(const Tensor& view);

// Marks y as a view of x's storage for assign_inplace; called by ops/view.
void mark_view(Tensor& y, const Tensor& x);

}  // namespace sf::autograd
