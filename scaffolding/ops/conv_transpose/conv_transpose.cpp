#include "scaffolding/ops/conv_transpose/conv_transpose.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/conv/conv.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/pad/pad.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

// Of a signal with a stride s each sample of the result sees every s-th tap. So it is the convolution whose channels
// are those of s neighbouring samples, which lie side by side where channels come last: the gradient's kernel
// multiplies by all taps, s times as often. y[N, O, length].
static Tensor by_phases(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t s, int64_t padding,
                        int64_t length) {
  const int64_t in = weight.size(0), out = weight.size(1), taps = (weight.size(2) + s - 1) / s;
  Tensor w = pad(weight, {0, taps * s - weight.size(2)});
  w = flip(w.reshape({in, out, taps, s}), {2}).permute({3, 1, 0, 2}).reshape({s * out, in, taps});
  const Tensor y = to_channels_last(conv1d(to_channels_last(x), w, bias ? repeat(bias, {s}) : bias, {1}, taps - 1));
  const Tensor samples = y.transpose(1, 2).reshape({x.size(0), -1, out}).narrow(1, padding, length).transpose(1, 2);
  return x.is_contiguous() ? contiguous(samples) : to_channels_last(samples);
}

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
  const int64_t last = (input.size(2) + (weight.size(2) + s.stride[0] - 1) / s.stride[0] - 1) * s.stride[0];
  if (dims == 1 && groups == 1 && s.stride[0] > 1 && s.dilation[0] == 1 && input.device().is_cpu() &&
      input.numel() > 0 && s.padding[0] + out[2] <= last && !autograd::any_requires_grad({input, weight, bias}))
    return by_phases(input, weight, bias, s.stride[0], s.padding[0], out[2]);
  // With output_padding beyond the stride the convolution of the result has more samples than the input: zeros.
  const Shape none = Shape::filled(2 * dims, 0);
  Shape beyond = none;
  for (int64_t i = 0; i < dims; ++i) beyond[2 * (dims - 1 - i) + 1] = extra[i] / s.stride[i];
  Tensor y = conv_input_gradient(beyond == none ? input : pad(input, beyond), weight, out, s);
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
