#include "scaffolding/ops/dropout/dropout.h"

#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/random/random.h"

namespace sf::test {

SF_OP_TEST(dropout) {
  sample(randn({5, 7}), 0.3);
  sample(randn({5, 7}).transpose(0, 1), 0.5);
  sample(randn({6, 8}).slice(1, 0, 8, 2), 0.5);
  sample(randn({4}), 0.0);
  sample(randn({4}), 1.0);
  sample(randn({4}), 0.5, false);
  sample(randn({0, 3}));
  rejects("p must be between 0 and 1", randn({3}), 1.5);
  rejects("p must be between 0 and 1", randn({3}), -0.5);
  rejects("must be a floating-point tensor", randint(0, 5, {3}));
  rejects("must be a tensor", none);
}
SF_OP_TEST(alpha_dropout) {
  sample(randn({5, 7}), 0.3, true);
  sample(randn({5, 7}));
  sample(randn({4}), 1.0, true);
  rejects("p must be between 0 and 1", randn({3}), 1.5);
  rejects("must be a floating-point tensor", randint(0, 5, {3}));
}
SF_OP_TEST(feature_alpha_dropout) {
  sample(randn({3, 4, 5}), 0.3, true);
  sample(randn({3, 4, 2, 2}));
  sample(randn({3, 4}), 1.0, true);
  rejects("p must be between 0 and 1", randn({3, 3}), 1.5);
  rejects("at least 2 dimensions", randn({3}));
}
SF_OP_TEST(feature_dropout) {
  sample(randn({3, 4, 2, 2, 2, 2}), 0.4);
  rejects("at least 2 dimensions", randn({3}));
}
SF_OP_TEST(dropout1d) {
  sample(randn({3, 4, 5}), 0.4);
  sample(randn({6, 5}), 0.4);
  rejects("must be [C, L] or [N, C, L]", randn({2, 2, 2, 2}));
}
SF_OP_TEST(dropout2d) {
  sample(randn({3, 4, 5, 5}), 0.4);
  sample(randn({3, 5, 5, 4}).permute({0, 3, 1, 2}), 0.4);
  sample(randn({3, 4, 5}), 0.4);
  rejects("[N, C, H, W]", randn({2, 2}));
}
SF_OP_TEST(dropout3d) {
  sample(randn({2, 4, 2, 3, 3}), 0.4);
  sample(randn({4, 2, 3, 3}), 0.4);
  rejects("[N, C, D, H, W]", randn({2, 2, 2}));
}

TEST(dropout_mask, is_torchs_and_scales_what_stays) {
  // torch.manual_seed(0); torch.nn.functional.dropout(torch.ones(16), 0.25) * 0.75, and dropout2d(torch.ones(2, 4, 1,
  // 1), 0.5) / 2 after it
  const std::vector<double> want{0, 1, 1, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, channels{1, 1, 0, 0, 1, 0, 1, 0};
  for (DType t : {kFloat32, kFloat64, kBFloat16, kFloat16}) {
    Generator g = make_generator();
    g->manual_seed(0);
    Tensor y = sf::dropout(sf::ones({16}, t), 0.25, true, g),
           z = sf::dropout2d(sf::ones({2, 4, 3, 3}, t), 0.5, true, g);
    double scale = scalar_tensor(1 / 0.75, t).item();
    for (int i = 0; i < 16; ++i) EXPECT_EQ(y.to_vector()[size_t(i)], want[size_t(i)] * scale);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(z.to_vector()[size_t(i * 9 + 4)], channels[size_t(i)] * 2);
  }
}

TEST(dropout_mask, alpha_dropout_gives_torchs_numbers) {
  Generator g = make_generator();
  g->manual_seed(2);
  std::vector<double> y = sf::alpha_dropout(sf::arange(0, 8).to(kFloat32) / 4 - 1, 0.3, true, g).to_vector();
  // torch 2.15, manual_seed(2)
  const std::vector<double> want{-1.059548, -0.191622, -1.059548, 0.238854, -1.059548, 0.66933, 0.884568, 1.099807};
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(y[i], want[i], 2e-6);
}

TEST(dropout_mask, feature_alpha_dropout_keeps_or_drops_whole_channels) {
  Tensor y = sf::feature_alpha_dropout(sf::ones({40, 5, 6}), 0.4, true);
  Tensor channels = y.reshape({200, 6});
  int64_t dropped = 0;
  for (int64_t c = 0; c < 200; ++c) {
    std::vector<double> values = channels[c].to_vector();
    EXPECT_EQ(values, std::vector<double>(6, values[0]));
    dropped += values[0] < 0;
  }
  EXPECT_GT(dropped, 40);
  EXPECT_LT(dropped, 120);
}

TEST(dropout_mask, the_gradient_uses_the_same_mask) {
  Tensor x = sf::ones({1000}).requires_grad_(), y = sf::dropout(x, 0.5);
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector(), y.to_vector());
  EXPECT_NEAR(y.mean().item(), 1, 0.2);
  EXPECT_TRUE(sf::dropout(x, 0.5, false).is_same(x)) << "evaluation hands its input through";
}

}  // namespace sf::test
