#include "scaffolding/autograd/engine.h"

#include <queue>
#include <unordered_map>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::autograd {

namespace {

// a + b where a is nobody else's: in place if that loses nothing.
Tensor accumulate(Tensor a, const Tensor& b, bool recording) {
  if (!a) return b;
  bool ours = a.impl()->refs.load() == 1 && a.storage()->refs.load() == 1;
  if (!recording && ours && a.is_contiguous() && a.dtype() == b.dtype()) return a.add_(b);
  return add(a, b);
}

struct NodeState {
  int pending = 0;       // edges that have not delivered yet
  bool needed = true;    // leads to a wanted gradient
  Tensors dys;
};
struct LeafState {
  int pending = 0;
  Tensor sum;
};

class Pass {
 public:
  Pass(BackwardOptions o, bool into_leaves) : options_(o), into_leaves_(into_leaves) { options_.retain_graph |= options_.create_graph; }

  // Wanted gradients by edge, for grad().
  void want(const Tensor& t) {
    Edge e = edge_of(t);
    SF_CHECK_AS(RuntimeError, bool(e), "grad: an input does not require a gradient");
    wanted_.push_back(e);
    captured_.emplace_back();
  }
  Tensors& captured() { return captured_; }

  void run(const Tensors& roots, const Tensors& gradients) {
    std::vector<Edge> starts;
    for (auto& r : roots) starts.push_back(edge_of(r));
    discover(starts);
    if (!into_leaves_) prune();
    GradMode mode(options_.create_graph);
    for (size_t i = 0; i < roots.size(); ++i) {
      Tensor g = i < gradients.size() ? gradients[i] : Tensor();
      deliver(starts[i], starting_gradient(roots[i], g), false);
    }
    for (auto& e : starts)
      if (e.node && nodes_[e.node.get()].pending == 0) make_ready(e.node.get());
      else if (e.leaf && leaves_[e.leaf.get()].pending == 0) finish_leaf(e.leaf.get());
    while (!ready_.empty()) {
      Ref<Node> node = ready_.top().second;
      ready_.pop();
      step(*node);
    }
  }

 private:
  static Tensor starting_gradient(const Tensor& root, const Tensor& g) {
    if (!g) {
      SF_CHECK_AS(RuntimeError, root.numel() == 1, "backward: a gradient must be given for an output of more than one element, got ", root.shape());
      return scalar_tensor(1, root.dtype(), root.device()).expand(root.shape());
    }
    SF_CHECK(g.shape() == root.shape(), "backward: gradient must have the output's shape ", root.shape(), ", got ", g.shape());
    check_same_device("backward", root, g);
    return g.dtype() == root.dtype() ? g : g.to(root.dtype());
  }

  // Counts, for every node reachable from the roots, how many gradients it will receive.
  void discover(const std::vector<Edge>& starts) {
    std::vector<Node*> stack;
    auto visit = [&](const Edge& e) {
      if (e.node && nodes_.try_emplace(e.node.get()).second) stack.push_back(e.node.get());
      if (e.leaf) leaves_.try_emplace(e.leaf.get());
    };
    for (auto& e : starts) visit(e);
    while (!stack.empty()) {
      Node* n = stack.back();
      stack.pop_back();
      order_.push_back(n);
      for (auto& e : n->edges) {
        visit(e);
        if (e.node) ++nodes_[e.node.get()].pending;
        if (e.leaf) ++leaves_[e.leaf.get()].pending;
      }
    }
  }

  // grad(): runs only nodes from which a wanted edge can be reached.
  void prune() {
    std::sort(order_.begin(), order_.end(), [](Node* a, Node* b) { return a->seq() < b->seq(); });
    for (Node* n : order_) {
      bool needed = false;
      for (auto& e : n->edges) needed = needed || index_of(e) >= 0 || (e.node && nodes_[e.node.get()].needed);
      nodes_[n].needed = needed;
    }
  }
  int index_of(const Edge& e) const {
    for (size_t i = 0; i < wanted_.size(); ++i)
      if (wanted_[i].node == e.node && wanted_[i].leaf == e.leaf && wanted_[i].nr == e.nr && e) return int(i);
    return -1;
  }

  void make_ready(Node* n) {
    NodeState& s = nodes_[n];
    if (s.pending < 0) return;
    s.pending = -1;
    ready_.push({n->seq(), Ref<Node>(n)});
  }

  void deliver(const Edge& e, const Tensor& g, bool count = true) {
    if (e.node) {
      NodeState& s = nodes_[e.node.get()];
      if (g) {
        if (s.dys.size() <= e.nr) s.dys.resize(std::max<size_t>(e.nr + 1, e.node->outputs.size()));
        Tensor& slot = s.dys[e.nr];
        slot = accumulate(std::move(slot), g, options_.create_graph);
      }
      if (count && --s.pending == 0) make_ready(e.node.get());
    } else if (e.leaf) {
      LeafState& s = leaves_[e.leaf.get()];
      if (g) s.sum = accumulate(std::move(s.sum), g, options_.create_graph);
      if (count && --s.pending == 0) finish_leaf(e.leaf.get());
    }
  }

  void finish_leaf(TensorImpl* impl) {
    Tensor g = std::move(leaves_[impl].sum);
    if (!g) return;
    Tensor leaf{Ref<TensorImpl>(impl)};
    if (impl->meta)
      for (auto& [id, hook] : impl->meta->hooks)
        if (Tensor edited = hook(g)) g = edited;
    if (int i = index_of(edge_of(leaf)); i >= 0) captured_[size_t(i)] = g;
    if (!into_leaves_) return;
    GradMeta& meta = meta_of(leaf);
    if (!meta.grad) {
      bool ours = g.impl()->refs.load() == 1 && g.storage()->refs.load() == 1;
      meta.grad = ours || options_.create_graph ? g : g.clone();
    } else if (options_.create_graph) {
      meta.grad = add(meta.grad, g);
    } else {
      meta.grad.add_(g);
    }
    for (auto& [id, hook] : meta.post_accumulate) hook(leaf);
  }

  void step(Node& n) {
    NodeState state = std::move(nodes_[&n]);
    Tensors& dys = state.dys;
    dys.resize(n.outputs.size());
    bool any = false;
    for (auto& g : dys) any |= g.defined();
    if (any && n.hooks) run_hooks(n, dys);
    if (any)
      for (size_t i = 0; i < wanted_.size(); ++i)
        if (wanted_[i].node.get() == &n && wanted_[i].nr < dys.size()) captured_[i] = dys[wanted_[i].nr];
    Tensors dxs;
    if (any && state.needed) {
      dxs = options_.create_graph && n.reference ? through_reference(n, dys) : n.apply(dys);
      SF_CHECK_AS(RuntimeError, dxs.size() <= n.edges.size(), n.name(), ": backward returned ", dxs.size(), " gradients for ", n.edges.size(), " inputs");
    }
    dxs.resize(n.edges.size());
    if (any && state.needed && !options_.retain_graph) {
      n.release_saved();
      n.reference_inputs.clear();
    }
    for (size_t i = 0; i < n.edges.size(); ++i) deliver(n.edges[i], checked(n, i, std::move(dxs[i])));
  }

  // A gradient must have its input's shape; it is brought to its dtype.
  static Tensor checked(const Node& n, size_t i, Tensor g) {
    const Edge& e = n.edges[i];
    if (!g || !e) return {};
    const Shape& want = e.node ? e.node->outputs[e.nr].shape : e.leaf->sizes;
    DType dtype = e.node ? e.node->outputs[e.nr].dtype : e.leaf->dtype;
    SF_CHECK_AS(RuntimeError, g.shape() == want, n.name(), ": backward returned a gradient of shape ", g.shape(), " for input ", i, " of shape ", want);
    return g.dtype() == dtype ? g : g.to(dtype);
  }

  static void run_hooks(Node& n, Tensors& dys) {
    for (auto& [id, entry] : n.hooks->tensor_hooks)
      if (Tensor& g = dys[entry.first])
        if (Tensor edited = entry.second(g)) {
          SF_CHECK(edited.shape() == g.shape(), n.name(), ": a hook returned a gradient of shape ", edited.shape(), " instead of ", g.shape());
          g = edited;
        }
    for (auto& [nr, impl] : n.hooks->retained)
      if (dys[nr]) {
        Tensor t{impl};
        t.set_grad(t.grad() ? add(t.grad(), dys[nr]) : dys[nr]);
      }
  }

  Tensors through_reference(Node& n, const Tensors& dys) {
    EnableGrad on;
    Tensors inputs;
    for (auto& s : n.reference_inputs) inputs.push_back(s.get());
    Tensors ys = n.reference(inputs), roots, gradients, wanted;
    for (size_t i = 0; i < ys.size(); ++i)
      if (i < dys.size() && dys[i] && ys[i].requires_grad()) {
        roots.push_back(ys[i]);
        gradients.push_back(dys[i]);
      }
    for (auto& x : inputs)
      if (x.requires_grad()) wanted.push_back(x);
    Tensors found = grad(roots, wanted, gradients, {.retain_graph = true, .create_graph = true}, true);
    Tensors dxs(inputs.size());
    for (size_t i = 0, j = 0; i < inputs.size(); ++i)
      if (inputs[i].requires_grad()) dxs[i] = found[j++];
    return dxs;
  }

  BackwardOptions options_;
  bool into_leaves_;
  std::unordered_map<Node*, NodeState> nodes_;
  std::unordered_map<TensorImpl*, LeafState> leaves_;
  std::vector<Node*> order_;
  std::vector<Edge> wanted_;
  Tensors captured_;
  struct Later {
    bool operator()(const std::pair<uint64_t, Ref<Node>>& a, const std::pair<uint64_t, Ref<Node>>& b) const { return a.first < b.first; }
  };
  std::priority_queue<std::pair<uint64_t, Ref<Node>>, std::vector<std::pair<uint64_t, Ref<Node>>>, Later> ready_;
};

void check_roots(const char* what, const Tensors& roots) {
  SF_CHECK_AS(RuntimeError, !roots.empty(), what, ": no outputs given");
  for (auto& r : roots) {
    check_defined(what, "output", r);
    SF_CHECK_AS(RuntimeError, r.requires_grad(), what, ": the output does not require a gradient: no input of it does, or it was made under no_grad");
  }
}

}  // namespace

void backward(const Tensors& roots, const Tensors& gradients, BackwardOptions options) {
  check_roots("backward", roots);
  Pass(options, true).run(roots, gradients);
}

Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs, BackwardOptions options, bool allow_unused) {
  if (outputs.empty() && allow_unused) return Tensors(inputs.size());
  check_roots("grad", outputs);
  Pass pass(options, false);
  for (auto& x : inputs) pass.want(x);
  pass.run(outputs, grad_outputs);
  if (!allow_unused)
    for (auto& g : pass.captured())
      SF_CHECK_AS(RuntimeError, g.defined(), "grad: an input was not used to compute the outputs; pass allow_unused=True to get None for it");
  return std::move(pass.captured());
}

}  // namespace sf::autograd

void sf::Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph) const {
  autograd::backward({*this}, {gradient}, {.retain_graph = retain_graph, .create_graph = create_graph});
}
