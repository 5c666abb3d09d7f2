#include "scaffolding/ops/adamw/adamw.h"

#include <cmath>

#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/op_test.h"

namespace sf::test {

// torch.optim.AdamW's formula in plain double arithmetic.
struct Expected {
  double p, m = 0, v = 0;
  void step(double g, int t, double lr, double wd) {
    p *= 1 - lr * wd;
    m += 0.1 * (g - m);
    v = 0.999 * v + 0.001 * g * g;
    p -= lr / (1 - std::pow(0.9, t)) * m / (std::sqrt(v) / std::sqrt(1 - std::pow(0.999, t)) + 1e-8);
  }
};

TEST(adamw, follows_the_formula_over_several_tensors_and_steps) {
  Tensors p{tensor({1, -2, 3}, kFloat64), tensor({0.5}, kFloat64)}, m{zeros({3}, kFloat64), zeros({1}, kFloat64)},
      v{zeros({3}, kFloat64), zeros({1}, kFloat64)};
  std::vector<Expected> e{{1}, {-2}, {3}, {0.5}};
  for (int t = 1; t <= 5; ++t) {
    Tensors g{tensor({0.1 * t, -0.3, 2}, kFloat64), tensor({-1.0 / t}, kFloat64)};
    adamw_(p, g, m, v, t, {.lr = 0.01, .weight_decay = 0.1});
    double gs[] = {0.1 * t, -0.3, 2, -1.0 / t};
    for (int i = 0; i < 4; ++i) e[size_t(i)].step(gs[i], t, 0.01, 0.1);
  }
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(p[0].to_vector()[size_t(i)], e[size_t(i)].p, 1e-12);
  EXPECT_NEAR(p[1].item(), e[3].p, 1e-12);
}

TEST(adamw, keeps_full_precision_behind_bfloat16_params) {
  Tensors p{full({100}, 1.0, kBFloat16)}, m{zeros({100})}, v{zeros({100})}, master{ones({100})};
  for (int t = 1; t <= 20; ++t) adamw_(p, {ones({100}, kBFloat16)}, m, v, t, {.lr = 1e-4, .weight_decay = 0}, master);
  EXPECT_NEAR(master[0].to_vector()[7], 1 - 20e-4, 1e-6);
  EXPECT_EQ(p[0].to_vector()[7], 1.0 - 0x1p-8 * (20e-4 > 0x1p-9 ? 1 : 0));  // the nearest bfloat16
}

SF_OP_TEST(fused_adamw_) {
  rejects("equally long", Tensors{randn({2})}, Tensors{}, Tensors{}, Tensors{}, 1);
  rejects("step counts from 1", Tensors{randn({2})}, Tensors{randn({2})}, Tensors{randn({2})}, Tensors{randn({2})}, 0);
  rejects("must have shape", Tensors{randn({2})}, Tensors{randn({3})}, Tensors{randn({2})}, Tensors{randn({2})}, 1);
}

}  // namespace sf::test
