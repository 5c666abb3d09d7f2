#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/index/index_internal.h"

namespace sf {

static int64_t largest(const Tensor& index) {
  SF_CHECK_AS(RuntimeError, !index.device().is_meta(), "one_hot: a meta tensor has no values; pass num_classes");
  SF_CHECK(index.numel() > 0, "one_hot: num_classes must be given for an input of no elements");
  if (index.device().is_cuda())
    cuda::refuse_while_capturing("one_hot", "reading the number of classes from the values (pass num_classes)");
  Tensor host = contiguous(to_device(index, Device::CPU));
  const auto* p = host.data<int64_t>();
  return *std::max_element(p, p + host.numel());
}

Tensor one_hot(const Tensor& input, int64_t num_classes) {
  check_defined("one_hot", "input", input);
  SF_CHECK_AS(TypeError, is_integral(input.dtype()), "one_hot: input must be integers, got ", input.dtype());
  SF_CHECK(num_classes >= -1, "one_hot: num_classes must be -1 or not negative, got ", num_classes);
  SF_CHECK(num_classes != 0 || input.numel() == 0, "one_hot: num_classes must be positive for an input of ",
           input.numel(), " elements");
  Tensor index = to_dtype(input, kInt64);
  int64_t classes = num_classes < 0 ? largest(index) + 1 : num_classes;
  Shape size = input.shape();
  size.push_back(std::max<int64_t>(classes, 0));
  indexing::check_range("one_hot", index, 0, size.back(), input.ndim());
  Tensor y = zeros(size, kInt64, input.device());
  return scatter_(y, -1, index.unsqueeze(-1),
                  scalar_tensor(1, kInt64, input.device()).expand(index.unsqueeze(-1).shape()));
}

SF_OP(one_hot, "input, num_classes=-1")
    .doc("Class numbers as rows of zeros with a one.")
    .like("torch.nn.functional.one_hot")
    .no_gradient();

}  // namespace sf
