#include "scaffolding/ops/distance/distance.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

namespace {

void check_pair(const char* op, const Tensor& x1, const Tensor& x2) {
  check_defined(op, "x1", x1);
  check_defined(op, "x2", x2);
  check_floating(op, "x1", x1);
  check_floating(op, "x2", x2);
  check_same_device(op, x1, x2);
}

}  // namespace

Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, int64_t dim, double eps) {
  SF_AUTOCAST(cosine_similarity, x1, x2, dim, eps);
  check_pair("cosine_similarity", x1, x2);
  Shape size = broadcast_shapes("cosine_similarity", x1.shape(), x2.shape());
  Tensor a = x1.expand(size), b = x2.expand(size);
  Tensor norms = clamp(norm(a, 2, {dim}), eps) * clamp(norm(b, 2, {dim}), eps);
  return sum(a * b, {dim}) / norms;
}

Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, double p, double eps, bool keepdim) {
  check_pair("pairwise_distance", x1, x2);
  SF_CHECK(x1.ndim() > 0 && x2.ndim() > 0, "pairwise_distance: x1 and x2 must have a dimension, got ", x1.shape(),
           " and ", x2.shape());
  return norm(x1 - x2 + eps, p, {-1}, keepdim);
}

Tensor normalize(const Tensor& input, double p, int64_t dim, double eps) {
  check_defined("normalize", "input", input);
  check_floating("normalize", "input", input);
  return input / clamp(norm(input, p, {dim}, true), eps);
}

SF_OP(cosine_similarity, "x1, x2, dim=1, eps=1e-8")
    .doc("The cosine of the angle between x1 and x2 along dim.")
    .like("torch.nn.functional.cosine_similarity");
SF_OP(pairwise_distance, "x1, x2, p=2.0, eps=1e-6, keepdim=False")
    .doc("The p-norm of x1 - x2 + eps over the last dimension.")
    .like("torch.nn.functional.pairwise_distance");
SF_OP(normalize, "input, p=2.0, dim=1, eps=1e-12")
    .doc("input divided by its p-norm over dim.")
    .like("torch.nn.functional.normalize(input, p, dim, eps)");

}  // namespace sf
