// Activations of vocoders that follow BigVGAN (Lee et al. 2023, arXiv 2206.04658), under diffusers' names and keys:
// periodic functions, between filters that keep what they add from aliasing. Signals are [B, C, L].
#pragma once
#include "scaffolding/nn/module.h"

namespace sf::models {

// ratio times the number of samples, or a part of it, by a windowed sinc filter [1, 1, K].
struct UpSample1d : nn::Module {
  int64_t ratio;
  nn::Buffer filter;
  SF_MODULE(UpSample1d, filter)
  UpSample1d(int64_t ratio, int64_t kernel_size);
  Tensor forward(const Tensor& x) const;
};
struct DownSample1d : nn::Module {
  int64_t ratio;
  nn::Buffer filter;
  SF_MODULE(DownSample1d, filter)
  DownSample1d(int64_t ratio, int64_t kernel_size);
  Tensor forward(const Tensor& x) const;
};

// x + sin(exp(alpha) x)^2 / exp(beta), with alpha for beta where there is none.
struct SnakeBeta : nn::Module {
  Tensor alpha, beta;  // [C], logarithms
  SF_MODULE(SnakeBeta, alpha, beta)
  SnakeBeta(int64_t channels, bool use_beta);
  Tensor forward(const Tensor& x) const;
  Tensor frequency() const;  // exp(alpha)
  Tensor amplitude() const;  // 1 / exp(beta)
};

struct AntiAliasAct1d : nn::Module {
  UpSample1d upsample;
  SnakeBeta act;
  DownSample1d downsample;
  SF_MODULE(AntiAliasAct1d, upsample, act, downsample)
  AntiAliasAct1d(SnakeBeta act, int64_t ratio, int64_t kernel_size);
  Tensor forward(const Tensor& x) const;
};

// A Kaiser window over sinc, whose numbers add up to 1: [kernel_size]. cutoff and half_width are shares of the sampling
// rate.
Tensor kaiser_sinc_filter1d(double cutoff, double half_width, int64_t kernel_size);
// A Hann window over sinc, for `ratio` times the samples: [2 * 7 * ratio + 1].
Tensor hann_sinc_filter1d(int64_t ratio);
// What UpSample1d does with that one.
Tensor resampled_by_hann(const Tensor& x, const Tensor& filter, int64_t ratio);

}  // namespace sf::models
