// Losses that are made of other ops: margins, likelihoods, binary cross entropy of probabilities.
#include <cmath>
#include <numbers>

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/activation/activation.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/distance/distance.h"
#include "scaffolding/ops/index/index_internal.h"
#include "scaffolding/ops/loss/loss.h"
#include "scaffolding/ops/loss/reduction.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

using loss::reduce_from;
using loss::reduced;

namespace {

void check_input(const char* op, const char* name, const Tensor& x) {
  check_defined(op, name, x);
  check_floating(op, name, x);
}

void check_target(const char* op, const Tensor& input, const Tensor& target) {
  check_input(op, "input", input);
  check_defined(op, "target", target);
  check_same_device(op, input, target);
}

Tensor positive_part(const Tensor& x) { return clamp(x, 0); }

void check_probabilities(const Tensor& p) {
  if (p.numel() == 0 || p.device().is_meta()) return;
  autograd::NoGrad off;
  if (p.device().is_cuda() &&
      indexing::all_hold("binary_cross_entropy", logical_not(logical_or(lt(p, wrapped(0)), gt(p, wrapped(1))))))
    return;
  double low = amin(p).item(), high = amax(p).item();
  SF_CHECK(!(low < 0) && !(high > 1), "binary_cross_entropy: input must be between 0 and 1, got values from ", low,
           " to ", high);
}

// Its own gradient for p: that of the clamped logarithms is 0 / 0 at the ends, torch's is finite.
Tensor bernoulli_nll(const Tensor& p, const Tensor& z) {
  Tensor y;
  {
    autograd::NoGrad off;
    y = -(z * clamp(log(p), -100) + (1 - z) * clamp(log1p(-p), -100));
  }
  return autograd::record(
      "binary_cross_entropy", y, {p, z},
      [p = autograd::save(p), z = autograd::save(z), wanted = z.requires_grad()](const Tensor& dy) -> Tensors {
        Tensor x = p.get(), t = z.get();
        Tensor dt = wanted ? dy * (clamp(log1p(-x), -100) - clamp(log(x), -100)) : Tensor();
        return {dy * (x - t) / clamp((1 - x) * x, 1e-12), dt};
      });
}

}  // namespace

Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight,
                            const std::string& reduction) {
  SF_AUTOCAST(binary_cross_entropy, input, target, weight, reduction);
  const char* op = "binary_cross_entropy";
  check_target(op, input, target);
  SF_CHECK(target.shape() == input.shape(), op, ": target must have input's shape ", input.shape(), ", got ",
           target.shape());
  SF_CHECK_AS(TypeError, target.dtype() == input.dtype(), op, ": target must have input's dtype ", input.dtype(),
              ", got ", target.dtype());
  loss::Reduce reduce = reduce_from(op, reduction);
  check_probabilities(input);
  Tensor y = bernoulli_nll(input, target);
  return reduced(weight ? y * weight : y, reduce);
}

Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target, const Tensor& weight,
                                   const std::string& reduction) {
  const char* op = "multilabel_soft_margin_loss";
  check_target(op, input, target);
  SF_CHECK(input.ndim() > 0 && target.shape() == input.shape(), op,
           ": input and target must have one shape [..., C], got ", input.shape(), " and ", target.shape());
  loss::Reduce reduce = reduce_from(op, reduction);
  Tensor y = binary_cross_entropy_with_logits(input, target.to(input.dtype()), weight, "none");
  return reduced(mean(y, {-1}), reduce);
}

Tensor soft_margin_loss(const Tensor& input, const Tensor& target, const std::string& reduction) {
  SF_AUTOCAST(soft_margin_loss, input, target, reduction);
  check_target("soft_margin_loss", input, target);
  loss::Reduce reduce = reduce_from("soft_margin_loss", reduction);
  return reduced(-logsigmoid(target.to(input.dtype()) * input), reduce);
}

Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target, double margin, const std::string& reduction) {
  SF_AUTOCAST(hinge_embedding_loss, input, target, margin, reduction);
  check_target("hinge_embedding_loss", input, target);
  loss::Reduce reduce = reduce_from("hinge_embedding_loss", reduction);
  Tensor y = where(ne(target, wrapped(1)), positive_part(margin - input), wrapped(0.0)) +
             where(ne(target, wrapped(-1)), input, wrapped(0.0));
  return reduced(y, reduce);
}

Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, double margin,
                           const std::string& reduction) {
  SF_AUTOCAST(margin_ranking_loss, input1, input2, target, margin, reduction);
  const char* op = "margin_ranking_loss";
  check_input(op, "input1", input1);
  check_input(op, "input2", input2);
  check_defined(op, "target", target);
  SF_CHECK(input1.ndim() == input2.ndim() && input1.ndim() == target.ndim(), op,
           ": input1, input2 and target must have the same number of dimensions, got ", input1.shape(), ", ",
           input2.shape(), " and ", target.shape());
  loss::Reduce reduce = reduce_from(op, reduction);
  return reduced(positive_part(-target * (input1 - input2) + margin), reduce);
}

Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, double margin,
                             const std::string& reduction) {
  SF_AUTOCAST(cosine_embedding_loss, input1, input2, target, margin, reduction);
  const char* op = "cosine_embedding_loss";
  check_input(op, "input1", input1);
  check_input(op, "input2", input2);
  check_defined(op, "target", target);
  SF_CHECK(input1.shape() == input2.shape() && input1.ndim() == target.ndim() + 1 && target.ndim() <= 1, op,
           ": needs input1 and input2 [N, D] with target [N], or [D] with a 0-d target, got ", input1.shape(), ", ",
           input2.shape(), " and ", target.shape());
  SF_CHECK(target.ndim() == 0 || target.size(0) == input1.size(0), op, ": target must have shape [", input1.size(0),
           "], got ", target.shape());
  loss::Reduce reduce = reduce_from(op, reduction);
  // torch adds to the squared norms, rather than bounding them.
  Tensor cosine =
      sum(input1 * input2, {-1}) / sqrt((sum(input1 * input1, {-1}) + 1e-12) * (sum(input2 * input2, {-1}) + 1e-12));
  Tensor y = where(eq(target, wrapped(1)), 1 - cosine, wrapped(0.0)) +
             where(eq(target, wrapped(-1)), positive_part(cosine - margin), wrapped(0.0));
  return reduced(y, reduce);
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative, double margin,
                           double p, double eps, bool swap, const std::string& reduction) {
  SF_AUTOCAST(triplet_margin_loss, anchor, positive, negative, margin, p, eps, swap, reduction);
  const char* op = "triplet_margin_loss";
  check_input(op, "anchor", anchor);
  check_input(op, "positive", positive);
  check_input(op, "negative", negative);
  SF_CHECK(anchor.ndim() == positive.ndim() && anchor.ndim() == negative.ndim(), op,
           ": anchor, positive and negative must have the same number of dimensions, got ", anchor.shape(), ", ",
           positive.shape(), " and ", negative.shape());
  SF_CHECK(margin > 0, op, ": margin must be positive, got ", margin);
  loss::Reduce reduce = reduce_from(op, reduction);
  Tensor near = pairwise_distance(anchor, positive, p, eps), far = pairwise_distance(anchor, negative, p, eps);
  if (swap) far = minimum(far, pairwise_distance(positive, negative, p, eps));
  return reduced(positive_part(near - far + margin), reduce);
}

Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, bool log_input, bool full, double eps,
                        const std::string& reduction) {
  SF_AUTOCAST(poisson_nll_loss, input, target, log_input, full, eps, reduction);
  check_target("poisson_nll_loss", input, target);
  loss::Reduce reduce = reduce_from("poisson_nll_loss", reduction);
  Tensor y = log_input ? exp(input) - target * input : input - target * log(input + eps);
  if (full) {
    Tensor large = gt(target, wrapped(1)), t = where(large, target, wrapped(1.0));
    Tensor stirling = t * log(t) - t + log(t * (2 * std::numbers::pi)) * 0.5;
    y = y + where(large, stirling, wrapped(0.0));
  }
  return reduced(y, reduce);
}

Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var, bool full, double eps,
                         const std::string& reduction) {
  const char* op = "gaussian_nll_loss";
  check_target(op, input, target);
  check_defined(op, "var", var);
  loss::Reduce reduce = reduce_from(op, reduction);
  Tensor v = var;
  if (!v.impl()->is_scalar && v.shape() != input.shape()) {
    Shape rows;
    for (int64_t i = 0; i + 1 < input.ndim(); ++i) rows.push_back(input.shape()[i]);
    if (v.shape() == rows && input.ndim() > 0) v = v.unsqueeze(-1);
    SF_CHECK(v.ndim() == input.ndim() && broadcast_shapes(op, v.shape(), input.shape()) == input.shape(), op,
             ": var must have input's shape ", input.shape(), ", or that with sizes of 1, got ", var.shape());
  }
  if (v.device().is_cuda())
    SF_CHECK(indexing::all_hold(op, logical_not(lt(v.detach(), wrapped(0)))), op, ": var must not be negative");
  else if (!v.device().is_meta() && v.numel() > 0)
    SF_CHECK(!(amin(v.detach()).item() < 0), op, ": var must not be negative");
  // As in torch the gradient for var passes the lower bound.
  if (!v.impl()->is_scalar) v = v + (clamp(v.detach(), eps) - v.detach());
  else v = wrapped(std::max(v.item(), eps));
  Tensor y = (log(v) + square(input - target) / v) * 0.5;
  if (full) y = y + 0.5 * std::log(2 * std::numbers::pi);
  return reduced(y, reduce);
}

SF_OP(binary_cross_entropy, "input, target, weight=None, reduction='mean'")
    .doc("Cross entropy of the probability input with the probability target; logarithms count as at least -100.")
    .like("torch.nn.functional.binary_cross_entropy");
SF_OP(multilabel_soft_margin_loss, "input, target, weight=None, reduction='mean'")
    .doc("binary_cross_entropy_with_logits, averaged over the last dimension.")
    .like("torch.nn.functional.multilabel_soft_margin_loss");
SF_OP(soft_margin_loss, "input, target, reduction='mean'")
    .doc("log(1 + exp(-target * input)); target is 1 or -1.")
    .like("torch.nn.functional.soft_margin_loss");
SF_OP(hinge_embedding_loss, "input, target, margin=1.0, reduction='mean'")
    .doc("input where target is 1, max(0, margin - input) where it is -1.")
    .like("torch.nn.functional.hinge_embedding_loss");
SF_OP(margin_ranking_loss, "input1, input2, target, margin=0.0, reduction='mean'")
    .doc("max(0, margin - target * (input1 - input2)); target is 1 or -1.")
    .like("torch.nn.functional.margin_ranking_loss");
SF_OP(cosine_embedding_loss, "input1, input2, target, margin=0.0, reduction='mean'")
    .doc(
        "1 - cos where target is 1, max(0, cos - margin) where it is -1, with cos the cosine between rows of input1 "
        "and input2.")
    .like("torch.nn.functional.cosine_embedding_loss");
SF_OP(triplet_margin_loss, "anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, reduction='mean'")
    .doc("max(0, margin + |anchor - positive|_p - |anchor - negative|_p) over the last dimension.")
    .like("torch.nn.functional.triplet_margin_loss");
SF_OP(poisson_nll_loss, "input, target, log_input=True, full=False, eps=1e-8, reduction='mean'")
    .doc("Negative log likelihood of target under a Poisson distribution of rate exp(input), or input.")
    .like("torch.nn.functional.poisson_nll_loss");
SF_OP(gaussian_nll_loss, "input, target, var, full=False, eps=1e-6, reduction='mean'")
    .doc("Negative log likelihood of target under a normal distribution of mean input and variance var.")
    .like("torch.nn.functional.gaussian_nll_loss");

}  // namespace sf
