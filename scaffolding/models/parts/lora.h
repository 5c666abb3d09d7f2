// LoraPath: y + scale * up(down(x)) beside a linear layer or a 2-D convolution (Hu et al. 2021; of convolutions,
// LyCORIS' LoCon). One stands for all adapters of a layer that are on: their ranks lie behind each other. Parts read
// its tensors where they add the side product within a product's own pass.
//
// On a CPU it reads the memory of what it was made of. On a GPU it is a slot: memory of its own, with the scales within
// `up`, so that CUDA graphs that read it go on when fill() puts other adapters there.
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
  bool trained = false;  // down and up are parameters, read as they are (trained_lora.h)
  double dropout = 0;    // of a trained one's input
  int64_t rank() const { return down.size(0); }
};
int64_t rank_of(const std::vector<LoraTerm>& terms);

class LoraPath final : public nn::Adapter {
 public:
  // Of terms beside a Linear or what stands in for one, or a Conv2d of one group. ValueError for terms of other shapes
  // than the layer's.
  LoraPath(const nn::Module& layer, const std::vector<LoraTerm>& terms, DType dtype, Device device);
  // A slot for ranks of so many in all, which adds nothing.
  LoraPath(const nn::Module& layer, int64_t rank, DType dtype, Device device);

  // The terms as paths read them: without mid and row, in this dtype, on this device. ValueError as above.
  static LoraTerm ready(const nn::Module& layer, const LoraTerm& term, DType dtype, Device device);
  // Whether paths on this device are slots.
  static bool are_slots(Device device) { return device.is_cuda(); }
  // Whether a layer may have a path.
  static bool goes_beside(const nn::Module& layer);

  // Writes these into a slot's memory, from where it is read next. No more than rank() of them; none: nothing is added.
  void fill(const std::vector<LoraTerm>& ready_terms);
  int64_t rank() const { return down.size(0); }
  const nn::Module& layer() const { return layer_; }

  Tensor apply(const Tensor& input, const std::function<Tensor()>& bare) const override;
  void each_tensor(const std::function<void(const Tensor&)>& see) const override;
  Tensor side(const Tensor& input) const;                           // scale * up(down(input))
  Tensor beside(const Tensor& output, const Tensor& input) const;   // output + side(input)
  void side_into(const Tensor& output, const Tensor& input) const;  // a linear layer's, [M, N] of [M, K]; off the tape

  Tensor down;  // of all terms: [R, K], or [R, C, kh, kw]
  Tensor up;    // [N, R], or [N, R, 1, 1]; of several terms, and in a slot, it has their scales
  double scale = 1;

 private:
  Tensor within(const Tensor& input) const;  // scale * down(input)

  const nn::Module& layer_;
  const nn::Conv2d* conv_ = nullptr;  // whose strides and padding the first convolution has
  Tensor scale_;                      // the same in the layer's memory, so that what keeps results sees it change
  int64_t filled_ = 0;                // ranks of a slot that are not 0
};

}  // namespace sf::models
