#include "scaffolding/ops/attention/attention.h"

#include "scaffolding/core/generator.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(scaled_dot_product_attention) {
  sample(randn({2, 3, 5, 8}), randn({2, 3, 7, 8}), randn({2, 3, 7, 8}));
  sample(randn({2, 9, 3, 8}).transpose(1, 2), randn({2, 9, 3, 8}).transpose(1, 2), randn({2, 9, 3, 8}).transpose(1, 2),
         none, 0.0, true);
  sample(randn({1, 4, 6, 5}), randn({1, 2, 6, 5}), randn({1, 2, 6, 3}), none, 0.0, false, 0.7, true);
  sample(randn({2, 2, 5, 4}), randn({2, 2, 6, 4}), randn({2, 2, 6, 4}), randn({5, 6}));
  sample(randn({2, 2, 5, 4}), randn({2, 2, 6, 4}), randn({2, 2, 6, 4}), boolean({2, 1, 5, 6}));
  sample(randn({5, 8}), randn({6, 8}), randn({6, 8}));
  sample(randn({3, 5, 8}), randn({3, 6, 8}), randn({3, 6, 8}));
  sample(randn({1, 1, 40, 16}), randn({1, 1, 150, 16}), randn({1, 1, 150, 16})).no_grad();
  rejects("same last size", randn({1, 2, 3, 4}), randn({1, 2, 3, 5}), randn({1, 2, 3, 5}));
  rejects("same length", randn({1, 2, 3, 4}), randn({1, 2, 3, 4}), randn({1, 2, 5, 4}));
  rejects("enable_gqa", randn({1, 4, 3, 4}), randn({1, 2, 3, 4}), randn({1, 2, 3, 4}));
  rejects("not both", randn({1, 2, 3, 4}), randn({1, 2, 3, 4}), randn({1, 2, 3, 4}), randn({3, 3}), 0.0, true);
  rejects("must be bool or floating", randn({1, 2, 3, 4}), randn({1, 2, 3, 4}), randn({1, 2, 3, 4}),
          randint(0, 2, {3, 3}));
}

namespace {

TEST(attention, dropped_weights_are_those_torch_drops) {
  auto grid = [](const Shape& shape, int64_t step, int64_t modulus, int64_t shift, double scale) {
    Tensor x = empty(shape);
    for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = float(double(i * step % modulus - shift) / scale);
    return x;
  };
  auto expect = [](const Tensor& x, const std::vector<double>& want) {
    std::vector<double> got = x.detach().to_vector();
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-6) << i;
  };
  Tensor q = grid({1, 2, 4, 3}, 37, 11, 5, 4).requires_grad_(), k = grid({1, 2, 5, 3}, 29, 13, 6, 4),
         v = grid({1, 2, 5, 2}, 23, 7, 3, 2).requires_grad_();
  manual_seed(11);
  Tensor y = scaled_dot_product_attention(q, k, v, {}, 0.4);
  // torch 2.15.0, torch.manual_seed(11)
  expect(y, {-0.9652746, -0.2672954, -1.260226, -0.09765019, 0.4010531, -0.618871, -0.7516736, -0.05492243, 0.2322137,
             -0.1548091, 0.4555363, 1.366609, 0.02113257, 1.228504, -1.569831, -0.238701});
  y.sum().backward();
  expect(q.grad(), {0.3923849, 0.2790203, 0.1999953, 0.3649255, 0.2469104, -0.1608098});
  expect(v.grad(), {1.455659, 1.455659, 0.07719754, 0.07719754, 0.6401194, 0.6401194});
  EXPECT_THROW(scaled_dot_product_attention(q, k, v, {}, -0.1), ValueError);
}

}  // namespace
}  // namespace sf::test
