// Losses that compare input and target element by element.
#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/loss/kernel.h"
#include "scaffolding/ops/loss/loss.h"
#include "scaffolding/ops/loss/reduction.h"
#include "scaffolding/ops/pointwise/expr.h"
#include "scaffolding/ops/pointwise/pointwise_internal.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/reduce/reduce_internal.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

#define SF_LOSS(name, ...) constinit PointwiseTable name##_forward{#name}, name##_backward{#name "_backward"};
#include "scaffolding/ops/loss/loss.def"
#undef SF_LOSS

namespace pointwise::expr {
inline Expr max(const Expr& a, const Expr& b) { return sf::maximum(a.t, b.t); }
#define SF_LOSS(name, loss, grad_a, grad_b)                                                             \
  struct name##_gradient {                                                                              \
    using T = Expr;                                                                                     \
    static Expr da([[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T p) { return grad_a; } \
    static Expr db([[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T p) { return grad_b; } \
  };
#include "scaffolding/ops/loss/loss.def"
#undef SF_LOSS
}  // namespace pointwise::expr

namespace loss {
Reduce reduce_from(const char* op, const std::string& s, bool batchmean) {
  if (s == "mean") return Reduce::Mean;
  if (s == "sum") return Reduce::Sum;
  if (batchmean && s == "batchmean") return Reduce::BatchMean;
  SF_CHECK(s == "none", op, ": reduction must be 'none', 'mean'", batchmean ? ", 'batchmean'" : "", " or 'sum', got '",
           s, "'");
  return Reduce::None;
}
Tensor reduced(const Tensor& losses, Reduce reduce) {
  return reduce == Reduce::None ? losses : reduce == Reduce::Sum ? sum(losses) : mean(losses);
}
}  // namespace loss

using loss::reduce_from;
using loss::reduced;
using pointwise::expr::Expr;

namespace {

struct Loss {
  const char* name;
  const PointwiseTable *forward, *backward;
  Expr (*da)(Expr, Expr, Expr);
  Expr (*db)(Expr, Expr, Expr);
};
#define SF_LOSS(name, ...)                                                                                 \
  const Loss name##_entry{#name, &name##_forward, &name##_backward, &pointwise::expr::name##_gradient::da, \
                          &pointwise::expr::name##_gradient::db};
#include "scaffolding/ops/loss/loss.def"
#undef SF_LOSS

// The gradient for the input (which = 0) or the target (1), given dy in the broadcast shape.
Tensor gradient(const Loss& l, const Tensor& dy, const Tensor& a, const Tensor& b, double p, int which) {
  const Tensor& x = which == 0 ? a : b;
  if (autograd::grad_enabled()) return sum_to((Expr(dy) * (which == 0 ? l.da : l.db)(a, b, p)).t, x.shape());
  Tensor dx = empty(dy.shape(), x.dtype(), x.device());
  Tensor ea = a.expand(dy.shape()), eb = b.expand(dy.shape());
  pointwise::run(l.name, *l.backward, dx, {dy, ea, eb}, x.dtype(), p, which);
  return sum_to(dx, x.shape());
}

Tensor compared(const Loss& l, const Tensor& input, const Tensor& target, const std::string& reduction, double p = 0) {
  check_defined(l.name, "input", input);
  check_defined(l.name, "target", target);
  loss::Reduce reduce = reduce_from(l.name, reduction);
  pointwise::Operands o = pointwise::prepare(l.name, input, target, true);
  Tensor a = to_dtype(to_device(input, o.device), o.dtype), b = to_dtype(to_device(target, o.device), o.dtype);
  Tensor y = pointwise::result_like(o.shape, o.dtype, o.device, a, b);
  {
    autograd::NoGrad off;
    pointwise::run(l.name, *l.forward, y, {a.expand(o.shape), b.expand(o.shape)}, o.dtype, p);
  }
  double count = double(numel(o.shape)), divisor = reduce == loss::Reduce::Mean ? count : 1;
  if (reduce != loss::Reduce::None)
    y = reduction::run(l.name, Reduction::Sum, y, reduction::dims_of(l.name, y, {}, false), o.dtype, 0, divisor);
  if (!autograd::any_requires_grad({a, b})) return y;
  return autograd::record(
      l.name, y, {a, b},
      [&l, p, divisor, shape = o.shape, na = a.requires_grad(), nb = b.requires_grad(), a = autograd::save(a),
       b = autograd::save(b)](const Tensor& dy) -> Tensors {
        Tensor g = (divisor == 1 ? dy : dy / divisor).expand(shape), x = a.get(), z = b.get();
        return {na ? gradient(l, g, x, z, p, 0) : Tensor(), nb ? gradient(l, g, x, z, p, 1) : Tensor()};
      });
}

// compared() times a weight per element; the mean is over the elements, or over the weights.
Tensor weighted(const Loss& l, const Tensor& input, const Tensor& target, const std::string& reduction,
                const Tensor& weight, bool mean_of_weights, double p = 0) {
  if (!weight) return compared(l, input, target, reduction, p);
  loss::Reduce reduce = reduce_from(l.name, reduction);
  check_defined(l.name, "input", input);
  SF_CHECK(weight.shape() == input.shape(), l.name, ": weight must have input's shape ", input.shape(), ", got ",
           weight.shape());
  Tensor y = compared(l, input, target, "none", p) * weight;
  return reduce == loss::Reduce::Mean && mean_of_weights ? sum(y) / sum(weight) : reduced(y, reduce);
}

}  // namespace

Tensor mse_loss(const Tensor& input, const Tensor& target, const std::string& reduction, const Tensor& weight) {
  SF_AUTOCAST(mse_loss, input, target, reduction, weight);
  return weighted(mse_loss_entry, input, target, reduction, weight, true);
}
Tensor l1_loss(const Tensor& input, const Tensor& target, const std::string& reduction, const Tensor& weight) {
  SF_AUTOCAST(l1_loss, input, target, reduction, weight);
  return weighted(l1_loss_entry, input, target, reduction, weight, true);
}
Tensor huber_loss(const Tensor& input, const Tensor& target, const std::string& reduction, double delta,
                  const Tensor& weight) {
  SF_AUTOCAST(huber_loss, input, target, reduction, delta, weight);
  SF_CHECK(delta > 0, "huber_loss: delta must be positive, got ", delta);
  return weighted(huber_loss_entry, input, target, reduction, weight, false, delta);
}
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, const std::string& reduction, double beta) {
  SF_AUTOCAST(smooth_l1_loss, input, target, reduction, beta);
  SF_CHECK(beta >= 0, "smooth_l1_loss: beta must not be negative, got ", beta);
  return compared(beta == 0 ? l1_loss_entry : smooth_l1_loss_entry, input, target, reduction, beta);
}

Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target, const Tensor& weight,
                                        const std::string& reduction, const Tensor& pos_weight) {
  SF_AUTOCAST(binary_cross_entropy_with_logits, input, target, weight, reduction, pos_weight);
  const char* op = "binary_cross_entropy_with_logits";
  check_defined(op, "input", input);
  check_defined(op, "target", target);
  SF_CHECK(input.shape() == target.shape(), op, ": target must have input's shape ", input.shape(), ", got ",
           target.shape());
  if (!weight && !pos_weight) return compared(logistic_loss_entry, input, target, reduction);
  loss::Reduce reduce = reduce_from(op, reduction);
  Tensor y;
  if (pos_weight) {
    // (1 - z) x + (1 + (pos_weight - 1) z) log(1 + exp(-x))
    Tensor log_weight = (pos_weight - 1) * target + 1;
    y = (1 - target) * input + log_weight * softplus(-input, 1, __builtin_inf());
  } else {
    y = compared(logistic_loss_entry, input, target, "none");
  }
  return reduced(weight ? y * weight : y, reduce);
}

Tensor kl_div(const Tensor& input, const Tensor& target, const std::string& reduction, bool log_target) {
  SF_AUTOCAST(kl_div, input, target, reduction, log_target);
  check_defined("kl_div", "input", input);
  check_defined("kl_div", "target", target);
  check_floating("kl_div", "input", input);
  loss::Reduce reduce = reduce_from("kl_div", reduction, true);
  Tensor y;
  if (log_target) {
    y = exp(target) * (target - input);
  } else {
    Tensor logs = log(where(eq(target, wrapped(0)), wrapped(1.0), target));  // 0 log 0 = 0
    y = target * (logs - input);
  }
  if (reduce == loss::Reduce::BatchMean) {
    SF_CHECK(input.ndim() > 0, "kl_div: 'batchmean' needs a batch dimension, got a 0-d input");
    return sum(y) / double(input.shape()[0]);
  }
  return reduced(y, reduce);
}

#define SF_COMPARED(fn, params, text) \
  SF_OP(fn, params).doc(text).like("torch.nn.functional." #fn).kernels(fn##_forward, fn##_backward, reduce_kernel);
SF_COMPARED(mse_loss, "input, target, reduction='mean', weight=None", "(input - target)^2.")
SF_COMPARED(l1_loss, "input, target, reduction='mean', weight=None", "|input - target|.")
SF_COMPARED(huber_loss, "input, target, reduction='mean', delta=1.0, weight=None",
            "Half the squared difference up to delta, linear beyond.")
SF_COMPARED(smooth_l1_loss, "input, target, reduction='mean', beta=1.0", "Huber loss over beta; beta 0 is l1_loss.")
SF_OP(binary_cross_entropy_with_logits, "input, target, weight=None, reduction='mean', pos_weight=None")
    .doc("Cross entropy of sigmoid(input) with the probability target, without overflow.")
    .like("torch.nn.functional.binary_cross_entropy_with_logits")
    .kernels(logistic_loss_forward, logistic_loss_backward, reduce_kernel);
SF_OP(kl_div, "input, target, reduction='mean', log_target=False")
    .doc("target * (log(target) - input): the Kullback-Leibler divergence from log-probabilities.")
    .like("torch.nn.functional.kl_div");

}  // namespace sf
