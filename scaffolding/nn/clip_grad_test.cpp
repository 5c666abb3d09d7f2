#include "scaffolding/nn/clip_grad.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "scaffolding/core/source_dir.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::nn::test {
namespace {

Tensor grad_of(int64_t i, int64_t n) {  // as in make_golden_clip_grad.py
  Tensor g = empty({n});
  for (int64_t k = 0; k < n; ++k) g.data<float>()[k] = float((k * 37 + i * 11) % 41 - 20) / 16;
  return g;
}

Tensors parameters_with_grads(const std::vector<int64_t>& sizes, DType t = kFloat32) {
  Tensors ps;
  for (int64_t n : sizes) {
    ps.push_back(zeros({n}, t).requires_grad_());
    ps.back().set_grad(grad_of(int64_t(ps.size()) - 1, n).to(t));
  }
  return ps;
}

TEST(clip_grad, norms_and_clipped_gradients_are_torchs) {
  std::ifstream file(SF_SOURCE_DIR "/tests/golden/clip_grad.json");
  ASSERT_TRUE(file) << "tests/golden/clip_grad.json is missing";
  const auto golden = nlohmann::json::parse(file);
  for (const auto& c : golden.at("cases")) {
    Tensors ps = parameters_with_grads(c.at("sizes").get<std::vector<int64_t>>());
    if (c.contains("clip_value")) {
      uint32_t version = ps[0].grad().version();
      clip_grad_value_(ps, c.at("clip_value"));
      EXPECT_GT(ps[0].grad().version(), version);
    } else {
      double p = c.at("norm_type").is_string() ? INFINITY : c.at("norm_type").get<double>();
      double total = c.at("total");
      EXPECT_NEAR(clip_grad_norm_(ps, c.at("max_norm"), p).item(), total, 1e-6 * total) << c;
    }
    std::vector<double> got;
    for (const Tensor& p : ps)
      for (int64_t i = 0; i < std::min<int64_t>(8, p.numel()); ++i) got.push_back(p.grad()[i].item());
    std::vector<double> want = c.at("clipped");
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-7 * std::abs(want[i])) << c << " at " << i;
  }
}

TEST(clip_grad, what_needs_no_clipping_is_not_written) {
  Tensors ps = parameters_with_grads({5});
  uint32_t version = ps[0].grad().version();
  clip_grad_norm_(ps, 1000);
  EXPECT_EQ(ps[0].grad().version(), version);
}

TEST(clip_grad, parameters_without_gradient_are_passed_over) {
  Tensors ps = parameters_with_grads({5});
  ps.push_back(zeros({3}).requires_grad_());
  EXPECT_GT(clip_grad_norm_(ps, 0.1).item(), 0.1);
  EXPECT_NEAR(get_total_norm({ps[0].grad()}).item(), 0.1, 1e-6);
  EXPECT_EQ(clip_grad_norm_({}, 1).item(), 0);
  EXPECT_EQ(clip_grad_norm_({ps[1]}, 1).item(), 0);
}

TEST(clip_grad, reduced_precision_gradients_have_float32_norms) {
  Tensors ps = parameters_with_grads({4096}, kBFloat16);
  double exact = 0;
  for (double v : ps[0].grad().to_vector()) exact += v * v;
  Tensor total = clip_grad_norm_(ps, 1);
  EXPECT_EQ(total.dtype(), kFloat32);
  EXPECT_NEAR(total.item(), std::sqrt(exact), 1e-5 * std::sqrt(exact));
  EXPECT_EQ(ps[0].grad().dtype(), kBFloat16);
}

TEST(clip_grad, a_norm_that_is_no_number_is_an_error_when_asked) {
  Tensors ps = parameters_with_grads({4, 4});
  ps[1].grad().fill_(NAN);
  std::vector<double> before = ps[0].grad().to_vector();
  EXPECT_THROW(clip_grad_norm_(ps, 1, 2, true), RuntimeError);
  EXPECT_EQ(ps[0].grad().to_vector(), before);
  EXPECT_TRUE(std::isnan(clip_grad_norm_(ps, 1).item()));
  EXPECT_TRUE(std::isnan(ps[0].grad()[0].item()));
  EXPECT_THROW(clip_grad_norm_(ps, -1), ValueError);
  EXPECT_THROW(clip_grad_value_(ps, -1), ValueError);
  EXPECT_THROW(clip_grad_norm_(ps, 1, NAN), ValueError);
}

TEST(clip_grad, parameters_go_into_a_vector_and_back) {
  Tensors ps{full({2, 3}, 1.0).requires_grad_(), full({4}, 2.0).requires_grad_()};
  Tensor v = parameters_to_vector(ps);
  EXPECT_EQ(v.shape(), Shape({10}));
  EXPECT_TRUE(v.requires_grad());
  vector_to_parameters(arange(0, 10).to(kFloat32), ps);
  EXPECT_EQ(ps[0].detach().to_vector(), (std::vector<double>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(ps[1].detach().to_vector(), (std::vector<double>{6, 7, 8, 9}));
  EXPECT_TRUE(ps[0].is_leaf() && ps[0].requires_grad());
  EXPECT_THROW(vector_to_parameters(zeros({9}), ps), ValueError);
  EXPECT_THROW(vector_to_parameters(zeros({10, 1}), ps), ValueError);
  EXPECT_THROW(parameters_to_vector({}), ValueError);
  EXPECT_EQ(ps[1].detach().to_vector(), (std::vector<double>{6, 7, 8, 9}));
}

}  // namespace
}  // namespace sf::nn::test
