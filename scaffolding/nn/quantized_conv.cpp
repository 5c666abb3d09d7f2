#include "scaffolding/nn/quantized_conv.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/nn/format.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"

namespace sf::nn {

Conv2dInt8::Conv2dInt8(const Conv2d& like, bool quantises_input, const Tensor& dense)
    : Conv2d(like), dynamic(quantises_input) {
  SF_CHECK(groups == 1, "Conv2dInt8: groups must be 1, got ", groups);
  const Tensor& given = like.weight;
  const Device place = (dense ? dense : given).device();
  const Shape shape{out_channels, in_channels, kernel_size[0], kernel_size[1]};
  if (dense) {
    SF_CHECK(dense.shape() == shape, "Conv2dInt8: weight must have shape ", shape, ", got ", dense.shape());
    auto [numbers, most] = quantize_conv_int8(dense);
    codes = Buffer(numbers), SCB = Buffer(most);
  } else {
    codes = Buffer(zeros({out_channels, kernel_size[0], kernel_size[1], in_channels}, kInt8, place));
    SCB = Buffer(zeros({out_channels}, kFloat32, place));
  }
  weight = empty(shape, given.dtype(), Device(Device::Meta));
}

void Conv2dInt8::visit(Visitor& v) {
  v.buffer("weight", codes, true);
  v.buffer("SCB", SCB, true);
  v.parameter("bias", bias);
}

Tensor Conv2dInt8::dense_weight(DType dtype) const { return dequantize_conv_int8(codes, SCB, dtype); }

Tensor Conv2dInt8::forward(const Tensor& input) const {
  check_defined("Conv2dInt8", "input", input);
  check_floating("Conv2dInt8", "input", input);
  if (!dynamic || padding.same || !pads_with_zeros()) return convolve(input, dense_weight(input.dtype()), bias);
  return conv2d_int8(input, codes, SCB, bias, stride, padding.amounts, dilation);
}

std::string Conv2dInt8::extra_repr() const { return ConvNd::extra_repr() + (dynamic ? ", dynamic=True" : ""); }

SF_LAYER(Conv2dInt8,
         "in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True, "
         "padding_mode='zeros', dynamic=False, device=None, dtype=None, _weight=None",
         [](int64_t in_channels, int64_t out_channels, Ints kernel_size, Ints stride, ConvPadding padding,
            Ints dilation, int64_t groups, bool bias, std::string padding_mode, bool dynamic,
            std::optional<Device> device, std::optional<DType> dtype, const Tensor& dense) {
           const Conv2d like(in_channels, out_channels, kernel_size,
                             ConvOptions{stride, padding, dilation, groups, bias, std::move(padding_mode),
                                         TensorOptions{device, dtype}});
           return std::make_unique<Conv2dInt8>(like, dynamic, dense);
         })
    .doc(
        "Conv2d with a frozen weight in int8, a magnitude for each output channel; scaffolding.nn.quantize_ makes it "
        "of a Conv2d.")
    .forward<&Conv2dInt8::forward>("input")
    .field<&Conv2dInt8::dynamic>("dynamic");

}  // namespace sf::nn
