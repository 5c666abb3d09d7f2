// The convolutional blocks of UNets and autoencoders, under diffusers' names and keys. Tensors are [B, C, H, W];
// results keep the input's memory format.
#pragma once
#include "scaffolding/nn/conv.h"
#include "scaffolding/nn/dropout.h"
#include "scaffolding/nn/linear.h"
#include "scaffolding/nn/norm.h"

namespace sf::models {

class TimeShifts;

// What a residual block does to the size of pictures: doubled by repeating pixels, halved by the mean of four.
enum class Resample : uint8_t { None, Up, Down };

struct ResnetBlock2DOptions {
  std::optional<int64_t> temb_channels;  // absent: takes no time embedding
  int64_t groups = 32;
  std::optional<int64_t> groups_out;  // of the second norm; absent: groups
  double eps = 1e-6;
  double dropout = 0;
  double output_scale_factor = 1;
  bool scale_shift = false;  // time_embedding_norm "scale_shift": the embedding scales and shifts what is normalised
  bool skip_time_act = false;
  bool shortcut = false;  // a convolution beside the block where the number of channels stays, too
  Resample resample = Resample::None;
  bool fir = false;  // resampled by the filter of fir_resample.h instead
};

// norm, SiLU, conv, twice, beside a shortcut; a time embedding [B, temb_channels] is added in the middle. One that
// resamples does so behind the first SiLU, and to what goes beside.
struct ResnetBlock2D : nn::Module {
  nn::GroupNorm norm1;
  nn::Conv2d conv1;
  std::optional<nn::Linear> time_emb_proj;
  nn::GroupNorm norm2;
  nn::Dropout dropout;
  nn::Conv2d conv2;
  std::optional<nn::Conv2d> conv_shortcut;  // where the number of channels changes, or it was asked for
  double output_scale_factor;
  bool scale_shift, skip_time_act;
  Resample resample;
  bool fir;
  SF_MODULE(ResnetBlock2D, norm1, conv1, time_emb_proj, norm2, dropout, conv2, conv_shortcut)

  ResnetBlock2D(int64_t in_channels, int64_t out_channels, const ResnetBlock2DOptions& options);
  // By value: a caller that moves its picture in has it freed as soon as it has been read.
  // temb[B, temb_channels], or one row for all pictures.
  Tensor forward(Tensor hidden_states, const Tensor& temb = {}) const;
  // forward(cat({hidden_states, skip}, 1), temb) without a tensor of both, on CUDA and off the tape:
  // where reads_apart says so.
  Tensor with_skip(const Tensor& hidden_states, const Tensor& skip, const Tensor& temb = {}) const;
  bool reads_apart(const Tensor& hidden_states, const Tensor& skip) const;
  bool takes_shifts() const;  // whether TimeShifts may stand in for its time projection

 private:
  Tensor resampled(const Tensor& x) const;
  Tensor time_of(const TimeShifts* shifts, const Tensor& temb, int64_t batch) const;
  Tensor second_half(const Tensor& hidden_states, Tensor shortcut, const Tensor& time) const;
};

// silu(norm(x)) and conv(silu(norm(x))) + residual, in one where neither hooks nor Python look at the parts.
Tensor norm_silu(const nn::GroupNorm& norm, const Tensor& x);
Tensor norm_silu_conv(const nn::GroupNorm& norm, const nn::Conv2d& conv, const Tensor& x, const Tensor& residual = {});

// Halves the size by a convolution of stride 2. padding 0 pads one row and column at the end only, as autoencoders do,
// by padding_mode (a convolution's, whose own then has nothing to pad).
struct Downsample2D : nn::Module {
  nn::Conv2d conv;
  int64_t padding;
  std::string padding_mode = "zeros";
  SF_MODULE(Downsample2D, conv)
  Downsample2D(int64_t channels, int64_t out_channels, int64_t padding = 1);
  Tensor forward(const Tensor& hidden_states) const;
};

// Doubles the size (or makes it output_size [H, W]) by repeating pixels, then a convolution.
struct Upsample2D : nn::Module {
  nn::Conv2d conv;
  SF_MODULE(Upsample2D, conv)
  Upsample2D(int64_t channels, int64_t out_channels);
  Tensor forward(const Tensor& hidden_states) const { return resize(hidden_states, {}); }
  Tensor resize(const Tensor& hidden_states, const std::optional<Shape>& output_size) const;
};

}  // namespace sf::models
