// What a model's output says of the sample it was called with: sample = alpha * original + sigma * epsilon, where
// `original` is the sample without noise. prediction_type names what the model predicts: epsilon, sample (the original)
// or v_prediction (alpha * epsilon - sigma * original).
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::diffusion {

Tensor predicted_original(const std::string& prediction_type, const Tensor& model_output, const Tensor& sample,
                          double alpha, double sigma);
Tensor predicted_epsilon(const std::string& prediction_type, const Tensor& model_output, const Tensor& sample,
                         double alpha, double sigma);
// The original where sample = original + sigma * epsilon (Karras et al. 2022);
// for epsilon at the noise level sigma_hat.
Tensor sigma_prediction(const std::string& prediction_type, const Tensor& model_output, const Tensor& sample,
                        float sigma, float sigma_hat);

// Dynamic thresholding (Saharia et al. 2022, Imagen): each sample of sample[B, ...] is clamped to the `ratio` quantile
// of its magnitudes, at least 1 and at most max_value, and divided by it.
Tensor threshold_sample(const Tensor& sample, double ratio, double max_value);
Tensor clip_sample(const Tensor& sample, double range);  // to [-range, range]

// The original as the config's fields of these names limit it; thresholding goes first.
template <class Config> Tensor limited(const Config& config, const Tensor& original) {
  if (config.thresholding)
    return threshold_sample(original, config.dynamic_thresholding_ratio, config.sample_max_value);
  return config.clip_sample ? clip_sample(original, config.clip_sample_range) : original;
}

}  // namespace sf::diffusion
