#include "scaffolding/ops/loss/multi_margin.h"

#include "scaffolding/core/op.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/loss/reduction.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

namespace {

void check_classes(const char* op, const Tensor& input, const Tensor& target) {
  check_defined(op, "input", input);
  check_floating(op, "input", input);
  check_defined(op, "target", target);
  check_same_device(op, input, target);
  SF_CHECK(input.ndim() == 1 || input.ndim() == 2, op, ": input must be [N, C] or [C], got ", input.shape());
  SF_CHECK(input.shape().back() > 0, op, ": input must have classes, got ", input.shape());
  SF_CHECK_AS(TypeError, target.dtype() == kInt64, op, ": target must be int64, got ", target.dtype());
}

}  // namespace

Tensor multi_margin_loss(const Tensor& input, const Tensor& target, int64_t p, double margin, const Tensor& weight,
                         const std::string& reduction) {
  const char* op = "multi_margin_loss";
  check_classes(op, input, target);
  loss::Reduce reduce = loss::reduce_from(op, reduction);
  SF_CHECK(p == 1 || p == 2, op, ": p must be 1 or 2, got ", p);
  const int64_t classes = input.shape().back();
  Shape rows = input.shape();
  rows.erase(rows.size() - 1);
  SF_CHECK(target.shape() == rows || (rows.empty() && target.shape() == Shape{1}), op, ": target must have shape ",
           rows, ", got ", target.shape());
  check_shape(op, "weight", weight, {classes});
  Tensor x = input.ndim() == 1 ? input.unsqueeze(0) : input, t = target.reshape({x.size(0), 1});
  Tensor z = clamp(margin - gather(x, 1, t) + x, 0);
  if (p == 2) z = z * z;
  if (weight) z = z * gather(weight.unsqueeze(0).expand(x.shape()), 1, t);
  Tensor others = ne(arange(0, classes, 1, kInt64, x.device()).unsqueeze(0), t);
  return loss::reduced((sum(where(others, z, wrapped(0.0)), {1}) / double(classes)).reshape(rows), reduce);
}

Tensor multilabel_margin_loss(const Tensor& input, const Tensor& target, const std::string& reduction) {
  const char* op = "multilabel_margin_loss";
  check_classes(op, input, target);
  loss::Reduce reduce = loss::reduce_from(op, reduction);
  SF_CHECK(target.shape() == input.shape(), op, ": target must have input's shape ", input.shape(), ", got ",
           target.shape());
  const int64_t classes = input.shape().back();
  Tensor x = input.ndim() == 1 ? input.unsqueeze(0) : input, t = target.reshape(x.shape());
  Tensor listed = cumprod(ge(t, wrapped(0)).to(x.dtype()), 1), at = clamp(t, 0);  // up to the first -1
  Tensor wanted = gt(scatter_add(zeros(x.shape(), x.dtype(), x.device()), 1, at, listed), wrapped(0));
  // [N, class that is wanted, class that is not]
  Tensor z = clamp(1 - gather(x, 1, at).unsqueeze(2) + x.unsqueeze(1), 0) * listed.unsqueeze(2);
  Tensor y = sum(where(wanted.unsqueeze(1), wrapped(0.0), z), {1, 2}) / double(classes);
  return loss::reduced(input.ndim() == 1 ? y.reshape({}) : y, reduce);
}

SF_OP(multi_margin_loss, "input, target, p=1, margin=1.0, weight=None, reduction='mean'")
    .doc(
        "The mean over the classes j other than target of max(0, margin - input[target] + input[j])^p; input[N, C] or "
        "[C].")
    .like("torch.nn.functional.multi_margin_loss");
SF_OP(multilabel_margin_loss, "input, target, reduction='mean'")
    .doc(
        "The sum over classes i in target (up to its first -1) and j not in it of max(0, 1 - input[i] + input[j]) / C; "
        "input and target [N, C] or [C].")
    .like("torch.nn.functional.multilabel_margin_loss");

}  // namespace sf
