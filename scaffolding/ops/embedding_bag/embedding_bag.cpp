#include "scaffolding/ops/embedding_bag/embedding_bag.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/embedding/embedding.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/index/index_internal.h"
#include "scaffolding/ops/index/kernel.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/scatter_reduce/kernel.h"
#include "scaffolding/ops/scatter_reduce/scatter_reduce.h"
#include "scaffolding/ops/search/kernel.h"
#include "scaffolding/ops/search/search.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

namespace {

constexpr const char* kOp = "embedding_bag";

struct Bags {
  Tensor of;  // the bag of each row number [P], int64; `count` for rows that are in none
  int64_t count;
};

Bags bags_from(const Tensor& input, const Tensor& offsets, bool include_last_offset) {
  autograd::NoGrad off;
  int64_t n = input.numel();
  Tensor place = arange(0, n, 1, kInt64, input.device());
  if (input.ndim() == 2) {
    SF_CHECK(!offsets, kOp, ": offsets are for an input of one dimension, got input ", input.shape());
    int64_t size = std::max<int64_t>(input.shape()[1], 1);
    return {floor_divide(place, wrapped(size)), input.shape()[0]};
  }
  SF_CHECK(input.ndim() == 1, kOp, ": input must be [B, L], or [P] with offsets, got ", input.shape());
  SF_CHECK(offsets, kOp, ": an input of one dimension needs offsets");
  Tensor begin = indexing::as_positions(kOp, "offsets", offsets, input.device());
  SF_CHECK(begin.ndim() == 1, kOp, ": offsets must have one dimension, got ", offsets.shape());
  int64_t count = begin.numel() - include_last_offset;
  SF_CHECK(count >= 0, kOp, ": with include_last_offset offsets must not be empty");
  if (begin.numel() == 0) return {full_like(place, 0), 0};
  auto at = [&](int64_t from, int64_t length) { return begin.narrow(0, from, length); };
  SF_CHECK(indexing::all_hold(kOp, eq(at(0, 1), wrapped(0))), kOp, ": offsets must begin with 0");
  int64_t more = begin.numel() - 1;
  SF_CHECK(indexing::all_hold(kOp, ge(at(1, more), at(0, more))), kOp, ": offsets must not decrease");
  SF_CHECK(indexing::all_hold(kOp, le(at(more, 1), wrapped(n))), kOp, ": offsets must not be above ", n,
           ", the size of input");
  return {searchsorted(contiguous(begin), place, false, true) - 1, count};
}

}  // namespace

Tensor embedding_bag(const Tensor& input, const Tensor& weight, const Tensor& offsets, bool scale_grad_by_freq,
                     const std::string& mode, const Tensor& per_sample_weights, bool include_last_offset,
                     std::optional<int64_t> padding_idx) {
  check_defined(kOp, "input", input);
  check_defined(kOp, "weight", weight);
  check_floating(kOp, "weight", weight);
  SF_CHECK(weight.ndim() == 2, kOp, ": weight must be [num_embeddings, embedding_dim], got ", weight.shape());
  SF_CHECK(mode == "sum" || mode == "mean" || mode == "max", kOp, ": mode must be 'sum', 'mean' or 'max', got '", mode,
           "'");
  SF_CHECK(mode == "sum" || !per_sample_weights, kOp, ": per_sample_weights are for mode 'sum', got '", mode, "'");
  SF_CHECK(mode != "max" || !scale_grad_by_freq, kOp, ": scale_grad_by_freq is for modes 'sum' and 'mean'");
  int64_t rows = weight.shape()[0], width = weight.shape()[1];
  SF_CHECK(!padding_idx || (*padding_idx >= -rows && *padding_idx < rows), kOp, ": padding_idx must be in [", -rows,
           ", ", rows - 1, "], got ", padding_idx.value_or(0));
  Tensor at = indexing::as_positions(kOp, "input", input, weight.device());
  Bags bags = bags_from(at, offsets, include_last_offset);
  at = at.reshape({-1});
  if (padding_idx) {
    int64_t padding = *padding_idx < 0 ? *padding_idx + rows : *padding_idx;
    bags.of = where(eq(at, wrapped(padding)), wrapped(bags.count), bags.of);
  }
  Tensor looked_up = embedding(at, weight, {}, scale_grad_by_freq);
  if (per_sample_weights) {
    check_shape(kOp, "per_sample_weights", per_sample_weights, input.shape());
    SF_CHECK_AS(TypeError, per_sample_weights.dtype() == weight.dtype(), kOp,
                ": per_sample_weights must have the dtype of weight, ", weight.dtype(), ", got ",
                per_sample_weights.dtype());
    check_same_device(kOp, weight, per_sample_weights);
    looked_up = looked_up * per_sample_weights.reshape({-1, 1});
  }
  // one row more, for what is in no bag
  Tensor none = zeros({bags.count + 1, width}, weight.dtype(), weight.device());
  Tensor y = mode == "max"
                 ? scatter_reduce(none, 0, bags.of.unsqueeze(1).expand({at.numel(), width}), looked_up, "amax", false)
                 : index_add(none, 0, bags.of, looked_up);
  y = y.narrow(0, 0, bags.count);
  if (mode != "mean") return y;
  Tensor counts;
  {
    autograd::NoGrad off;
    counts = index_add(zeros({bags.count + 1}, kInt64, weight.device()), 0, bags.of,
                       ones(bags.of.shape(), kInt64, weight.device()));
    counts = clamp(counts.narrow(0, 0, bags.count), 1).unsqueeze(1);
  }
  return y / to_dtype(counts, y.dtype());
}

SF_OP(embedding_bag,
      "input, weight, offsets=None, scale_grad_by_freq=False, mode='mean', per_sample_weights=None, "
      "include_last_offset=False, padding_idx=None")
    .doc("Sums, means or maxima of rows of weight[V, D] by number, in bags: input [B, L], or [P] with offsets [B].")
    .like(
        "F.embedding_bag(input, weight, offsets, None, 2.0, scale_grad_by_freq, mode, False, per_sample_weights, "
        "include_last_offset, padding_idx)")
    .kernels(take_kernel, put_kernel, searchsorted_kernel, scatter_reduce_kernel);

}  // namespace sf
