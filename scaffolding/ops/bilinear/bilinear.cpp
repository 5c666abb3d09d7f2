#include "scaffolding/ops/bilinear/bilinear.h"

#include "scaffolding/core/op.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

Tensor bilinear(const Tensor& input1, const Tensor& input2, const Tensor& weight, const Tensor& bias) {
  check_defined("bilinear", "input1", input1);
  check_defined("bilinear", "input2", input2);
  check_defined("bilinear", "weight", weight);
  check_same_device("bilinear", input1, input2);
  check_same_device("bilinear", input1, weight);
  int64_t n = input1.ndim();
  SF_CHECK(weight.ndim() == 3, "bilinear: weight must be [out, in1, in2], got ", weight.shape());
  int64_t out = weight.size(0), in1 = weight.size(1), in2 = weight.size(2);
  SF_CHECK(n >= 1 && input2.ndim() == n,
           "bilinear: input1 and input2 must have the same number of dimensions, 1 or more, got ", input1.shape(),
           " and ", input2.shape());
  for (int64_t i = 0; i + 1 < n; ++i)
    SF_CHECK(input1.shape()[i] == input2.shape()[i], "bilinear: input1 and input2 must agree in dimension ", i,
             ", got ", input1.shape(), " and ", input2.shape());
  SF_CHECK(input1.size(-1) == in1 && input2.size(-1) == in2, "bilinear: the last sizes must be those of weight ",
           weight.shape(), ", got ", input1.shape(), " and ", input2.shape());
  check_shape("bilinear", "bias", bias, {out});
  int64_t rows = 1;
  for (int64_t i = 0; i + 1 < n; ++i) rows *= input1.shape()[i];
  // One product gives the [out, in2] matrix of each row; the second contracts it with input2.
  Tensor left = matmul(input1.reshape({rows, in1}), weight.permute({1, 0, 2}).reshape({in1, out * in2}))
                    .reshape({rows, out, in2});
  Shape size = input1.shape();
  size.back() = out;
  Tensor y = matmul(left, input2.reshape({rows, in2, 1})).reshape(size);
  return bias ? y + bias : y;
}

SF_OP(bilinear, "input1, input2, weight, bias=None")
    .doc("input1^T weight_o input2 + bias_o for each output o: input1[..., I], input2[..., J], weight[O, I, J].")
    .like("torch.nn.functional.bilinear(input1, input2, weight, bias)");

}  // namespace sf
