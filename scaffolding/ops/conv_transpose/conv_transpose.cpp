#include "scaffolding/ops/conv_transpose/conv_transpose.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/conv/conv.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf {

static Tensor conv_transpose(const char* op, int64_t dims, const Tensor& input, const Tensor& weight,
                             const Tensor& bias, const Shape& stride, const Shape& padding, const Shape& output_padding,
                             int64_t groups, const Shape& dilation) {
  check_conv_operands(op, input, weight, dims);
  if (input.ndim() == dims + 1)
    return conv_transpose(op, dims, input.unsqueeze(0), weight, bias, stride, padding, output_padding, groups, dilation)
        .squeeze(0);
  ConvShape s;
  int64_t extra[3];
  spread(op, "stride", stride, dims, 1, s.stride);
  spread(op, "dilation", dilation, dims, 1, s.dilation);
  spread(op, "padding", padding, dims, 0, s.padding);
  spread(op, "output_padding", output_padding, dims, 0, extra);
  s.groups = groups;
  SF_CHECK(groups > 0 && weight.size(0) % groups == 0, op,
           ": groups must divide the input channels, got groups=", groups, " for weight ", weight.shape());
  SF_CHECK(input.size(1) == weight.size(0), op, ": weight ", weight.shape(), " wants ", weight.size(0),
           " input channels, got input ", input.shape());
  int64_t channels = weight.size(1) * groups;
  check_shape(op, "bias", bias, {channels});
  Shape out{input.size(0), channels};
  for (int64_t i = 0; i < dims; ++i) {
    SF_CHECK(extra[i] < std::max(s.stride[i], s.dilation[i]), op,
             ": output_padding must be smaller than stride or dilation, got ", output_padding);
    int64_t n = (input.shape()[i + 2] - 1) * s.stride[i] - 2 * s.padding[i] +
                s.dilation[i] * (weight.shape()[i + 2] - 1) + extra[i] + 1;
    SF_CHECK(n > 0, op, ": input ", input.shape(), " and padding ", padding, " leave no output");
    out.push_back(n);
  }
  Tensor y = conv_input_gradient(input, weight, out, s);
  if (!bias) return y;
  Shape broadcast = Shape::filled(dims + 1, 1);
  broadcast[0] = channels;
  return y + bias.reshape(broadcast);
}

Tensor conv_transpose1d(const Tensor& input, const Tensor& weight, const Tensor& bias, const Shape& stride,
                        const Shape& padding, const Shape& output_padding, int64_t groups, const Shape& dilation) {
  SF_AUTOCAST(conv_transpose1d, input, weight, bias, stride, padding, output_padding, groups, dilation);
  return conv_transpose("conv_transpose1d", 1, input, weight, bias, stride, padding, output_padding, groups, dilation);
}
Tensor conv_transpose2d(const Tensor& input, const Tensor& weight, const Tensor& bias, const Shape& stride,
                        const Shape& padding, const Shape& output_padding, int64_t groups, const Shape& dilation) {
  SF_AUTOCAST(conv_transpose2d, input, weight, bias, stride, padding, output_padding, groups, dilation);
  return conv_transpose("conv_transpose2d", 2, input, weight, bias, stride, padding, output_padding, groups, dilation);
}
Tensor conv_transpose3d(const Tensor& input, const Tensor& weight, const Tensor& bias, const Shape& stride,
                        const Shape& padding, const Shape& output_padding, int64_t groups, const Shape& dilation) {
  SF_AUTOCAST(conv_transpose3d, input, weight, bias, stride, padding, output_padding, groups, dilation);
  return conv_transpose("conv_transpose3d", 3, input, weight, bias, stride, padding, output_padding, groups, dilation);
}

SF_OP(conv_transpose1d, "input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1")
    .doc("Transposed convolution of input[N, C, L] with weight[C, O / groups, K].")
    .like("torch.nn.functional.conv_transpose1d")
    .kernels(conv_backward_data);
SF_OP(conv_transpose2d, "input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1")
    .doc("Transposed convolution of input[N, C, H, W] with weight[C, O / groups, KH, KW].")
    .like("torch.nn.functional.conv_transpose2d")
    .kernels(conv_backward_data);
SF_OP(conv_transpose3d, "input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1")
    .doc("Transposed convolution of input[N, C, D, H, W] with weight[C, O / groups, KD, KH, KW].")
    .like("torch.nn.functional.conv_transpose3d")
    .kernels(conv_backward_data);

}  // namespace sf
