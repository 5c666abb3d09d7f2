// Conv2d with a frozen weight in int8, a magnitude for each output channel (ops/quantize/conv_int8.h). Gradients go to
// the input and the bias.
#pragma once
#include "scaffolding/nn/conv.h"
#include "scaffolding/nn/stored_weight.h"
#include "scaffolding/ops/quantize/conv_int8.h"

namespace sf::nn {

// dynamic: samples of the input become int8 too, and sums are exact; else, and where what is padded is not zeros, the
// weight is dequantised for each call. A Conv2d to those who ask for its sizes or padding; the base's weight has shape
// and dtype and no memory.
struct Conv2dInt8 : Conv2d, StoredWeight {
  bool dynamic;
  Buffer codes;  // int8 [out_channels, *kernel_size, in_channels]; "weight" in the state dict
  Buffer SCB;    // float32 [out_channels]; as LinearInt8 has it
  const char* type() const override { return "Conv2dInt8"; }
  void visit(Visitor& v) override;
  Value forward_tensors(const Values& args) override { return call_tensors(*this, args); }
  template <class... A> auto operator()(A&&... a) const { return call_module(*this, std::forward<A>(a)...); }

  // ValueError for groups. weight absent: zeros.
  Conv2dInt8(const Conv2d& like, bool dynamic, const Tensor& weight = {});
  Tensor forward(const Tensor& input) const;
  std::string weight_format() const override { return "int8"; }
  Shape dense_shape() const override { return weight.shape(); }
  Tensor dense_weight(DType dtype) const override;
  std::string extra_repr() const override;
};

}  // namespace sf::nn
