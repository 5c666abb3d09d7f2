// The backward pass: walks the tape from the roots in reverse order of recording.
// Runs on the calling thread; kernels below use the thread pool. Safe to call from several threads on separate graphs
// (which may share leaves), and from hooks and closures of another pass.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::autograd {

struct BackwardOptions {
  bool retain_graph = false;  // keep saved tensors for another pass
  bool create_graph = false;  // record the backward pass itself (implies retain_graph)
};

// Adds d(sum of roots * gradients)/d(leaf) to every leaf's .grad,
// or to the .grad of `inputs` alone where some are given.
// An empty gradient means ones, for one-element roots.
void backward(const Tensors& roots, const Tensors& gradients = {}, BackwardOptions options = {},
              const Tensors& inputs = {});

// The gradients of `inputs` alone; .grad is not touched. An input that the outputs do not depend on gives an empty
// tensor with allow_unused, else a RuntimeError.
Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs = {},
             BackwardOptions options = {}, bool allow_unused = false);

// The gradient of every leaf that the roots depend on, in the order in which they were finished; .grad is not touched.
struct LeafGradient {
  Tensor leaf, gradient;
};
std::vector<LeafGradient> leaf_gradients(const Tensors& roots, const Tensors& gradients = {},
                                         BackwardOptions options = {});

// Adds to t.grad() as a backward pass does: takes g over where nobody else holds it,
// and runs the post-accumulate hooks.
void accumulate_grad(const Tensor& t, Tensor g, bool recording = false);

}  // namespace sf::autograd
