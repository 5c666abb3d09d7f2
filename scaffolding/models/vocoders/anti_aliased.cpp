#include "scaffolding/models/vocoders/anti_aliased.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "scaffolding/core/default_device.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/nn/streaming/residence.h"
#include "scaffolding/ops/fused/filtered_snake/snake.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kEps = 1e-9;      // beside an amplitude
constexpr int64_t kHannWidth = 7;  // of the resampler's filter, in samples before they are more
constexpr double kHannReach = 6, kRolloff = 0.99;

// The modified Bessel function of the first kind, of order 0.
double bessel_i0(double x) {
  double term = 1, sum = 1;
  for (int k = 1; term > 1e-17 * sum; ++k) {
    term *= x * x / (4.0 * k * k);
    sum += term;
  }
  return sum;
}

double sinc(double x) { return x == 0 ? 1 : std::sin(kPi * x) / (kPi * x); }

Tensor as_buffer(const Tensor& filter) { return filter.reshape({1, 1, -1}).to(default_device()); }

Tensor anti_aliasing_filter(int64_t ratio, int64_t kernel_size) {
  return as_buffer(kaiser_sinc_filter1d(0.5 / double(ratio), 0.6 / double(ratio), kernel_size));
}

}  // namespace

Tensor kaiser_sinc_filter1d(double cutoff, double half_width, int64_t n) {
  const double half = double(n / 2), attenuation = 2.285 * (half - 1) * kPi * 4 * half_width + 7.95;
  const double beta = attenuation > 50    ? 0.1102 * (attenuation - 8.7)
                      : attenuation >= 21 ? 0.5842 * std::pow(attenuation - 21, 0.4) + 0.07886 * (attenuation - 21)
                                          : 0;
  std::vector<double> filter(static_cast<size_t>(n));
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double at = n == 1 ? 0 : 2.0 * double(i) / double(n - 1) - 1;  // -1 to 1 within the window
    const double window = bessel_i0(beta * std::sqrt(1 - at * at)) / bessel_i0(beta);
    const double time = double(i) - half + (n % 2 == 0 ? 0.5 : 0);
    sum += filter[size_t(i)] = window * sinc(2 * cutoff * time);
  }
  for (double& f : filter) f /= sum;
  return tensor(filter, {n}, kFloat32);
}

Tensor hann_sinc_filter1d(int64_t ratio) {
  const int64_t n = 2 * kHannWidth * ratio + 1;
  std::vector<double> filter;
  for (int64_t i = 0; i < n; ++i) {
    const double time = (double(i) / double(ratio) - double(kHannWidth)) * kRolloff;
    const double window = std::cos(std::clamp(time, -kHannReach, kHannReach) * kPi / kHannReach / 2);
    filter.push_back(sinc(time) * window * window * kRolloff / double(ratio));
  }
  return tensor(filter, {n}, kFloat32);
}

Tensor resampled_by_hann(const Tensor& x, const Tensor& filter, int64_t ratio) {
  const Tensor around = pad(x, {kHannWidth, kHannWidth}, "replicate").reshape({-1, 1, x.size(2) + 2 * kHannWidth});
  const Tensor y = conv_transpose1d(around, filter.reshape({1, 1, -1}) * double(ratio), {}, {ratio});
  return y.narrow(2, 2 * kHannWidth * ratio, ratio * x.size(2)).reshape({x.size(0), x.size(1), -1});
}

UpSample1d::UpSample1d(int64_t r, int64_t kernel_size) : ratio(r), filter(anti_aliasing_filter(r, kernel_size)) {}
Tensor UpSample1d::forward(const Tensor& x) const { return upsampled_by(x, filter.flatten(), ratio); }

DownSample1d::DownSample1d(int64_t r, int64_t kernel_size) : ratio(r), filter(anti_aliasing_filter(r, kernel_size)) {}
Tensor DownSample1d::forward(const Tensor& x) const { return downsampled_by(x, filter.flatten(), ratio); }

SnakeBeta::SnakeBeta(int64_t channels, bool use_beta) : alpha(nn::parameter(zeros({channels}))) {
  if (use_beta) beta = nn::parameter(zeros({channels}));
}
Tensor SnakeBeta::frequency() const { return exp(alpha); }
Tensor SnakeBeta::amplitude() const { return reciprocal(exp(beta ? beta : alpha) + kEps); }
Tensor SnakeBeta::forward(const Tensor& x) const { return snake(x, frequency(), amplitude()); }

AntiAliasAct1d::AntiAliasAct1d(SnakeBeta activation, int64_t ratio, int64_t kernel_size)
    : upsample(ratio, kernel_size), act(std::move(activation)), downsample(ratio, kernel_size) {}

Tensor AntiAliasAct1d::forward(const Tensor& x) const {
  if (!is_plain(upsample) || !is_plain(act) || !is_plain(downsample)) return downsample(act(upsample(x)));
  const nn::WeightsHere up(upsample), weights(act), down(downsample);
  return filtered_snake(x, act.frequency(), act.amplitude(), upsample.filter.flatten(), downsample.filter.flatten(),
                        upsample.ratio);
}

}  // namespace sf::models
