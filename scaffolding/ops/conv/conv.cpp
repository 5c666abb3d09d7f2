#include "scaffolding/ops/conv/conv.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/conv/conv_residual.h"
#include "scaffolding/ops/conv/narrow_conv.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
using autograd::save;

namespace {

// A tensor the kernels take as it is: contiguous or channels-last; anything else becomes channels-last.
Tensor in_kernel_layout(const Tensor& x) {
  autograd::NoGrad off;
  if (x.is_contiguous() || x.is_contiguous(MemoryFormat::ChannelsLast)) return x;
  return to_channels_last(x);
}

// The result's memory format follows the activation it is made from.
Tensor result_like(const Tensor& x, const Shape& sizes) {
  bool last = x.is_contiguous(MemoryFormat::ChannelsLast) && !x.is_contiguous();
  // One channel or one pixel fits both formats: the strides say which one was meant.
  if (!last && x.is_contiguous(MemoryFormat::ChannelsLast))
    last = x.strides() == channels_last_strides(x.shape()) && x.strides() != contiguous_strides(x.shape());
  return last ? empty_strided(sizes, channels_last_strides(sizes), x.dtype(), x.device())
              : empty(sizes, x.dtype(), x.device());
}

// 0: a weight in training changes at every step, its packed copy is not kept; nor is that of `read`, what a kernel
// reads of it, where that is a copy in memory which others have next.
uint64_t version_of_weight(const Tensor& w, const Tensor& read, bool in_training) {
  if (in_training || read.impl() != w.impl() || !w.device().is_cpu()) return 0;
  w.storage()->packed = true;
  return uint64_t(w.version()) + 1;
}

template <class K, class A> void run(const char* op, const K& table, const Tensor& x, const A& args) {
  auto kernel = table.find(x.device(), args);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", x.dtype(), " on ", x.device());
  kernel(args);
}

Shape output_sizes(const char* op, const Tensor& x, const Tensor& w, const ConvShape& s) {
  Shape out{x.shape()[0], w.shape()[0]};
  for (int64_t i = 2; i < x.ndim(); ++i) {
    int64_t span = s.dilation[i - 2] * (w.shape()[i] - 1) + 1, room = x.shape()[i] + 2 * s.padding[i - 2];
    SF_CHECK(span <= room, op, ": kernel ", w.shape(), " with dilation ", s.dilation[i - 2],
             " does not fit into input ", x.shape(), " with padding ", s.padding[i - 2]);
    out.push_back((room - span) / s.stride[i - 2] + 1);
  }
  return out;
}

Tensor channel_sum(const Tensor& dy) {
  Shape dims{0};
  for (int64_t i = 2; i < dy.ndim(); ++i) dims.push_back(i);
  return dy.sum(dims);
}

}  // namespace

ConvPadding::ConvPadding(const std::string& name) : same(name == "same") {
  SF_CHECK(same || name == "valid", "conv: padding must be numbers, 'same' or 'valid', got '", name, "'");
}

void spread(const char* op, const char* name, const Shape& given, int64_t dims, int64_t least, int64_t (&out)[3]) {
  SF_CHECK(given.size() == 1 || given.size() == dims, op, ": ", name, " must be one number or ", dims, ", got ", given);
  for (int64_t i = 0; i < dims; ++i) {
    out[i] = given[given.size() == 1 ? 0 : i];
    SF_CHECK(out[i] >= least && out[i] < (int64_t(1) << 31), op, ": ", name, " must be at least ", least, ", got ",
             given);
  }
}

void check_conv_operands(const char* op, const Tensor& input, const Tensor& weight, int64_t dims) {
  check_defined(op, "input", input);
  check_defined(op, "weight", weight);
  check_floating(op, "input", input);
  SF_CHECK_AS(TypeError, weight.dtype() == input.dtype(), op, ": input and weight must have one dtype, got ",
              input.dtype(), " and ", weight.dtype());
  check_same_device(op, input, weight);
  SF_CHECK(weight.ndim() == dims + 2, op, ": weight must have ", dims + 2, " dimensions, got ", weight.shape());
  SF_CHECK(input.ndim() == dims + 2 || input.ndim() == dims + 1, op, ": input must have ", dims + 2, " dimensions (or ",
           dims + 1, " without batch), got ", input.shape());
  for (int64_t i = 0; i < weight.ndim(); ++i)
    SF_CHECK(weight.shape()[i] > 0, op, ": weight must not be empty, got ", weight.shape());
}

namespace {

// What a kernel is called with, and its result.
struct Call {
  Tensor x, weight, bias, residual, y;
  ConvForward args(const ConvShape& shape, uint64_t version) const {
    return {x, weight, bias, residual, y, shape, Activation::None, version};
  }
};
// residual may be undefined.
Call call_of(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual,
             const ConvShape& shape) {
  Call c{in_kernel_layout(x), {}, bias, residual ? in_kernel_layout(residual) : residual, {}};
  autograd::NoGrad off;
  c.weight = weight.is_contiguous() || weight.is_contiguous(MemoryFormat::ChannelsLast) ? weight : contiguous(weight);
  if (bias)
    c.bias = contiguous(bias.dtype() == x.dtype() || bias.dtype() == kFloat32 ? bias : to_dtype(bias, x.dtype()));
  c.y = result_like(c.x, output_sizes("conv", x, weight, shape));
  return c;
}

// Not on the tape.
Tensor conv_values(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual,
                   const ConvShape& shape) {
  const Call c = call_of(x, weight, bias, residual, shape);
  const bool in_training = weight.requires_grad() && (autograd::grad_enabled() || cpu::LeanMemory::keeps_few());
  if (c.y.numel() > 0) run("conv", conv_forward, x, c.args(shape, version_of_weight(weight, c.weight, in_training)));
  return c.y;
}

}  // namespace

Tensor conv_plus_residual(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual,
                          const ConvShape& shape) {
  SF_ASSERT(!autograd::any_requires_grad({x, weight, bias, residual}));
  return conv_values(x, weight, bias, residual, shape);
}

Tensor conv_with_narrow_weight(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvShape& shape) {
  SF_ASSERT(!autograd::any_requires_grad({x, weight, bias}));
  const bool narrow = weight.dtype() == kFloat16 || weight.dtype() == kBFloat16;
  if (x.dtype() != kFloat32 || !narrow || !x.device().is_cpu() || x.numel() == 0 || shape.groups != 1 ||
      x.ndim() != weight.ndim() || x.size(1) != weight.size(1) || !weight.is_contiguous())
    return {};
  const Call c = call_of(x, weight, bias, {}, shape);
  const NarrowConvForward args{c.args(shape, 0)};
  auto kernel = narrow_conv_forward.find(x.device(), args);
  if (!kernel) return {};
  kernel(args);
  return c.y;
}

static Tensor weight_gradient_into(Tensor dw, const Tensor& x, const Tensor& dy, const ConvShape& shape);
// In the weight's own memory order, in which it is added to what is there and read by the optimizer. CPU kernels are
// fastest with rows of the kernel.
static Tensor weight_gradient(const Tensor& x, const Tensor& dy, const Tensor& weight, const ConvShape& shape) {
  const bool last = x.device().is_cuda() && weight.is_contiguous(MemoryFormat::ChannelsLast);
  return weight_gradient_into(
      empty_strided(weight.shape(), last ? weight.strides() : contiguous_strides(weight.shape()), x.dtype(),
                    x.device()),
      x, dy, shape);
}

Tensor conv_output(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvShape& shape) {
  Tensor y = conv_values(x, weight, bias, {}, shape);
  return autograd::record(
      "conv", y, {x, weight, bias},
      [x = save(x), w = save(weight), shape, sb = bias ? bias.shape() : Shape{}, nx = x.requires_grad(),
       nw = weight.requires_grad(), nb = bias.requires_grad()](const Tensor& dy) -> Tensors {
        Tensor xt = x.get(), wt = w.get();
        return {nx ? conv_input_gradient(dy, wt, xt.shape(), shape) : Tensor(),
                nw ? weight_gradient(xt, dy, wt, shape) : Tensor(), nb ? channel_sum(dy) : Tensor()};
      });
}

Tensor conv_input_gradient(const Tensor& dy, const Tensor& weight, const Shape& x_sizes, const ConvShape& shape) {
  Tensor g = in_kernel_layout(dy), w;
  {
    autograd::NoGrad off;
    w = weight.is_contiguous() || weight.is_contiguous(MemoryFormat::ChannelsLast) ? weight : contiguous(weight);
  }
  Tensor dx = result_like(g, x_sizes);
  if (dx.numel() > 0) {
    if (g.numel() == 0) dx.zero_();
    else
      run("conv", conv_backward_data, dy,
          ConvBackwardData{g, w, dx, shape, version_of_weight(weight, w, weight.requires_grad())});
  }
  return autograd::record("conv_input_gradient", dx, {dy, weight},
                          [dy = save(dy), w = save(weight), shape, nd = dy.requires_grad(),
                           nw = weight.requires_grad()](const Tensor& ddx) -> Tensors {
                            return {nd ? conv_output(ddx, w.get(), {}, shape) : Tensor(),
                                    nw ? conv_weight_gradient(ddx, dy.get(), w.get().shape(), shape) : Tensor()};
                          });
}

Tensor conv_weight_gradient(const Tensor& x, const Tensor& dy, const Shape& weight_sizes, const ConvShape& shape) {
  return weight_gradient_into(empty(weight_sizes, x.dtype(), x.device()), x, dy, shape);
}

static Tensor weight_gradient_into(Tensor dw, const Tensor& x, const Tensor& dy, const ConvShape& shape) {
  Tensor xs = in_kernel_layout(x), g = in_kernel_layout(dy);
  if (xs.numel() == 0 || g.numel() == 0) dw.zero_();
  else run("conv", conv_backward_weights, x, ConvBackwardWeights{xs, g, dw, {}, shape});
  return autograd::record("conv_weight_gradient", dw, {x, dy},
                          [x = save(x), dy = save(dy), shape, nx = x.requires_grad(),
                           nd = dy.requires_grad()](const Tensor& ddw) -> Tensors {
                            return {nx ? conv_input_gradient(dy.get(), ddw, x.get().shape(), shape) : Tensor(),
                                    nd ? conv_output(x.get(), ddw, {}, shape) : Tensor()};
                          });
}

namespace {

Tensor conv(const char* op, int64_t dims, const Tensor& input, const Tensor& weight, const Tensor& bias,
            const Shape& stride, const ConvPadding& padding, const Shape& dilation, int64_t groups) {
  check_conv_operands(op, input, weight, dims);
  ConvShape s;
  spread(op, "stride", stride, dims, 1, s.stride);
  spread(op, "dilation", dilation, dims, 1, s.dilation);
  s.groups = groups;
  if (input.ndim() == dims + 1)
    return conv(op, dims, input.unsqueeze(0), weight, bias, stride, padding, dilation, groups).squeeze(0);
  SF_CHECK(groups > 0 && input.size(1) % groups == 0 && weight.size(0) % groups == 0, op,
           ": groups must divide the channels, got groups=", groups, " for input ", input.shape(), " and weight ",
           weight.shape());
  SF_CHECK(input.size(1) / groups == weight.size(1), op, ": weight ", weight.shape(), " wants ",
           weight.size(1) * groups, " input channels, got input ", input.shape());
  check_shape(op, "bias", bias, {weight.size(0)});
  Tensor x = input;
  if (padding.same) {
    for (int64_t i = 0; i < dims; ++i) {
      SF_CHECK(s.stride[i] == 1, op, ": padding='same' needs stride 1, got ", stride);
      int64_t total = s.dilation[i] * (weight.shape()[i + 2] - 1);
      s.padding[i] = total / 2;
      if (total % 2 == 0) continue;
      Shape wider = x.shape();  // one more zero at the end
      ++wider[i + 2];
      Tensor padded = zeros(wider, x.dtype(), x.device());
      padded.narrow(i + 2, 0, x.shape()[i + 2]).copy_(x);
      x = padded;
    }
  } else {
    spread(op, "padding", padding.amounts, dims, 0, s.padding);
  }
  return conv_output(x, weight, bias, s);
}

}  // namespace

Tensor conv1d(const Tensor& input, const Tensor& weight, const Tensor& bias, const Shape& stride,
              const ConvPadding& padding, const Shape& dilation, int64_t groups) {
  SF_AUTOCAST(conv1d, input, weight, bias, stride, padding, dilation, groups);
  return conv("conv1d", 1, input, weight, bias, stride, padding, dilation, groups);
}
Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias, const Shape& stride,
              const ConvPadding& padding, const Shape& dilation, int64_t groups) {
  SF_AUTOCAST(conv2d, input, weight, bias, stride, padding, dilation, groups);
  return conv("conv2d", 2, input, weight, bias, stride, padding, dilation, groups);
}
Tensor conv3d(const Tensor& input, const Tensor& weight, const Tensor& bias, const Shape& stride,
              const ConvPadding& padding, const Shape& dilation, int64_t groups) {
  SF_AUTOCAST(conv3d, input, weight, bias, stride, padding, dilation, groups);
  return conv("conv3d", 3, input, weight, bias, stride, padding, dilation, groups);
}

SF_OP(conv1d, "input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1")
    .doc("Convolution of input[N, C, L] with weight[O, C / groups, K].")
    .like("torch.nn.functional.conv1d")
    .kernels(conv_forward, conv_backward_data, conv_backward_weights);
SF_OP(conv2d, "input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1")
    .doc("Convolution of input[N, C, H, W] with weight[O, C / groups, KH, KW].")
    .like("torch.nn.functional.conv2d")
    .kernels(conv_forward, conv_backward_data, conv_backward_weights);
SF_OP(conv3d, "input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1")
    .doc("Convolution of input[N, C, D, H, W] with weight[O, C / groups, KD, KH, KW].")
    .like("torch.nn.functional.conv3d")
    .kernels(conv_forward, conv_backward_data, conv_backward_weights);

}  // namespace sf
