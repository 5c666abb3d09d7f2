// Pooling layers that take norms of windows.
#pragma once
#include "scaffolding/nn/layer.h"

namespace sf::nn {

struct LPPoolNd : Module {
  int64_t dims;
  Number norm_type;
  Ints kernel_size;
  std::optional<Ints> stride;  // absent: kernel_size
  bool ceil_mode;
  LPPoolNd(const char* name, int64_t dims, Number norm_type, const Ints& kernel_size, const std::optional<Ints>& stride,
           bool ceil_mode);
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};
struct LPPool1d : LPPoolNd {
  SF_MODULE(LPPool1d)
  LPPool1d(Number norm_type, const Ints& kernel_size, const std::optional<Ints>& stride = {}, bool ceil_mode = false)
      : LPPoolNd("LPPool1d", 1, norm_type, kernel_size, stride, ceil_mode) {}
};
struct LPPool2d : LPPoolNd {
  SF_MODULE(LPPool2d)
  LPPool2d(Number norm_type, const Ints& kernel_size, const std::optional<Ints>& stride = {}, bool ceil_mode = false)
      : LPPoolNd("LPPool2d", 2, norm_type, kernel_size, stride, ceil_mode) {}
};
struct LPPool3d : LPPoolNd {
  SF_MODULE(LPPool3d)
  LPPool3d(Number norm_type, const Ints& kernel_size, const std::optional<Ints>& stride = {}, bool ceil_mode = false)
      : LPPoolNd("LPPool3d", 3, norm_type, kernel_size, stride, ceil_mode) {}
};

}  // namespace sf::nn
