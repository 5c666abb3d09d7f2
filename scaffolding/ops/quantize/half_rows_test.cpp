#include "scaffolding/ops/quantize/half_rows.h"

#include "scaffolding/core/printing.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/ops.h"

namespace sf::test {

SF_OP_TEST(linear_half) {
  sample(randn({3, 5, 32}), randn({12, 32}).to(kFloat16), randn({12})).no_golden().no_grad();
  sample(randn({40, 300}), randn({33, 300}).to(kBFloat16), none).no_golden().no_grad();
  sample(randn({2, 7}), randn({5, 7}).to(kFloat16), none, randn({2, 5})).no_golden().no_grad();
  sample(randn({20, 33}), randn({33, 48}).to(kBFloat16).t(), randn({48})).no_golden().no_grad();
  sample(randn({4, 20}), randn({7, 20}), randn({7})).no_golden().no_grad();
  rejects("weight must be a floating-point tensor", randn({5, 20}), randint(0, 9, {7, 20}));
  rejects("needs input [..., K] and weight [N, K]", randn({5, 21}), randn({7, 20}).to(kFloat16));
}

// What the weight is in float32, multiplied: the order of sums is that of another product.
TEST(LinearHalf, ComputesWithTheWeightsNumbers) {
  for (DType dtype : {kFloat16, kBFloat16})
    for (int64_t rows : {1, 5, 70}) {
      const Tensor x = randn({rows, 700}), w = randn({37, 700}).to(dtype), bias = randn({37});
      const Tensor want = linear(x.to(kFloat64), w.to(kFloat64), bias.to(kFloat64));
      EXPECT_LT(amax(abs(linear_half(x, w, bias).to(kFloat64) - want)).item<double>(), 2e-4) << dtype << ' ' << rows;
    }
}

TEST(LinearHalf, GradientsGoToInputAndBias) {
  Tensor x = randn({9, 40}), bias = randn({12});
  const Tensor w = randn({12, 40}).to(kFloat16);
  x.requires_grad_(), bias.requires_grad_();
  sum(linear_half(x, w, bias) * 2.0).backward();
  EXPECT_LT(amax(abs(x.grad() - 2.0 * sum(w.to(kFloat32), Shape{0}))).item<double>(), 1e-4);
  EXPECT_LT(amax(abs(bias.grad() - 18.0)).item<double>(), 1e-6);
  Tensor learns = randn({12, 40}).to(kFloat16);
  learns.requires_grad_();
  EXPECT_THROW(linear_half(randn({9, 40}), learns), Error);
}

}  // namespace sf::test
