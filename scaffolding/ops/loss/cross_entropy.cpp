// cross_entropy and nll_loss.
#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/loss/kernel.h"
#include "scaffolding/ops/loss/loss.h"
#include "scaffolding/ops/loss/reduction.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/softmax/softmax.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<CrossEntropyForward> cross_entropy_forward{"cross_entropy"};
constinit KernelTable<CrossEntropyBackward> cross_entropy_backward{"cross_entropy_backward"};

using loss::reduce_from;

namespace {

int64_t class_dim(const Tensor& x) { return x.ndim() == 1 ? 0 : 1; }

// Checks what both ops ask of input [N, C, d...] or [C], weight [C] and class indices; returns the indices as int64.
Tensor checked_indices(const char* op, const Tensor& x, const Tensor& target, const Tensor& weight,
                       int64_t ignore_index) {
  check_floating(op, "input", x);
  SF_CHECK(x.ndim() >= 1, op, ": input must be [C] or [N, C, ...], got a 0-d tensor");
  int64_t at = class_dim(x), classes = x.shape()[at];
  SF_CHECK(classes > 0, op, ": input has no classes, got ", x.shape());
  Shape want = x.shape();
  want.erase(at);
  SF_CHECK_AS(TypeError, is_integral(target.dtype()), op, ": target must hold integers (class indices), got ",
              target.dtype());
  SF_CHECK(target.shape() == want, op, ": target must have shape ", want, " for input ", x.shape(), ", got ",
           target.shape());
  check_shape(op, "weight", weight, {classes});
  check_same_device(op, x, target);
  check_same_device(op, x, weight);
  if (weight) check_floating(op, "weight", weight);
  if (weight) autograd::refuse_gradient(op, {weight});  // torch has none either
  Tensor t = contiguous(to_dtype(target, kInt64));
  if (t.device().is_cpu()) {
    auto* p = t.data<int64_t>();
    for (int64_t i = 0; i < t.numel(); ++i)
      SF_CHECK_AS(IndexError, (p[i] >= 0 && p[i] < classes) || p[i] == ignore_index, op, ": target ", p[i],
                  " is not one of ", classes, " classes");
  }
  return t;
}

// [N, C, d...] as rows [R, C]; a view where memory allows. Rows run over N, then d.
Tensor logits_as_rows(const Tensor& x) {
  int64_t classes = x.shape()[class_dim(x)];
  Tensor last = x.ndim() <= 2 ? x : movedim(x, {1}, {x.ndim() - 1});
  int64_t rows = 1;
  for (int64_t i = 0; i + 1 < last.ndim(); ++i) rows *= last.shape()[i];
  return contiguous(last).reshape({rows, classes});
}

// The loss of each row from the maths, for derivatives of derivatives.
Tensor row_losses(const Tensor& rows, const Tensor& target, const Tensor& weight, int64_t ignore_index,
                  double smoothing) {
  int64_t classes = rows.shape()[1];
  Tensor t = target.reshape({-1, 1}), hit = to_dtype(eq(arange(0, classes, 1, {}, rows.device()), t), rows.dtype());
  Tensor q =
      hit * (1 - smoothing) *
          (weight ? gather(weight, 0, where(eq(t, wrapped(ignore_index)), wrapped(0), t).reshape({-1})).reshape({-1, 1})
                  : ones({1}, rows.dtype(), rows.device())) +
      (weight ? weight * (smoothing / double(classes))
              : full({1}, smoothing / double(classes), rows.dtype(), rows.device()));
  return masked_fill(-sum(q * log_softmax(rows, 1), {1}), eq(t, wrapped(ignore_index)).reshape({-1}), 0.0);
}

Tensor indexed(const Tensor& input, const Tensor& classes, const Tensor& weight, int64_t ignore_index,
               loss::Reduce reduce, double smoothing) {
  Tensor t = checked_indices("cross_entropy", input, classes, weight, ignore_index);
  Tensor x = logits_as_rows(input);
  DType wide = x.dtype() == kFloat64 ? kFloat64 : kFloat32;
  Shape rows{x.shape()[0]};
  Tensor w, target = t.reshape({-1}), losses = empty(rows, wide, x.device()),
            lse = empty({rows[0], 2}, wide, x.device()), taken = empty(rows, wide, x.device());
  {
    autograd::NoGrad off;
    if (weight) w = contiguous(to_dtype(weight, wide));
  }
  CrossEntropyForward f{x, target, w, losses, taken, lse, ignore_index, smoothing};
  auto kernel = cross_entropy_forward.find(x.device(), f);
  SF_CHECK_AS(NotSupported, kernel, "cross_entropy: no kernel for ", x.dtype(), " on ", x.device());
  kernel(f);
  Tensor y, divisor;
  {
    autograd::NoGrad off;
    if (reduce == loss::Reduce::Mean) divisor = sum(taken);
    y = reduce == loss::Reduce::None ? losses.reshape(classes.shape()) : divisor ? sum(losses) / divisor : sum(losses);
    y = to_dtype(y, x.dtype());
  }
  auto backward = [x = autograd::save(x), target, w, lse, divisor, reduce, ignore_index, smoothing,
                   wide](const Tensor& dy) -> Tensors {
    Tensor v = x.get(), g = to_dtype(dy, wide), dx = empty(v.shape(), v.dtype(), v.device());
    g = reduce == loss::Reduce::None ? g.reshape({-1})
                                     : (divisor ? g / divisor : g).reshape({1}).expand({v.shape()[0]});
    CrossEntropyBackward b{v, target, w, lse, g, dx, ignore_index, smoothing};
    auto kernel = cross_entropy_backward.find(v.device(), b);
    SF_CHECK_AS(NotSupported, kernel, "cross_entropy_backward: no kernel for ", v.dtype(), " on ", v.device());
    kernel(b);
    return {dx};
  };
  auto reference = [target, w, divisor, reduce, ignore_index, smoothing, wide,
                    shape = classes.shape()](const Tensors& in) -> Tensors {
    Tensor l = row_losses(to_dtype(in[0], wide), target, w, ignore_index, smoothing);
    l = reduce == loss::Reduce::None ? l.reshape(shape) : divisor ? sum(l) / divisor : sum(l);
    return {to_dtype(l, in[0].dtype())};
  };
  return autograd::record("cross_entropy", y, {x}, backward, reference);
}

Tensor with_probabilities(const Tensor& x, const Tensor& target, const Tensor& weight, loss::Reduce reduce,
                          double smoothing) {
  SF_CHECK(target.shape() == x.shape(), "cross_entropy: a target of probabilities must have input's shape ", x.shape(),
           ", got ", target.shape());
  int64_t at = class_dim(x), classes = x.shape()[at];
  check_shape("cross_entropy", "weight", weight, {classes});
  Tensor q = smoothing > 0 ? target * (1 - smoothing) + smoothing / double(classes) : target;
  Tensor terms = log_softmax(x, at) * q;
  if (weight) {
    Shape s = Shape::filled(x.ndim(), 1);
    s[at] = classes;
    terms = terms * weight.reshape(s);
  }
  Tensor y = -sum(terms, {at});
  if (reduce == loss::Reduce::None) return y;
  return reduce == loss::Reduce::Sum ? sum(y) : mean(y);
}

}  // namespace

Tensor cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight, int64_t ignore_index,
                     const std::string& reduction, double label_smoothing) {
  SF_AUTOCAST(cross_entropy, input, target, weight, ignore_index, reduction, label_smoothing);
  check_defined("cross_entropy", "input", input);
  check_defined("cross_entropy", "target", target);
  check_floating("cross_entropy", "input", input);
  loss::Reduce reduce = reduce_from("cross_entropy", reduction);
  SF_CHECK(label_smoothing >= 0 && label_smoothing <= 1, "cross_entropy: label_smoothing must be in [0, 1], got ",
           label_smoothing);
  SF_CHECK(input.ndim() >= 1, "cross_entropy: input must be [C] or [N, C, ...], got a 0-d tensor");
  if (!is_floating(target.dtype())) return indexed(input, target, weight, ignore_index, reduce, label_smoothing);
  SF_CHECK(ignore_index < 0, "cross_entropy: ignore_index needs class indices as target, got probabilities");
  return with_probabilities(input, target, weight, reduce, label_smoothing);
}

Tensor nll_loss(const Tensor& input, const Tensor& target, const Tensor& weight, int64_t ignore_index,
                const std::string& reduction) {
  SF_AUTOCAST(nll_loss, input, target, weight, ignore_index, reduction);
  check_defined("nll_loss", "input", input);
  check_defined("nll_loss", "target", target);
  loss::Reduce reduce = reduce_from("nll_loss", reduction);
  Tensor t = checked_indices("nll_loss", input, target, weight, ignore_index);
  int64_t at = class_dim(input);
  Tensor ignored = eq(t, wrapped(ignore_index)), safe = where(ignored, wrapped(0), t);
  Tensor picked = gather(input, at, safe.unsqueeze(at)).reshape(t.shape());
  Tensor w = to_dtype(logical_not(ignored), input.dtype());
  if (weight) {
    autograd::NoGrad off;
    w = w * to_dtype(gather(weight, 0, safe.reshape({-1})).reshape(t.shape()), input.dtype());
  }
  Tensor y = where(ignored, wrapped(0.0), -picked * w);
  if (reduce == loss::Reduce::None) return y;
  return reduce == loss::Reduce::Sum ? sum(y) : sum(y) / sum(w);
}

SF_OP(cross_entropy, "input, target, weight=None, ignore_index=-100, reduction='mean', label_smoothing=0.0")
    .doc(
        "-log of the probability that softmax(input) over the classes (dimension 1) gives to target: indices or "
        "probabilities.")
    .like("torch.nn.functional.cross_entropy")
    .kernels(cross_entropy_forward, cross_entropy_backward);
SF_OP(nll_loss, "input, target, weight=None, ignore_index=-100, reduction='mean'")
    .doc("-input at the target class, from log-probabilities over dimension 1.")
    .like("torch.nn.functional.nll_loss");

}  // namespace sf
