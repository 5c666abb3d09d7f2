// Node: one recorded op. Edges point towards the leaves; a node is owned by its outputs and by later nodes.
// Freed without recursion, however long the chain: see Node::destroy.
#pragma once
#include <functional>

#include "scaffolding/autograd/saved.h"
#include "scaffolding/core/small_vector.h"
#include "scaffolding/core/tensor.h"

namespace sf::autograd {

struct Edge {
  Ref<Node> node;        // the op that made this input, or
  Ref<TensorImpl> leaf;  // the leaf itself; both empty when the input needs no gradient
  uint32_t nr = 0;       // which output of node
  explicit operator bool() const { return bool(node) || bool(leaf); }
};

struct OutputInfo {
  Shape shape;
  DType dtype;
  Device device;
};

using TensorHook = std::function<Tensor(const Tensor&)>;  // returns a replacement, or an empty tensor to keep it
struct HookEntry {
  uint64_t id;
  uint32_t output_nr;  // 0 on leaves
  TensorHook call;
};
using HookList = std::vector<HookEntry>;

class Node : public RefCounted, public Pooled {
 public:
  explicit Node(const char* name) : name_(name), seq_(++last_seq) {}
  virtual ~Node() = default;
  virtual Tensors apply(Tensors& dys) = 0;  // gradients of the inputs, in edge order
  virtual void release_saved() = 0;         // after backward without retain_graph

  const char* name() const { return name_; }
  uint64_t seq() const { return seq_; }  // an input's node always has a smaller one; grows with time on each thread
  void add_edge(Edge e) {
    if (e.node && e.node->seq_ >= seq_) seq_ = e.node->seq_ + 1;  // made by another thread
    edges.push_back(std::move(e));
  }
  SmallVector<Edge, 3> edges;  // grows by add_edge
  SmallVector<OutputInfo, 1> outputs;
  std::function<Tensors(const Tensors&)> reference;
  std::vector<Saved> reference_inputs;  // kept only with a reference

  struct Hooks {
    Hooks();
    ~Hooks();
    std::shared_ptr<HookList> on_outputs;
    std::vector<std::pair<uint32_t, std::shared_ptr<Tensor>>> retained;  // output_nr, and where its gradient is kept
  };
  std::unique_ptr<Hooks> hooks;
  Hooks& hooks_or_new();

  void save_output(const Tensor& y);
  Tensor output();  // the saved output, back on the tape
  void drop_output() { output_ = {}; }

  static void destroy(Node* n);

 protected:
  void check_not_released(bool alive) const;

 private:
  static thread_local constinit uint64_t last_seq __attribute__((tls_model("initial-exec")));
  const char* name_;
  uint64_t seq_;
  Node* next_doomed_ = nullptr;  // see destroy
  Saved output_;
};

// What only some tensors have.
struct GradMeta {
  Tensor grad;  // of a leaf
  // of another tensor after retain_grad(): shared with its node, which must not own the tensor
  std::shared_ptr<Tensor> retained;
  std::shared_ptr<HookList> hooks;  // leaves: before accumulation
  std::shared_ptr<std::vector<std::pair<uint64_t, std::function<void(const Tensor&)>>>> post_accumulate;
};
GradMeta& meta_of(const Tensor& t);  // makes one if needed

}  // namespace sf::autograd
