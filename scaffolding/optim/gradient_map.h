// GradientMap: the gradients of a backward pass as values of the user's own. Clip, normalise, add noise, measure, set
// and take them, then hand them to the optimizer with apply_to_grads(), or not.
// Owns its gradients, by leaf and in the order in which backward finished them; editing never touches .grad. Edits drop
// a recorded graph (create_graph). One thread at a time.
#pragma once
#include <unordered_map>

#include "scaffolding/autograd/engine.h"
#include "scaffolding/core/generator.h"

namespace sf::optim {

struct GradientStatistics {
  double norm = 0;     // Euclidean
  double abs_max = 0;  // of the finite elements, as norm and mean
  double mean = 0;
  int64_t count = 0, nan = 0, inf = 0;
};
GradientStatistics statistics_of(const Tensor& t);

class GradientMap {
 public:
  using Entry = autograd::LeafGradient;  // leaf, gradient

  // ---- one gradient
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  bool contains(const Tensor& leaf) const { return index_.count(leaf.impl()) > 0; }
  Tensor get(const Tensor& leaf) const;                  // empty when there is none
  void set(const Tensor& leaf, const Tensor& gradient);  // shape, dtype and device must be the leaf's
  Tensor take(const Tensor& leaf);                       // get and erase
  bool erase(const Tensor& leaf);                        // whether there was one
  void clear();
  std::vector<Entry>::const_iterator begin() const { return entries_.begin(); }
  std::vector<Entry>::const_iterator end() const { return entries_.end(); }

  // ---- all of them
  // f(leaf, gradient) returns the new gradient, or an empty tensor to erase it.
  void transform(const std::function<Tensor(const Tensor&, const Tensor&)>& f);
  void scale(double factor);
  double norm(double norm_type = 2) const;  // of all gradients as one vector; norm_type may be infinity
  // torch's clip_grad_norm_: returns the norm before. RuntimeError for a norm of NaN or Inf when asked.
  double clip_norm(double max_norm, double norm_type = 2, bool error_if_nonfinite = false);
  void clip_value(double limit);  // to [-limit, limit]
  // Adaptive clipping (Brock et al. 2021, "High-performance large-scale image recognition without normalization"):
  // a gradient's norm is at most clip_factor * max(|leaf|, eps). unit_wise: by rows (all dimensions but the first).
  void clip_adaptive(double clip_factor = 0.01, double eps = 1e-3, bool unit_wise = false);
  void normalize(double norm_type = 2, bool each = false, double eps = 1e-12);  // to norm 1, together or each by itself
  void add_noise(double std, const Generator& generator = {});                  // normal, of mean 0
  GradientStatistics statistics(const Tensor& leaf) const;
  GradientStatistics statistics() const;  // over all
  bool has_invalid_values() const;        // any NaN or Inf

  // leaf.grad becomes the gradient, or (accumulate) what backward would have left. The map keeps its own.
  void apply_to_grads(bool accumulate = false) const;

 private:
  void edit(const std::function<void(const Tensor& leaf, Tensor& gradient)>& f);
  std::vector<Entry> entries_;
  std::unordered_map<TensorImpl*, size_t> index_;
};

// A backward pass that gives its gradients away. write_grad: adds them to the leaves' .grad as well.
GradientMap backward_map(const Tensors& roots, const Tensors& gradients = {}, autograd::BackwardOptions options = {},
                         bool write_grad = false);

}  // namespace sf::optim
