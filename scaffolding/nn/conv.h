// Convolutions and transposed convolutions over one to three dimensions.
#pragma once
#include "scaffolding/nn/layer.h"
#include "scaffolding/ops/conv/conv.h"

namespace sf::nn {

struct ConvOptions {
  Ints stride = 1;
  ConvPadding padding = 0;  // numbers, "same" or "valid"
  Ints dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  // zeros, reflect, replicate or circular; of 2-D ones also circular_x and circular_y, with zeros along the other side
  std::string padding_mode = "zeros";
  TensorOptions tensor = {};
};

// What Conv1d to Conv3d share. Weight and bias start uniform in +-1 / sqrt(in_channels / groups * kernel elements).
struct ConvNd : Module {
  int64_t in_channels, out_channels;
  Shape kernel_size, stride;
  ConvPadding padding;  // amounts per dimension, or "same"
  Shape dilation;
  int64_t groups;
  std::string padding_mode;
  Tensor weight;  // [out_channels, in_channels / groups, kernel...]
  Tensor bias;    // [out_channels], or absent

  ConvNd(const char* name, int64_t dims, int64_t in_channels, int64_t out_channels, const Ints& kernel_size,
         const ConvOptions& options);
  Tensor forward(const Tensor& input) const;  // [N, in_channels, ...] or [in_channels, ...]
  // The same with another weight and bias: of what stands beside the layer.
  Tensor convolve(const Tensor& input, const Tensor& weight, const Tensor& bias = {}) const;
  // Or there is nothing to pad. padding_mode may be set at any time: kernels that add zeros themselves ask first.
  bool pads_with_zeros() const;
  void reset_parameters();
  std::string extra_repr() const override;

 private:
  Shape pads() const;  // what padding_mode adds, from the last dimension forwards
};
// input with `pads`, from the last dimension forwards, of the kind that padding_mode names. ValueError for another.
Tensor padded_by_mode(const Tensor& input, const Shape& pads, const std::string& padding_mode);
struct Conv1d : ConvNd {
  SF_MODULE(Conv1d, weight, bias)
  Conv1d(int64_t in_channels, int64_t out_channels, const Ints& kernel_size, const ConvOptions& o = {})
      : ConvNd("Conv1d", 1, in_channels, out_channels, kernel_size, o) {}
};
struct Conv2d : ConvNd {
  SF_MODULE(Conv2d, weight, bias)
  Conv2d(int64_t in_channels, int64_t out_channels, const Ints& kernel_size, const ConvOptions& o = {})
      : ConvNd("Conv2d", 2, in_channels, out_channels, kernel_size, o) {}
};
struct Conv3d : ConvNd {
  SF_MODULE(Conv3d, weight, bias)
  Conv3d(int64_t in_channels, int64_t out_channels, const Ints& kernel_size, const ConvOptions& o = {})
      : ConvNd("Conv3d", 3, in_channels, out_channels, kernel_size, o) {}
};

struct ConvTransposeOptions {
  Ints stride = 1, padding = 0, output_padding = 0;
  int64_t groups = 1;
  bool bias = true;
  Ints dilation = 1;
  TensorOptions tensor = {};
};

struct ConvTransposeNd : Module {
  int64_t in_channels, out_channels;
  Shape kernel_size, stride, padding, output_padding, dilation;
  int64_t groups;
  Tensor weight;  // [in_channels, out_channels / groups, kernel...]
  Tensor bias;    // [out_channels], or absent

  ConvTransposeNd(const char* name, int64_t dims, int64_t in_channels, int64_t out_channels, const Ints& kernel_size,
                  const ConvTransposeOptions& options);
  // output_size chooses among the sizes that a stride leaves open: spatial sizes, or all of them.
  Tensor forward(const Tensor& input, const std::optional<Shape>& output_size = {}) const;
  void reset_parameters();
  std::string extra_repr() const override;

 private:
  Shape output_padding_for(const Tensor& input, Shape output_size) const;
};
struct ConvTranspose1d : ConvTransposeNd {
  SF_MODULE(ConvTranspose1d, weight, bias)
  ConvTranspose1d(int64_t in_channels, int64_t out_channels, const Ints& kernel_size,
                  const ConvTransposeOptions& o = {})
      : ConvTransposeNd("ConvTranspose1d", 1, in_channels, out_channels, kernel_size, o) {}
};
struct ConvTranspose2d : ConvTransposeNd {
  SF_MODULE(ConvTranspose2d, weight, bias)
  ConvTranspose2d(int64_t in_channels, int64_t out_channels, const Ints& kernel_size,
                  const ConvTransposeOptions& o = {})
      : ConvTransposeNd("ConvTranspose2d", 2, in_channels, out_channels, kernel_size, o) {}
};
struct ConvTranspose3d : ConvTransposeNd {
  SF_MODULE(ConvTranspose3d, weight, bias)
  ConvTranspose3d(int64_t in_channels, int64_t out_channels, const Ints& kernel_size,
                  const ConvTransposeOptions& o = {})
      : ConvTransposeNd("ConvTranspose3d", 3, in_channels, out_channels, kernel_size, o) {}
};

}  // namespace sf::nn
