#include "scaffolding/diffusion/schedulers/prediction.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "scaffolding/core/parallel.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

// torch.quantile's linear interpolation between the two values around the rank; NaN where one of the n values is.
// Reorders them.
float quantile(float* values, int64_t n, float ratio) {
  if (std::any_of(values, values + n, [](float v) { return std::isnan(v); }))
    return std::numeric_limits<float>::quiet_NaN();
  const float rank = ratio * float(n - 1);
  const auto below = int64_t(rank);
  std::nth_element(values, values + below, values + n);
  const float low = values[below], high = below + 1 < n ? *std::min_element(values + below + 1, values + n) : low,
              weight = rank - float(below);
  return weight < 0.5f ? low + weight * (high - low) : high - (high - low) * (1 - weight);
}

// The same of each row of values[B, n], where they are: no step waits for the device.
Tensor quantiles(const Tensor& values, float ratio) {
  const int64_t n = values.size(1);
  const float rank = ratio * float(n - 1);
  const auto below = int64_t(rank);
  const Tensor sorted = std::get<0>(sort(values, 1));  // NaNs last
  auto at = [&](int64_t i) { return sorted.narrow(1, std::min(i, n - 1), 1); };
  const Tensor low = at(below), high = at(below + 1), last = at(n - 1);
  const float weight = rank - float(below);
  return where(ne(last, last), last,
               weight < 0.5f ? low + double(weight) * (high - low) : high - (high - low) * double(1 - weight));
}

}  // namespace

Tensor predicted_original(const std::string& type, const Tensor& model_output, const Tensor& sample, double alpha,
                          double sigma) {
  if (type == "epsilon") return (sample - sigma * model_output) / alpha;
  if (type == "sample") return model_output;
  return alpha * sample - sigma * model_output;
}

Tensor predicted_epsilon(const std::string& type, const Tensor& model_output, const Tensor& sample, double alpha,
                         double sigma) {
  if (type == "epsilon") return model_output;
  if (type == "sample") return (sample - alpha * model_output) / sigma;
  return alpha * model_output + sigma * sample;
}

Tensor sigma_prediction(const std::string& type, const Tensor& model_output, const Tensor& sample, float sigma,
                        float sigma_hat) {
  if (type == "epsilon") return sample - sigma_hat * model_output;
  if (type != "v_prediction") return model_output;
  float power = sigma * sigma + 1;
  return model_output * (-sigma / std::sqrt(power)) + sample / power;
}

Tensor threshold_sample(const Tensor& sample, double ratio, double max_value) {
  Tensor x = sample.dtype() == kFloat64 ? sample : sample.to(kFloat32);
  const int64_t batch = x.size(0), n = batch ? x.numel() / batch : 0;
  if (n == 0) return sample;
  Shape shape{batch};
  while (int64_t(shape.size()) < x.ndim()) shape.push_back(1);
  if (x.device().is_cuda()) {
    Tensor limits =
        clamp(quantiles(abs(x.detach()).to(kFloat32).reshape({batch, n}), float(ratio)), 1.0, double(float(max_value)));
    Tensor s = limits.to(x.dtype()).reshape(shape);
    return (minimum(maximum(x, -s), s) / s).to(sample.dtype());
  }
  Tensor magnitudes = abs(x.detach()).to(kFloat32).contiguous();
  Tensor limits = empty(shape, kFloat32, Device::CPU);
  float *from = magnitudes.data<float>(), *to = limits.data<float>();
  parallel_for(batch, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      to[b] = std::min(std::max(quantile(from + b * n, n, float(ratio)), 1.0f), float(max_value));
  });
  Tensor s = limits.to(x.dtype()).to(x.device());
  return (minimum(maximum(x, -s), s) / s).to(sample.dtype());
}

Tensor clip_sample(const Tensor& sample, double range) { return clamp(sample, -range, range); }

}  // namespace sf::diffusion
