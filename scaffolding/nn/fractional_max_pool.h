// Maximum pooling over windows at drawn distances.
#pragma once
#include "scaffolding/nn/layer.h"

namespace sf::nn {

// One of output_size and output_ratio is given.
struct FractionalMaxPoolNd : Module {
  int64_t dims;
  Ints kernel_size;
  std::optional<Ints> output_size;
  std::optional<Floats> output_ratio;
  bool return_indices;
  Buffer _random_samples;  // [N, C, dims] in [0, 1), or absent: drawn at every call
  FractionalMaxPoolNd(const char* name, int64_t dims, const Ints& kernel_size, const std::optional<Ints>& output_size,
                      const std::optional<Floats>& output_ratio, bool return_indices, const Tensor& random_samples);
  std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& input) const;
  Tensor forward(const Tensor& input) const { return std::get<0>(forward_with_indices(input)); }
  Value forward_value(const Tensor& input) const;  // either, by return_indices
};
struct FractionalMaxPool2d : FractionalMaxPoolNd {
  SF_MODULE(FractionalMaxPool2d, _random_samples)
  explicit FractionalMaxPool2d(const Ints& kernel_size, const std::optional<Ints>& output_size = {},
                               const std::optional<Floats>& output_ratio = {}, bool return_indices = false,
                               const Tensor& random_samples = {})
      : FractionalMaxPoolNd("FractionalMaxPool2d", 2, kernel_size, output_size, output_ratio, return_indices,
                            random_samples) {}
};
struct FractionalMaxPool3d : FractionalMaxPoolNd {
  SF_MODULE(FractionalMaxPool3d, _random_samples)
  explicit FractionalMaxPool3d(const Ints& kernel_size, const std::optional<Ints>& output_size = {},
                               const std::optional<Floats>& output_ratio = {}, bool return_indices = false,
                               const Tensor& random_samples = {})
      : FractionalMaxPoolNd("FractionalMaxPool3d", 3, kernel_size, output_size, output_ratio, return_indices,
                            random_samples) {}
};

}  // namespace sf::nn
