// Pooling, resizing and padding layers: no parameters, only sizes, kept as they were given.
#pragma once
#include "scaffolding/nn/layer.h"

namespace sf::nn {

struct AvgPoolNd : Module {
  int64_t dims;
  Ints kernel_size, stride, padding;
  bool ceil_mode, count_include_pad;
  std::optional<int64_t> divisor_override;
  // stride absent: kernel_size.
  AvgPoolNd(const char* name, int64_t dims, const Ints& kernel_size, const std::optional<Ints>& stride,
            const Ints& padding, bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor_override);
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};
struct AvgPool1d : AvgPoolNd {
  SF_MODULE(AvgPool1d)
  explicit AvgPool1d(const Ints& kernel_size, const std::optional<Ints>& stride = {}, const Ints& padding = 0,
                     bool ceil_mode = false, bool count_include_pad = true);
};
struct AvgPool2d : AvgPoolNd {
  SF_MODULE(AvgPool2d)
  explicit AvgPool2d(const Ints& kernel_size, const std::optional<Ints>& stride = {}, const Ints& padding = 0,
                     bool ceil_mode = false, bool count_include_pad = true,
                     std::optional<int64_t> divisor_override = {})
      : AvgPoolNd("AvgPool2d", 2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) {}
};
struct AvgPool3d : AvgPoolNd {
  SF_MODULE(AvgPool3d)
  explicit AvgPool3d(const Ints& kernel_size, const std::optional<Ints>& stride = {}, const Ints& padding = 0,
                     bool ceil_mode = false, bool count_include_pad = true,
                     std::optional<int64_t> divisor_override = {})
      : AvgPoolNd("AvgPool3d", 3, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) {}
};

struct MaxPoolNd : Module {
  int64_t dims;
  Ints kernel_size, stride, padding, dilation;
  bool return_indices, ceil_mode;
  MaxPoolNd(const char* name, int64_t dims, const Ints& kernel_size, const std::optional<Ints>& stride,
            const Ints& padding, const Ints& dilation, bool return_indices, bool ceil_mode);
  Tensor forward(const Tensor& input) const;
  std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& input) const;
  Value forward_value(const Tensor& input) const;  // either, by return_indices
  std::string extra_repr() const override;
};
struct MaxPool1d : MaxPoolNd {
  SF_MODULE(MaxPool1d)
  explicit MaxPool1d(const Ints& kernel_size, const std::optional<Ints>& stride = {}, const Ints& padding = 0,
                     const Ints& dilation = 1, bool return_indices = false, bool ceil_mode = false)
      : MaxPoolNd("MaxPool1d", 1, kernel_size, stride, padding, dilation, return_indices, ceil_mode) {}
};
struct MaxPool2d : MaxPoolNd {
  SF_MODULE(MaxPool2d)
  explicit MaxPool2d(const Ints& kernel_size, const std::optional<Ints>& stride = {}, const Ints& padding = 0,
                     const Ints& dilation = 1, bool return_indices = false, bool ceil_mode = false)
      : MaxPoolNd("MaxPool2d", 2, kernel_size, stride, padding, dilation, return_indices, ceil_mode) {}
};
struct MaxPool3d : MaxPoolNd {
  SF_MODULE(MaxPool3d)
  explicit MaxPool3d(const Ints& kernel_size, const std::optional<Ints>& stride = {}, const Ints& padding = 0,
                     const Ints& dilation = 1, bool return_indices = false, bool ceil_mode = false)
      : MaxPoolNd("MaxPool3d", 3, kernel_size, stride, padding, dilation, return_indices, ceil_mode) {}
};

// output_size -1: as many entries as the input has.
struct AdaptivePoolNd : Module {
  int64_t dims;
  Ints output_size;
  bool return_indices;
  AdaptivePoolNd(const char* name, int64_t dims, const Ints& output_size, bool return_indices = false);
  std::string extra_repr() const override;
};
struct AdaptiveAvgPoolNd : AdaptivePoolNd {
  using AdaptivePoolNd::AdaptivePoolNd;
  Tensor forward(const Tensor& input) const;
};
struct AdaptiveAvgPool1d : AdaptiveAvgPoolNd {
  SF_MODULE(AdaptiveAvgPool1d)
  explicit AdaptiveAvgPool1d(const Ints& output_size) : AdaptiveAvgPoolNd("AdaptiveAvgPool1d", 1, output_size) {}
};
struct AdaptiveAvgPool2d : AdaptiveAvgPoolNd {
  SF_MODULE(AdaptiveAvgPool2d)
  explicit AdaptiveAvgPool2d(const Ints& output_size) : AdaptiveAvgPoolNd("AdaptiveAvgPool2d", 2, output_size) {}
};
struct AdaptiveAvgPool3d : AdaptiveAvgPoolNd {
  SF_MODULE(AdaptiveAvgPool3d)
  explicit AdaptiveAvgPool3d(const Ints& output_size) : AdaptiveAvgPoolNd("AdaptiveAvgPool3d", 3, output_size) {}
};
struct AdaptiveMaxPoolNd : AdaptivePoolNd {
  using AdaptivePoolNd::AdaptivePoolNd;
  Tensor forward(const Tensor& input) const;
  std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& input) const;
  Value forward_value(const Tensor& input) const;
};
struct AdaptiveMaxPool1d : AdaptiveMaxPoolNd {
  SF_MODULE(AdaptiveMaxPool1d)
  explicit AdaptiveMaxPool1d(const Ints& output_size, bool return_indices = false)
      : AdaptiveMaxPoolNd("AdaptiveMaxPool1d", 1, output_size, return_indices) {}
};
struct AdaptiveMaxPool2d : AdaptiveMaxPoolNd {
  SF_MODULE(AdaptiveMaxPool2d)
  explicit AdaptiveMaxPool2d(const Ints& output_size, bool return_indices = false)
      : AdaptiveMaxPoolNd("AdaptiveMaxPool2d", 2, output_size, return_indices) {}
};
struct AdaptiveMaxPool3d : AdaptiveMaxPoolNd {
  SF_MODULE(AdaptiveMaxPool3d)
  explicit AdaptiveMaxPool3d(const Ints& output_size, bool return_indices = false)
      : AdaptiveMaxPoolNd("AdaptiveMaxPool3d", 3, output_size, return_indices) {}
};

}  // namespace sf::nn
