#include "scaffolding/autograd/engine.h"

#include <algorithm>
#include <mutex>
#include <queue>
#include <unordered_map>

#include "scaffolding/autograd/anomaly.h"
#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/callback.h"
#include "scaffolding/autograd/called_ops.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/out_of_memory.h"

namespace sf::autograd {

namespace {

bool is_sole_owner(const Tensor& t) { return t.impl()->refs.load() == 1 && t.storage()->refs.load() == 1; }

// a + b, into a's memory where nobody else holds it.
Tensor sum_of(Tensor a, const Tensor& b, bool recording) {
  if (!a) return b;
  const bool dense = a.is_contiguous() || a.is_contiguous(MemoryFormat::ChannelsLast);
  if (!recording && is_sole_owner(a) && dense && a.dtype() == b.dtype()) return a.add_(b);
  return add(a, b, 1);
}

// Passes on several threads may reach one leaf: its .grad is guarded by one of a few locks.
std::mutex& lock_of(const TensorImpl* leaf) {
  static std::mutex locks[16];
  return locks[(reinterpret_cast<uintptr_t>(leaf) >> 6) % 16];
}

Tensor run_hooks(const std::shared_ptr<HookList>& list, uint32_t output_nr, Tensor g, const char* what) {
  if (!list) return g;
  HookList now = *list;  // a hook may add and remove hooks
  for (auto& entry : now) {
    if (entry.output_nr != output_nr) continue;
    Tensor edited = entry.call(g);
    if (!edited) continue;
    SF_CHECK_AS(RuntimeError, edited.shape() == g.shape(), what, ": a hook returned a gradient of shape ",
                edited.shape(), " instead of ", g.shape());
    SF_CHECK_AS(RuntimeError, edited.device() == g.device(), what, ": a hook returned a gradient on ", edited.device(),
                " instead of ", g.device());
    g = edited.dtype() == g.dtype() ? edited : edited.to(g.dtype());
  }
  return g;
}

struct NodeState {
  int pending = 0;     // edges that have not delivered yet
  bool needed = true;  // leads to a wanted gradient
  bool queued = false;
  Tensors dys;
};
struct LeafState {
  int pending = 0;
  Tensor sum;
};

class Pass {
 public:
  enum Target { Leaves, Captured, Collected };
  Pass(BackwardOptions o, Target target) : options_(o), target_(target) {
    options_.retain_graph |= options_.create_graph;
  }

  void want(const char* op, const Tensor& t) {
    check_defined(op, "input", t);
    Edge e = edge_of(t);
    SF_CHECK_AS(RuntimeError, bool(e), op, ": an input does not require a gradient");
    wanted_[key_of(e)].push_back(captured_.size());
    captured_.emplace_back();
    held_.push_back(std::move(e));
  }
  Tensors& captured() { return captured_; }
  std::vector<LeafGradient>& collected() { return collected_; }

  void run(const Tensors& roots, const Tensors& gradients) {
    std::vector<Edge> starts;
    Tensors first;
    for (size_t i = 0; i < roots.size(); ++i) {
      starts.push_back(edge_of(roots[i]));
      first.push_back(starting_gradient(roots[i], i < gradients.size() ? gradients[i] : Tensor()));
    }
    discover(starts);
    if (target_ == Captured) prune();
    GradMode mode(options_.create_graph);
    autocast::Within no_autocast;
    for (size_t i = 0; i < roots.size(); ++i) deliver(starts[i], std::move(first[i]), false);
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
      SF_CHECK_AS(RuntimeError, root.numel() == 1,
                  "backward: a gradient must be given for an output of more than one element, got ", root.shape());
      return scalar_tensor(1, root.dtype(), root.device()).expand(root.shape());
    }
    SF_CHECK(g.shape() == root.shape(), "backward: gradient must have the output's shape ", root.shape(), ", got ",
             g.shape());
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
      for (auto& e : n->edges)
        needed = needed || (e && wanted_.count(key_of(e))) || (e.node && nodes_[e.node.get()].needed);
      nodes_[n].needed = needed;
    }
  }

  // Node or leaf, and output number.
  using Key = std::pair<const void*, uint32_t>;
  struct KeyHash {
    size_t operator()(const Key& k) const { return std::hash<const void*>()(k.first) * 31 + k.second; }
  };
  static Key key_of(const Edge& e) { return e.node ? Key{e.node.get(), e.nr} : Key{e.leaf.get(), 0}; }
  void capture(const Key& k, const Tensor& g) {
    if (auto it = wanted_.find(k); it != wanted_.end())
      for (size_t i : it->second) captured_[i] = g;
  }

  void make_ready(Node* n) {
    NodeState& s = nodes_[n];
    if (std::exchange(s.queued, true)) return;
    ready_.push({n->seq(), Ref<Node>(n)});
  }

  void deliver(const Edge& e, Tensor g, bool count = true) {
    if (e.node) {
      NodeState& s = nodes_[e.node.get()];
      if (g) {
        if (s.dys.size() <= e.nr) s.dys.resize(std::max<size_t>(e.nr + 1, e.node->outputs.size()));
        Tensor& slot = s.dys[e.nr];
        slot = slot ? sum_of(std::move(slot), g, options_.create_graph) : std::move(g);
      }
      if (count && --s.pending == 0) make_ready(e.node.get());
    } else if (e.leaf) {
      LeafState& s = leaves_[e.leaf.get()];
      if (g) s.sum = s.sum ? sum_of(std::move(s.sum), g, options_.create_graph) : std::move(g);
      if (count && --s.pending == 0) finish_leaf(e.leaf.get());
    }
  }

  void finish_leaf(TensorImpl* impl) {
    Tensor g = std::move(leaves_[impl].sum);
    if (!g) return;
    Tensor leaf{Ref<TensorImpl>(impl)};
    if (target_ == Captured && !wanted_.count({impl, 0})) return;
    if (impl->meta) g = run_hooks(impl->meta->hooks, 0, std::move(g), "backward");
    if (target_ == Captured) capture({impl, 0}, g);
    else if (target_ == Collected) collected_.push_back({leaf, std::move(g)});
    else accumulate_grad(leaf, std::move(g), options_.create_graph);
  }

  void step(Node& n) {
    NodeState state = std::move(nodes_[&n]);
    Tensors& dys = state.dys;
    dys.resize(n.outputs.size());
    bool any = false;
    for (auto& g : dys) any |= g.defined();
    bool run = any && state.needed;
    if (any) {
      if (n.hooks && (run || is_wanted(n))) run_node_hooks(n, dys);
      if (!wanted_.empty())
        for (uint32_t nr = 0; nr < dys.size(); ++nr)
          if (dys[nr]) capture({&n, nr}, dys[nr]);
    }
    Tensors dxs;
    if (run) {
      Tensors incoming;
      if (anomaly_detection_enabled()) incoming = dys;
      try {
        dxs = options_.create_graph && n.reference ? through_reference(n, dys) : n.apply(dys);
      } catch (const OutOfMemory& e) {
        std::string text = e.what();
        const std::string asked = " asked for";
        const size_t at = text.find(asked);
        // it says who asked
        if (e.module() || at == text.npos || text.compare(at + asked.size(), 4, " by ") == 0) throw;
        throw OutOfMemory(text.insert(at + asked.size(), std::string(" by the gradient of ") + n.name()));
      }
      SF_CHECK_AS(RuntimeError, dxs.size() <= n.edges.size(), n.name(), ": backward returned ", dxs.size(),
                  " gradients for ", n.edges.size(), " inputs");
      if (anomaly_detection_enabled()) check_backward_finite(n.name(), incoming, dxs);
      if (!options_.retain_graph) {
        n.release_saved();
        n.reference_inputs.clear();
      }
    }
    state.dys.clear();  // so that a gradient passed on has one owner and may be added to in place
    dxs.resize(n.edges.size());
    for (size_t i = 0; i < n.edges.size(); ++i) deliver(n.edges[i], checked(n, i, std::move(dxs[i])));
  }

  bool is_wanted(const Node& n) const {
    for (uint32_t nr = 0; nr < n.outputs.size(); ++nr)
      if (wanted_.count({&n, nr})) return true;
    return false;
  }

  // A gradient must have its input's shape; it is brought to its dtype.
  static Tensor checked(const Node& n, size_t i, Tensor g) {
    const Edge& e = n.edges[i];
    if (!g || !e) return {};
    const Shape& want = e.node ? e.node->outputs[e.nr].shape : e.leaf->sizes;
    DType dtype = e.node ? e.node->outputs[e.nr].dtype : e.leaf->dtype;
    Device device = e.node ? e.node->outputs[e.nr].device : e.leaf->device;
    SF_CHECK_AS(RuntimeError, g.shape() == want, n.name(), ": backward returned a gradient of shape ", g.shape(),
                " for input ", i, " of shape ", want);
    SF_CHECK_AS(RuntimeError, g.device() == device, n.name(), ": backward returned a gradient on ", g.device(),
                " for input ", i, " on ", device);
    if (g.dtype() != dtype) g = g.to(dtype);
    return g;  // moved: a second owner would make accumulate_grad copy it
  }

  static void run_node_hooks(Node& n, Tensors& dys) {
    for (uint32_t nr = 0; nr < dys.size(); ++nr)
      if (dys[nr]) dys[nr] = run_hooks(n.hooks->on_outputs, nr, std::move(dys[nr]), n.name());
    for (auto& [nr, slot] : n.hooks->retained)
      if (nr < dys.size() && dys[nr]) *slot = *slot ? add(*slot, dys[nr], 1) : dys[nr];
  }

  // The inputs get nodes of their own here, so that this inner pass stops at them and runs no hook of theirs.
  Tensors through_reference(Node& n, const Tensors& dys) {
    EnableGrad on;
    Tensors inputs, roots, gradients, wanted;
    for (auto& s : n.reference_inputs) {
      Tensor x = s.get();
      if (x.requires_grad()) {
        x = record("reference", x.detach(), {x}, [](const Tensor& dy) -> Tensors { return {dy}; });
        wanted.push_back(x);
      }
      inputs.push_back(x);
    }
    Tensors ys = n.reference(inputs);
    for (size_t i = 0; i < ys.size(); ++i)
      if (i < dys.size() && dys[i] && ys[i] && ys[i].requires_grad()) {
        roots.push_back(ys[i]);
        gradients.push_back(dys[i]);
      }
    Tensors found = grad(roots, wanted, gradients, {.retain_graph = true, .create_graph = true}, true),
            dxs(inputs.size());
    for (size_t i = 0, j = 0; i < inputs.size(); ++i)
      if (inputs[i].requires_grad()) dxs[i] = found[j++];
    return dxs;
  }

  BackwardOptions options_;
  Target target_;
  std::unordered_map<Node*, NodeState> nodes_;
  std::unordered_map<TensorImpl*, LeafState> leaves_;
  std::vector<Node*> order_;
  std::unordered_map<Key, std::vector<size_t>, KeyHash> wanted_;  // places in captured_
  std::vector<Edge> held_;                                        // keeps the wanted nodes alive
  Tensors captured_;
  std::vector<LeafGradient> collected_;
  struct Later {
    bool operator()(const std::pair<uint64_t, Ref<Node>>& a, const std::pair<uint64_t, Ref<Node>>& b) const {
      return a.first < b.first;
    }
  };
  std::priority_queue<std::pair<uint64_t, Ref<Node>>, std::vector<std::pair<uint64_t, Ref<Node>>>, Later> ready_;
};

void check_roots(const char* what, const Tensors& roots, const Tensors& gradients) {
  SF_CHECK_AS(RuntimeError, !roots.empty(), what, ": no outputs given");
  SF_CHECK(gradients.empty() || gradients.size() == roots.size(), what, ": got ", gradients.size(), " gradients for ",
           roots.size(), " outputs");
  for (auto& r : roots) {
    check_defined(what, "output", r);
    SF_CHECK_AS(RuntimeError, r.requires_grad(), what,
                ": the output does not require a gradient: no input of it does, or it was made under no_grad");
  }
}

}  // namespace

void accumulate_grad(const Tensor& t, Tensor g, bool recording) {
  if (!t.is_leaf()) t.retain_grad();  // backward(inputs=) reaches tensors inside the graph too
  {
    std::lock_guard guard(lock_of(t.impl()));
    Tensor old = t.grad();
    if (old && !recording) {
      NoGrad off;
      old.add_(g);
    } else if (old) {
      t.set_grad(add(old, g, 1));
    } else {
      bool same_layout = g.strides() == t.strides() || (g.is_contiguous() && t.is_contiguous());
      if (recording) {
        t.set_grad(is_sole_owner(g) && g.is_contiguous() ? g : g.clone());
      } else if (same_layout && is_sole_owner(g)) {
        t.set_grad(g);
      } else {  // somebody else's memory, or an expanded or differently laid out tensor
        Tensor own = empty_like(t, g.dtype());
        copy_bytes(own, g);
        t.set_grad(own);
      }
    }
  }
  if (!t.impl()->meta || !t.impl()->meta->post_accumulate) return;
  auto hooks = *t.impl()->meta->post_accumulate;
  for (auto& [id, hook] : hooks) hook(t);
}

namespace {

// The backward() calls that this thread is in, and what waits for the end of the outermost.
struct Outermost {
  static thread_local int depth;
  static thread_local std::vector<std::function<void()>> callbacks;
  Outermost() { ++depth; }
  ~Outermost() {
    if (--depth == 0) callbacks.clear();
  }
  void finish() {
    if (depth > 1) return;
    for (size_t i = 0; i < callbacks.size(); ++i) std::exchange(callbacks[i], nullptr)();  // one may queue another
  }
};
thread_local int Outermost::depth = 0;
thread_local std::vector<std::function<void()>> Outermost::callbacks;

}  // namespace

void queue_callback(std::function<void()> f) {
  SF_CHECK_AS(RuntimeError, Outermost::depth > 0, "queue_callback: only within a backward pass");
  Outermost::callbacks.push_back(std::move(f));
}

void backward(const Tensors& roots, const Tensors& gradients, BackwardOptions options, const Tensors& inputs) {
  check_roots("backward", roots, gradients);
  Outermost pass_of_thread;
  if (inputs.empty()) {
    Pass(options, Pass::Leaves).run(roots, gradients);
    return pass_of_thread.finish();
  }
  Pass pass(options, Pass::Captured);
  for (auto& x : inputs) pass.want("backward", x);
  pass.run(roots, gradients);
  GradMode mode(options.create_graph);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (pass.captured()[i]) accumulate_grad(inputs[i], pass.captured()[i], options.create_graph);
  pass_of_thread.finish();
}

Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs, BackwardOptions options,
             bool allow_unused) {
  if (outputs.empty() && allow_unused) return Tensors(inputs.size());
  check_roots("grad", outputs, grad_outputs);
  Pass pass(options, Pass::Captured);
  for (auto& x : inputs) pass.want("grad", x);
  pass.run(outputs, grad_outputs);
  if (!allow_unused)
    for (auto& g : pass.captured())
      SF_CHECK_AS(RuntimeError, g.defined(),
                  "grad: an input was not used to compute the outputs; pass allow_unused=True to get None for it");
  return std::move(pass.captured());
}

std::vector<LeafGradient> leaf_gradients(const Tensors& roots, const Tensors& gradients, BackwardOptions options) {
  check_roots("backward", roots, gradients);
  Pass pass(options, Pass::Collected);
  pass.run(roots, gradients);
  return std::move(pass.collected());
}

}  // namespace sf::autograd

void sf::Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph) const {
  check_defined("backward", "output", *this);
  autograd::backward({*this}, {gradient}, {.retain_graph = retain_graph, .create_graph = create_graph});
}
