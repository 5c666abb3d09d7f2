#include "scaffolding/ops/embedding/embedding.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/index/index_internal.h"
#include "scaffolding/ops/index/kernel.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

namespace {

Tensor embed(const Tensor& at, const Tensor& weight, int64_t padding);

// dw[V, D] from dy[P, D] and at[P]. The gradient of dy is embed() again, without the padding row.
Tensor weight_gradient(const Tensor& dy, const Tensor& at, int64_t rows, int64_t padding) {
  Tensor dw = zeros({rows, dy.shape()[1]}, dy.dtype(), dy.device());
  {
    autograd::NoGrad off;
    Tensor position = padding < 0 ? at : where(eq(at, wrapped(padding)), wrapped(-1), at);
    indexing::put_slices("embedding", dw, 0, position, dy, true);
  }
  return autograd::record("embedding_backward", dw, {dy},
                          [at = autograd::save(at), padding](const Tensor& g) -> Tensors {
                            Tensor i = at.get(), d = embed(i, g, padding);
                            return {padding < 0 ? d : masked_fill(d, eq(i, wrapped(padding)).unsqueeze(1), 0)};
                          });
}

Tensor embed(const Tensor& at, const Tensor& weight, int64_t padding) {
  return autograd::record("embedding", indexing::take_slices("embedding", weight, 0, at), {weight},
                          [at = autograd::save(at), rows = weight.shape()[0], padding](const Tensor& dy) -> Tensors {
                            return {weight_gradient(dy, at.get(), rows, padding)};
                          });
}

// y with its gradient divided by how often each number stands in at[P].
Tensor with_gradient_by_frequency(const Tensor& y, const Tensor& at, int64_t rows) {
  if (!autograd::any_requires_grad({y})) return y;
  return autograd::record("embedding", y.detach(), {y}, [at = autograd::save(at), rows](const Tensor& dy) -> Tensors {
    Tensor i = at.get(),
           counts = index_add(zeros({rows}, kFloat32, i.device()), 0, i, ones(i.shape(), kFloat32, i.device()));
    return {dy / index_select(counts, 0, i).unsqueeze(1).to(dy.dtype())};
  });
}

}  // namespace

Tensor embedding(const Tensor& input, const Tensor& weight, std::optional<int64_t> padding_idx,
                 bool scale_grad_by_freq) {
  check_defined("embedding", "weight", weight);
  SF_CHECK(weight.ndim() == 2, "embedding: weight must be [num_embeddings, embedding_dim], got ", weight.shape());
  Tensor at = indexing::as_positions("embedding", "input", input, weight.device());
  int64_t rows = weight.shape()[0], padding = padding_idx.value_or(-rows - 1);
  SF_CHECK(!padding_idx || (padding >= -rows && padding < rows), "embedding: padding_idx must be in [", -rows, ", ",
           rows - 1, "], got ", padding);
  padding = !padding_idx ? -1 : padding < 0 ? padding + rows : padding;
  indexing::check_range("embedding", at, 0, rows, 0);
  Shape size = input.shape();
  size.push_back(weight.shape()[1]);
  at = at.reshape({at.numel()});
  Tensor y = embed(at, weight, padding);
  return (scale_grad_by_freq ? with_gradient_by_frequency(y, at, rows) : y).reshape(size);
}

Tensor embedding_renorm_(Tensor weight, const Tensor& indices, double max_norm, double norm_type) {
  const char* op = "embedding_renorm_";
  check_defined(op, "weight", weight);
  check_floating(op, "weight", weight);
  SF_CHECK(weight.ndim() == 2, op, ": weight must be [num_embeddings, embedding_dim], got ", weight.shape());
  SF_CHECK(max_norm > 0, op, ": max_norm must be positive, got ", max_norm);
  autograd::NoGrad off;
  Tensor at = indexing::as_positions(op, "indices", indices, weight.device());
  indexing::check_range(op, at, 0, weight.shape()[0], 0);
  at = at.reshape({at.numel()});
  autograd::check_inplace(op, weight);
  Tensor rows = indexing::take_slices(op, weight, 0, at), norms = norm(rows, norm_type, {1}, true);
  Tensor scale = where(gt(norms, wrapped(max_norm)), max_norm / (norms + 1e-7), wrapped(1.0));
  // a row named twice is written twice, with the same numbers
  indexing::put_slices(op, weight, 0, at, rows * scale, false);
  autograd::bump_version(weight);
  return weight;
}

SF_OP(embedding, "input, weight, padding_idx=None, scale_grad_by_freq=False")
    .doc("Rows of weight[V, D] by number.")
    .like("torch.nn.functional.embedding")
    .kernels(take_kernel, put_kernel);
SF_OP(embedding_renorm_, "weight, indices, max_norm, norm_type=2.0")
    .doc("Scales rows of weight named by indices down to norm max_norm, in place.")
    .no_gradient()
    .kernels(take_kernel, put_kernel);

}  // namespace sf
