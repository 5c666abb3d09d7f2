// LoraPath: y + scale * up(down(x)) beside a linear layer or a 2-D convolution (Hu et al. 2021; of convolutions,
// LyCORIS' LoCon). One stands for all adapters of a layer that are on: their ranks lie behind each other. Immutable;
// parts read its tensors where they add the side product within a product's own pass.
#pragma once
#include "scaffolding/nn/adapter.h"
#include "scaffolding/nn/conv.h"
#include "scaffolding/nn/linear.h"

namespace sf::models {

struct LoraTerm {
  Tensor down;      // [R, K] of a linear layer; [R, C, kh, kw] of a convolution, or [R, C, 1, 1] where there is a mid
  Tensor up;        // [N, R], or [N, R, 1, 1]
  Tensor mid;       // [R, R, kh, kw] of some convolutions, between the two; else absent
  int64_t row = 0;  // of the layer's output, from which up's rows count; the others get nothing
  double scale = 1;
};

class LoraPath final : public nn::Adapter {
 public:
  // Of a Linear or what stands in for one, or a Conv2d of one group. The terms are converted to dtype and go to the
  // device. ValueError for terms of other shapes than the layer's.
  LoraPath(const nn::Module& layer, const std::vector<LoraTerm>& terms, DType dtype, Device device);

  Tensor apply(const Tensor& input, const Tensor& output) const override { return beside(output, input); }
  void each_tensor(const std::function<void(const Tensor&)>& see) const override;
  Tensor side(const Tensor& input) const;                          // scale * up(down(input))
  Tensor beside(const Tensor& output, const Tensor& input) const;  // output + side(input)

  Tensor down;  // of all terms: [R, K], or [R, C, kh, kw]
  Tensor up;    // [N, R], or [N, R, 1, 1]; of several terms it has their scales
  double scale = 1;

 private:
  Tensor within(const Tensor& input) const;  // scale * down(input)

  const nn::Conv2d* conv_ = nullptr;  // whose strides and padding the first convolution has
  Tensor scale_;                      // the same in the layer's memory, so that what keeps results sees it change
};

}  // namespace sf::models
