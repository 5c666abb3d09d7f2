// The inverse of maximum pooling.
#pragma once
#include "scaffolding/nn/layer.h"

namespace sf::nn {

struct MaxUnpoolNd : Module {
  int64_t dims;
  Ints kernel_size, stride, padding;
  // stride absent: kernel_size.
  MaxUnpoolNd(const char* name, int64_t dims, const Ints& kernel_size, const std::optional<Ints>& stride,
              const Ints& padding);
  Tensor forward(const Tensor& input, const Tensor& indices, const std::optional<Shape>& output_size = {}) const;
  std::string extra_repr() const override;
};
struct MaxUnpool1d : MaxUnpoolNd {
  SF_MODULE(MaxUnpool1d)
  explicit MaxUnpool1d(const Ints& kernel_size, const std::optional<Ints>& stride = {}, const Ints& padding = 0)
      : MaxUnpoolNd("MaxUnpool1d", 1, kernel_size, stride, padding) {}
};
struct MaxUnpool2d : MaxUnpoolNd {
  SF_MODULE(MaxUnpool2d)
  explicit MaxUnpool2d(const Ints& kernel_size, const std::optional<Ints>& stride = {}, const Ints& padding = 0)
      : MaxUnpoolNd("MaxUnpool2d", 2, kernel_size, stride, padding) {}
};
struct MaxUnpool3d : MaxUnpoolNd {
  SF_MODULE(MaxUnpool3d)
  explicit MaxUnpool3d(const Ints& kernel_size, const std::optional<Ints>& stride = {}, const Ints& padding = 0)
      : MaxUnpoolNd("MaxUnpool3d", 3, kernel_size, stride, padding) {}
};

}  // namespace sf::nn
