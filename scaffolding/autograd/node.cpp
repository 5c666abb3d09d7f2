#include "scaffolding/autograd/node.h"

#include "scaffolding/autograd/anomaly.h"
#include "scaffolding/autograd/observer.h"
#include "scaffolding/autograd/tape.h"

namespace sf::autograd {

namespace detail {
constinit thread_local Mode mode __attribute__((tls_model("initial-exec")));
}

thread_local constinit uint64_t Node::last_seq __attribute__((tls_model("initial-exec"))) = 0;

// Deleting a node drops its edges and saved tensors, which may drop the last owner of the next node, and so on: a chain
// of a million nodes would recurse a million deep. The outermost call keeps a list and works it off instead.
Node::Hooks::Hooks() : on_outputs(std::make_shared<HookList>()) {}
Node::Hooks::~Hooks() = default;
Node::Hooks& Node::hooks_or_new() {
  if (!hooks) hooks = std::make_unique<Hooks>();
  return *hooks;
}

void Node::destroy(Node* n) {
  static thread_local constinit Node* doomed __attribute__((tls_model("initial-exec"))) = nullptr;
  static thread_local constinit bool working __attribute__((tls_model("initial-exec"))) = false;
  n->next_doomed_ = std::exchange(doomed, n);
  if (std::exchange(working, true)) return;
  while (Node* next = doomed) {
    doomed = next->next_doomed_;
    delete next;
  }
  working = false;
}

void Node::check_not_released(bool alive) const {
  SF_CHECK_AS(RuntimeError, alive, name_,
              ": backward a second time through the same graph, whose saved tensors are freed; pass retain_graph=True "
              "the first time");
}

void Node::save_output(const Tensor& y) { output_ = Saved(y); }  // y is not on the tape yet: an alias of its bytes

Tensor Node::output() {
  check_not_released(bool(output_));
  Tensor y = output_.get();
  if (!grad_enabled()) return y;
  y = y.detach();
  y.impl()->grad_fn = Ref<Node>(this);
  return y;
}

GradMeta& meta_of(const Tensor& t) {
  if (!t.impl()->meta) t.impl()->meta = new GradMeta;
  return *t.impl()->meta;
}

Saved::Saved(const Tensor& t) {
  if (!t) return;
  version_ = t.version();
  if (!grad_enabled()) {  // nothing will be recorded: the closure that this is captured by is dropped at once
    tensor_ = t;
    return;
  }
  if (t.impl()->on_tape()) {
    Edge e = edge_of(t);
    grad_fn_ = e.node;
    output_nr_ = e.nr;
  }
  if (t.impl()->requires_grad) {  // packing it would save nothing: its owner keeps it
    tensor_ = t;
    return;
  }
  if (auto unpack = detail::pack_saved(t.detach()))
    unpack_ = std::make_shared<std::function<Tensor()>>(std::move(unpack));
  else tensor_ = t.detach();
}

Tensor Saved::get() const {
  Tensor t = tensor_;
  if (unpack_) {
    t = (*unpack_)();
  } else if (tensor_) {
    SF_CHECK_AS(RuntimeError, tensor_.version() == version_, "backward: a tensor ", tensor_.shape(),
                " needed for the gradient was modified in place (version ", tensor_.version(), ", saved at ", version_,
                "); use the out-of-place op or clone it before");
  }
  if (!grad_fn_ || !grad_enabled()) return t;
  t = t.detach();
  t.impl()->grad_fn = grad_fn_;
  t.impl()->output_nr = output_nr_;
  return t;
}

std::vector<Saved> save(const Tensors& ts) { return {ts.begin(), ts.end()}; }

static thread_local std::vector<PackHook> t_pack_hooks;
SavedTensorHooks::SavedTensorHooks(PackHook pack) { t_pack_hooks.push_back(std::move(pack)); }
SavedTensorHooks::~SavedTensorHooks() { t_pack_hooks.pop_back(); }
std::function<Tensor()> detail::pack_saved(const Tensor& t) {
  if (t_pack_hooks.empty() || !grad_enabled()) return nullptr;
  return t_pack_hooks.back()(t);
}

// ---- record()

Edge edge_of(const Tensor& t) {
  if (!t.requires_grad()) return {};
  TensorImpl* impl = t.impl();
  if (impl->is_stale_view()) refresh_view(t);
  if (impl->grad_fn) return {impl->grad_fn, {}, impl->output_nr};
  return {{}, Ref<TensorImpl>(impl), 0};
}

void detail::check_anomaly(const char* name, const Tensor& y, const Inputs& inputs) {
  if (Observer* o = Observer::current()) o->recorded(name, y);
  Tensors from;
  for (size_t i = 0; i < inputs.size(); ++i) from.push_back(inputs[i]);
  check_forward_finite(name, {y}, from);
}

void detail::connect(Node* node, const Inputs& inputs) {
  node->edges.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = inputs[i];
    SF_CHECK_AS(RuntimeError, !t || !t.impl()->inference, node->name(),
                ": a tensor made in inference_mode cannot be saved for backward; clone it outside, or use no_grad");
    node->add_edge(edge_of(t));
  }
  if (node->reference)
    for (size_t i = 0; i < inputs.size(); ++i) node->reference_inputs.push_back(Saved(inputs[i]));
}

void detail::attach(Ref<Node> node, Tensor& y, uint32_t nr) {
  if (node->outputs.size() < nr) node->outputs.resize(nr);
  if (node->outputs.size() == nr) node->outputs.emplace_back(y.shape(), y.dtype(), y.device());
  else node->outputs[nr] = {y.shape(), y.dtype(), y.device()};
  y.impl()->grad_fn = std::move(node);
  y.impl()->output_nr = nr;
}

void refuse_gradient(const char* op, const Inputs& inputs) {
  SF_CHECK_AS(RuntimeError, !any_requires_grad(inputs), op,
              ": has no gradient; detach its input or run it under no_grad");
}

}  // namespace sf::autograd
