#include "scaffolding/nn/conv.h"

#include <cmath>

#include "scaffolding/nn/format.h"
#include "scaffolding/nn/init.h"
#include "scaffolding/ops/conv_transpose/conv_transpose.h"
#include "scaffolding/ops/pad/pad.h"

namespace sf::nn {

namespace {

void check_channels(const char* name, int64_t in, int64_t out, int64_t groups) {
  SF_CHECK(groups > 0, name, ": groups must be a positive integer, got ", groups);
  SF_CHECK(in > 0 && out > 0, name, ": in_channels and out_channels must be positive, got ", in, " and ", out);
  SF_CHECK(in % groups == 0, name, ": in_channels must be divisible by groups, got ", in, " and groups=", groups);
  SF_CHECK(out % groups == 0, name, ": out_channels must be divisible by groups, got ", out, " and groups=", groups);
}

Tensor make_weight(int64_t first, int64_t second, const Shape& kernel, const TensorOptions& o) {
  Shape size{first, second};
  for (int64_t k : kernel) size.push_back(k);
  return parameter(empty(size, o.dtype, o.device));
}

void reset(Tensor& weight, Tensor& bias) {
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (!bias) return;
  int64_t fan_in = init::calculate_fan_in_and_fan_out(weight).in;
  if (fan_in == 0) return;
  double bound = 1 / std::sqrt(double(fan_in));
  init::uniform_(bias, -bound, bound);
}

// Of a 2-D convolution's padding_mode, the one side that it goes around.
bool is_circular_along_one(const std::string& mode) { return mode == "circular_x" || mode == "circular_y"; }

void check_padding_mode(const char* name, const std::string& mode, int64_t dims) {
  const bool known = mode == "zeros" || mode == "reflect" || mode == "replicate" || mode == "circular";
  SF_CHECK(known || (dims == 2 && is_circular_along_one(mode)), name,
           ": padding_mode must be one of zeros, reflect, replicate, circular",
           dims == 2 ? ", circular_x, circular_y" : "", ", but got padding_mode='", mode, "'");
}

bool all_are(const Shape& s, int64_t value) {
  return std::all_of(s.begin(), s.end(), [&](int64_t v) { return v == value; });
}

}  // namespace

ConvNd::ConvNd(const char* name, int64_t dims, int64_t in, int64_t out, const Ints& kernel, const ConvOptions& o)
    : in_channels(in), out_channels(out), padding(o.padding), groups(o.groups), padding_mode(o.padding_mode) {
  check_channels(name, in, out, groups);
  kernel_size = kernel.spread(name, "kernel_size", dims, 1);
  stride = o.stride.spread(name, "stride", dims, 1);
  dilation = o.dilation.spread(name, "dilation", dims, 1);
  if (!padding.same) {
    Ints amounts(padding.amounts);
    amounts.single = padding.amounts.size() == 1;
    padding.amounts = amounts.spread(name, "padding", dims, 0);
  }
  SF_CHECK(!padding.same || all_are(stride, 1), name,
           ": padding='same' is not supported for strided convolutions, got stride ", stride);
  check_padding_mode(name, padding_mode, dims);
  weight = make_weight(out, in / groups, kernel_size, o.tensor);
  if (o.bias) bias = parameter(empty({out}, o.tensor.dtype, o.tensor.device));
  reset_parameters();
}

void ConvNd::reset_parameters() { reset(weight, bias); }

Shape ConvNd::pads() const {
  Shape out;
  for (int64_t d = kernel_size.size() - 1; d >= 0; --d) {
    int64_t total = dilation[d] * (kernel_size[d] - 1);
    out.push_back(padding.same ? total / 2 : padding.amounts[d]);
    out.push_back(padding.same ? total - total / 2 : padding.amounts[d]);
  }
  return out;
}

Tensor padded_by_mode(const Tensor& input, const Shape& pads, const std::string& mode) {
  if (mode == "zeros") return pad(input, pads);
  if (!is_circular_along_one(mode)) return pad(input, pads, mode);
  Shape around = pads, zeros = pads;
  for (int64_t i = 0; i < pads.size(); ++i) ((i < 2) == (mode == "circular_x") ? zeros : around)[i] = 0;
  return pad(pad(input, around, "circular"), zeros);
}

bool ConvNd::pads_with_zeros() const { return padding_mode == "zeros" || all_are(pads(), 0); }

Tensor ConvNd::forward(const Tensor& input) const { return convolve(input, weight, bias); }

Tensor ConvNd::convolve(const Tensor& input, const Tensor& w, const Tensor& b) const {
  auto* conv = kernel_size.size() == 1 ? conv1d : kernel_size.size() == 2 ? conv2d : conv3d;
  if (padding_mode != "zeros") check_padding_mode(type(), padding_mode, kernel_size.size());
  if (pads_with_zeros()) return conv(input, w, b, stride, padding, dilation, groups);
  return conv(padded_by_mode(input, pads(), padding_mode), w, b, stride, 0, dilation, groups);
}

std::string ConvNd::extra_repr() const {
  std::string s =
      text(in_channels) + ", " + text(out_channels) + ", kernel_size=" + text(kernel_size) + ", stride=" + text(stride);
  if (padding.same) s += ", padding=same";
  else if (!all_are(padding.amounts, 0)) s += ", padding=" + text(padding.amounts);
  if (!all_are(dilation, 1)) s += ", dilation=" + text(dilation);
  if (groups != 1) s += ", groups=" + text(groups);
  if (!bias) s += ", bias=False";
  if (padding_mode != "zeros") s += ", padding_mode=" + padding_mode;
  return s;
}

ConvTransposeNd::ConvTransposeNd(const char* name, int64_t dims, int64_t in, int64_t out, const Ints& kernel,
                                 const ConvTransposeOptions& o)
    : in_channels(in), out_channels(out), groups(o.groups) {
  check_channels(name, in, out, groups);
  kernel_size = kernel.spread(name, "kernel_size", dims, 1);
  stride = o.stride.spread(name, "stride", dims, 1);
  padding = o.padding.spread(name, "padding", dims, 0);
  output_padding = o.output_padding.spread(name, "output_padding", dims, 0);
  dilation = o.dilation.spread(name, "dilation", dims, 1);
  weight = make_weight(in, out / groups, kernel_size, o.tensor);
  if (o.bias) bias = parameter(empty({out}, o.tensor.dtype, o.tensor.device));
  reset_parameters();
}

void ConvTransposeNd::reset_parameters() { reset(weight, bias); }

Shape ConvTransposeNd::output_padding_for(const Tensor& input, Shape output_size) const {
  int64_t dims = kernel_size.size(), first = input.ndim() - dims;
  if (output_size.size() == dims + first)
    for (int64_t i = 0; i < first; ++i) output_size.erase(0);
  SF_CHECK(output_size.size() == dims, type(), ": output_size must have ", dims, " or ", dims + first,
           " elements, got ", output_size);
  Shape extra;
  for (int64_t d = 0; d < dims; ++d) {
    int64_t least = (input.size(first + d) - 1) * stride[d] - 2 * padding[d] + dilation[d] * (kernel_size[d] - 1) + 1;
    SF_CHECK(output_size[d] >= least && output_size[d] < least + stride[d], type(), ": requested an output size of ",
             output_size, ", but dimension ", d, " allows ", least, " to ", least + stride[d] - 1, " for an input of ",
             input.shape());
    extra.push_back(output_size[d] - least);
  }
  return extra;
}

Tensor ConvTransposeNd::forward(const Tensor& input, const std::optional<Shape>& output_size) const {
  int64_t dims = kernel_size.size();
  SF_CHECK(input.ndim() == dims + 1 || input.ndim() == dims + 2, type(), ": expected ", dims + 1, "D (unbatched) or ",
           dims + 2, "D (batched) input, but got input of size ", input.shape());
  auto* conv = dims == 1 ? conv_transpose1d : dims == 2 ? conv_transpose2d : conv_transpose3d;
  return conv(input, weight, bias, stride, padding,
              output_size ? output_padding_for(input, *output_size) : output_padding, groups, dilation);
}

std::string ConvTransposeNd::extra_repr() const {
  std::string s =
      text(in_channels) + ", " + text(out_channels) + ", kernel_size=" + text(kernel_size) + ", stride=" + text(stride);
  if (!all_are(padding, 0)) s += ", padding=" + text(padding);
  if (!all_are(dilation, 1)) s += ", dilation=" + text(dilation);
  if (!all_are(output_padding, 0)) s += ", output_padding=" + text(output_padding);
  if (groups != 1) s += ", groups=" + text(groups);
  if (!bias) s += ", bias=False";
  return s;
}

// ---- registration

template <class C>
static std::unique_ptr<C> make_conv(int64_t in_channels, int64_t out_channels, Ints kernel_size, Ints stride,
                                    ConvPadding padding, Ints dilation, int64_t groups, bool bias,
                                    std::string padding_mode, std::optional<Device> device,
                                    std::optional<DType> dtype) {
  return std::make_unique<C>(
      in_channels, out_channels, kernel_size,
      ConvOptions{stride, padding, dilation, groups, bias, std::move(padding_mode), TensorOptions{device, dtype}});
}
template <class C>
static std::unique_ptr<C> make_transposed(int64_t in_channels, int64_t out_channels, Ints kernel_size, Ints stride,
                                          Ints padding, Ints output_padding, int64_t groups, bool bias, Ints dilation,
                                          std::string padding_mode, std::optional<Device> device,
                                          std::optional<DType> dtype) {
  SF_CHECK(padding_mode == "zeros", "ConvTranspose: Only \"zeros\" padding mode is supported, got '", padding_mode,
           "'");
  return std::make_unique<C>(
      in_channels, out_channels, kernel_size,
      ConvTransposeOptions{stride, padding, output_padding, groups, bias, dilation, TensorOptions{device, dtype}});
}

template <class C> static LayerEntry& conv_fields(LayerEntry& e) {
  return e.forward<&ConvNd::forward>("input")
      .field<&ConvNd::in_channels>("in_channels")
      .template field<&ConvNd::out_channels>("out_channels")
      .template field<&ConvNd::kernel_size>("kernel_size")
      .template field<&ConvNd::stride>("stride")
      .template field<&ConvNd::padding>("padding")
      .template field<&ConvNd::dilation>("dilation")
      .template field<&ConvNd::groups>("groups")
      .template field<&ConvNd::padding_mode>("padding_mode");
}
template <class C> static LayerEntry& transposed_fields(LayerEntry& e) {
  return e.forward<&ConvTransposeNd::forward>("input, output_size=None")
      .field<&ConvTransposeNd::in_channels>("in_channels")
      .template field<&ConvTransposeNd::out_channels>("out_channels")
      .template field<&ConvTransposeNd::kernel_size>("kernel_size")
      .template field<&ConvTransposeNd::stride>("stride")
      .template field<&ConvTransposeNd::padding>("padding")
      .template field<&ConvTransposeNd::output_padding>("output_padding")
      .template field<&ConvTransposeNd::dilation>("dilation")
      .template field<&ConvTransposeNd::groups>("groups");
}

#define SF_CONV(Type, shape)                                                                                \
  SF_LAYER(Type,                                                                                            \
           "in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True, " \
           "padding_mode='zeros', device=None, dtype=None",                                                 \
           &make_conv<Type>)                                                                                \
      .doc("Convolution of input[N, in_channels, " shape                                                    \
           "] with weight[out_channels, in_channels / groups, kernel...].")                                 \
      .with(conv_fields<Type>)
#define SF_CONV_TRANSPOSE(Type, shape)                                                                            \
  SF_LAYER(Type,                                                                                                  \
           "in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=True, " \
           "dilation=1, padding_mode='zeros', "                                                                   \
           "device=None, dtype=None",                                                                             \
           &make_transposed<Type>)                                                                                \
      .doc("Transposed convolution of input[N, in_channels, " shape                                               \
           "] with weight[in_channels, out_channels / groups, kernel...].")                                       \
      .with(transposed_fields<Type>)
SF_CONV(Conv1d, "L");
SF_CONV(Conv2d, "H, W");
SF_CONV(Conv3d, "D, H, W");
SF_CONV_TRANSPOSE(ConvTranspose1d, "L");
SF_CONV_TRANSPOSE(ConvTranspose2d, "H, W");
SF_CONV_TRANSPOSE(ConvTranspose3d, "D, H, W");

}  // namespace sf::nn
