#include "scaffolding/optim/gradient_map.h"

#include <gtest/gtest.h>

#include <cmath>

#include "scaffolding/autograd/hooks.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::optim {
namespace {

using Numbers = std::vector<double>;

struct GradientMapTest : testing::Test {
  Tensor x = tensor({3, 4}, kFloat64).requires_grad_(), w = tensor({1, 2}, kFloat64).requires_grad_();
  GradientMap map = backward_map({(x * w * tensor({1, 6}, kFloat64)).sum()});  // x: 1, 12   w: 3, 24
  Numbers of(const Tensor& leaf) { return map.get(leaf).to_vector(); }
};

TEST_F(GradientMapTest, holds_the_gradients_and_leaves_grad_alone) {
  EXPECT_EQ(map.size(), 2u);
  EXPECT_EQ(of(x), (Numbers{1, 12}));
  EXPECT_EQ(of(w), (Numbers{3, 24}));
  EXPECT_FALSE(x.grad());
  EXPECT_FALSE(map.get(ones({2})));
  EXPECT_FALSE(map.contains(ones({2})));
}

TEST_F(GradientMapTest, is_set_taken_and_erased) {
  map.set(x, tensor({7, 8}, kFloat64));
  EXPECT_EQ(map.take(x).to_vector(), (Numbers{7, 8}));
  EXPECT_FALSE(map.contains(x));
  EXPECT_FALSE(map.erase(x));
  EXPECT_EQ(of(w), (Numbers{3, 24})) << "the others keep their place";
  size_t n = 0;
  for (auto& [leaf, gradient] : map) {
    n += size_t(gradient.numel());
    EXPECT_TRUE(leaf.is_same(w));
  }
  EXPECT_EQ(n, 2u);
  EXPECT_THROW(map.set(w, ones({3}, kFloat64)), ValueError);
  EXPECT_THROW(map.set(w, ones({2}, kFloat32)), TypeError);
  EXPECT_THROW(map.set(w, {}), TypeError);
  map.clear();
  EXPECT_TRUE(map.empty());
}

TEST_F(GradientMapTest, goes_to_the_optimizer_by_choice) {
  map.apply_to_grads();
  map.scale(10);
  EXPECT_EQ(x.grad().to_vector(), (Numbers{1, 12})) << "edits after apply_to_grads stay in the map";
  EXPECT_EQ(of(x), (Numbers{10, 120}));
  map.apply_to_grads(true);
  EXPECT_EQ(x.grad().to_vector(), (Numbers{11, 132}));
  map.apply_to_grads();
  EXPECT_EQ(x.grad().to_vector(), (Numbers{10, 120}));
  GradientMap both = backward_map({(x * 2.0).sum()}, {}, {}, true);
  EXPECT_EQ(x.grad().to_vector(), (Numbers{12, 122}));
  EXPECT_EQ(both.get(x).to_vector(), (Numbers{2, 2}));
}

TEST_F(GradientMapTest, clips_by_global_norm) {
  double norm = std::sqrt(1 + 144 + 9 + 576.0);
  EXPECT_DOUBLE_EQ(map.norm(), norm);
  EXPECT_DOUBLE_EQ(map.norm(1), 40);
  EXPECT_DOUBLE_EQ(map.norm(INFINITY), 24);
  EXPECT_NEAR(map.norm(3), std::cbrt(1 + 1728 + 27 + 13824.0), 1e-12);
  EXPECT_DOUBLE_EQ(map.clip_norm(100), norm);
  EXPECT_EQ(of(x), (Numbers{1, 12})) << "already shorter";
  map.clip_norm(1);
  EXPECT_NEAR(map.norm(), 1, 1e-6);
  EXPECT_NEAR(of(x)[1] / of(w)[1], 0.5, 1e-12) << "the direction stays";
  EXPECT_THROW(map.clip_norm(-1), ValueError);
  EXPECT_THROW(map.norm(0), ValueError);
}

TEST_F(GradientMapTest, clips_by_value) {
  map.clip_value(5);
  EXPECT_EQ(of(x), (Numbers{1, 5}));
  EXPECT_EQ(of(w), (Numbers{3, 5}));
}

TEST_F(GradientMapTest, clips_to_the_size_of_the_parameter) {
  map.clip_adaptive(0.1);  // |x| = 5
  EXPECT_NEAR(std::hypot(of(x)[0], of(x)[1]), 0.5, 1e-12);
  EXPECT_NEAR(of(x)[1] / of(x)[0], 12, 1e-9);
  EXPECT_NEAR(std::hypot(of(w)[0], of(w)[1]), 0.1 * std::sqrt(5), 1e-12);
  Tensor m = tensor(std::vector<double>{3, 4, 0, 0}, {2, 2}).requires_grad_();
  GradientMap rows = backward_map({m.sum()});
  rows.clip_adaptive(0.1, 1e-3, true);
  auto g = rows.get(m).to_vector();
  EXPECT_NEAR(std::hypot(g[0], g[1]), 0.5, 1e-12);
  EXPECT_NEAR(std::hypot(g[2], g[3]), 1e-4, 1e-12) << "eps bounds rows of zeros";
}

TEST_F(GradientMapTest, is_normalised_together_or_each) {
  GradientMap each = map;
  map.normalize();
  EXPECT_NEAR(map.norm(), 1, 1e-12);
  EXPECT_NEAR(of(w)[1] / of(x)[1], 2, 1e-12);
  each.normalize(2, true);
  EXPECT_NEAR(statistics_of(each.get(x)).norm, 1, 1e-12);
  EXPECT_NEAR(statistics_of(each.get(w)).norm, 1, 1e-12);
  GradientMap zero = backward_map({(x * 0.0).sum()});
  zero.normalize();
  EXPECT_EQ(zero.get(x).to_vector(), (Numbers{0, 0}));
}

TEST_F(GradientMapTest, noise_comes_from_the_generator) {
  Generator g = make_generator();
  g->manual_seed(1);
  GradientMap copy = map;
  map.add_noise(0.1, g);
  g->manual_seed(1);
  copy.add_noise(0.1, g);
  EXPECT_EQ(of(x), copy.get(x).to_vector());
  EXPECT_NE(of(x)[0], 1);
  EXPECT_NEAR(of(x)[0], 1, 1);
}

TEST_F(GradientMapTest, statistics_count_what_is_broken) {
  EXPECT_FALSE(map.has_invalid_values());
  map.set(x, tensor({std::nan(""), -7}, kFloat64));
  map.set(w, tensor({INFINITY, 1}, kFloat64));
  EXPECT_TRUE(map.has_invalid_values());
  GradientStatistics s = map.statistics(x), all = map.statistics();
  EXPECT_EQ(s.nan, 1);
  EXPECT_EQ(s.inf, 0);
  EXPECT_EQ(s.norm, 7);
  EXPECT_EQ(s.abs_max, 7);
  EXPECT_EQ(s.mean, -7);
  EXPECT_EQ(all.count, 4);
  EXPECT_EQ(all.nan, 1);
  EXPECT_EQ(all.inf, 1);
  EXPECT_EQ(all.mean, -3);
  EXPECT_TRUE(std::isnan(map.norm()));
  EXPECT_THROW(map.clip_norm(1, 2, true), RuntimeError);
  EXPECT_THROW(map.statistics(ones({1})), ValueError);
}

TEST_F(GradientMapTest, transform_replaces_or_erases) {
  map.transform([&](const Tensor& leaf, const Tensor& g) { return leaf.is_same(x) ? Tensor() : -g; });
  EXPECT_EQ(map.size(), 1u);
  EXPECT_EQ(of(w), (Numbers{-3, -24}));
}

TEST_F(GradientMapTest, edits_do_not_reach_tensors_that_share_the_gradient) {
  Tensor mine = map.get(x);
  map.scale(0);
  EXPECT_EQ(mine.to_vector(), (Numbers{1, 12}));
  EXPECT_EQ(of(x), (Numbers{0, 0}));
}

TEST_F(GradientMapTest, hooks_run_and_half_precision_works) {
  autograd::register_hook(x, [](const Tensor& g) { return g * 2.0; });
  EXPECT_EQ(backward_map({x.sum()}).get(x).to_vector(), (Numbers{2, 2}));
  Tensor h = ones({1000}, kFloat16).requires_grad_();
  GradientMap m = backward_map({(h * 100.0).sum()}, {scalar_tensor(1, kFloat16)});
  EXPECT_NEAR(m.clip_norm(1), 100 * std::sqrt(1000.0), 1e-6) << "summed in double precision: float16 would overflow";
  EXPECT_EQ(m.get(h).dtype(), kFloat16);
}

}  // namespace
}  // namespace sf::optim
