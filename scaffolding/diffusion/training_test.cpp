#include "scaffolding/diffusion/training.h"

#include <gtest/gtest.h>

#include "scaffolding/diffusion/schedulers/schedulers.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {
namespace {

TEST(Training, LossOfAPerfectAnswerIsZero) {
  DDPMScheduler scheduler;
  Tensor latents = randn({3, 4, 5, 5}), noise = randn({3, 4, 5, 5}), text = randn({3, 2, 6});
  auto model = [&](const Tensor& noisy, const Tensor& t, const Tensor& condition) {
    EXPECT_EQ(noisy.shape(), latents.shape());
    EXPECT_EQ(t.shape(), Shape{3});
    EXPECT_TRUE(condition.is_same(text));
    return noise;
  };
  EXPECT_EQ(diffusion_loss(model, scheduler, latents, text, {.snr_gamma = 5}, {.noise = noise}).item(), 0);
}

TEST(Training, WeightsAreOfSamples) {
  DDPMScheduler scheduler;
  Tensor latents = zeros({2, 1, 2, 2}), t = tensor(std::vector<int64_t>{10, 900}, {2});
  TrainingBatch b = training_batch(scheduler, latents, {.prediction_type = "sample", .snr_gamma = 5}, {.timesteps = t});
  ASSERT_TRUE(b.weights);
  auto w = b.weights.to_vector();
  EXPECT_EQ(w[0], 5);
  EXPECT_LT(w[1], 1);
  // an error of 1 in the second sample only
  Tensor wrong = cat({zeros({1, 1, 2, 2}), ones({1, 1, 2, 2})}, 0);
  EXPECT_NEAR(training_loss(wrong, b).item(), w[1] / 2, 1e-7);
}

TEST(Training, FlowMatchingTakesItsScheduler) {
  FlowMatchEulerDiscreteScheduler flow;
  TrainingBatch b = training_batch(flow, zeros({8, 1}), {.weighting_scheme = "sigma_sqrt"});
  Tensor sigma = b.timesteps / 1000;
  for (int64_t i = 0; i < 8; ++i)
    EXPECT_NEAR(b.weights.to_vector()[size_t(i)] * sigma.to_vector()[size_t(i)] * sigma.to_vector()[size_t(i)], 1,
                1e-4);
  EulerDiscreteScheduler euler;
  EXPECT_THROW(training_batch(euler, zeros({1, 1})), TypeError);
  EXPECT_THROW(training_batch(flow, zeros({1, 1}), {.snr_gamma = 5}), ValueError);
}

TEST(Training, GradientsReachTheModel) {
  DDPMScheduler scheduler;
  Tensor weight = ones({1}).requires_grad_();
  auto model = [&](const Tensor& noisy, const Tensor&, const Tensor&) { return noisy * weight; };
  diffusion_loss(model, scheduler, randn({4, 2, 3, 3}), {},
                 {.noise_offset = 0.1, .input_perturbation = 0.1, .condition_dropout = 0.5})
      .backward();
  ASSERT_TRUE(weight.grad());
  EXPECT_NE(weight.grad().item(), 0);
}

}  // namespace
}  // namespace sf::diffusion
