#include "scaffolding/nn/shape.h"

#include "scaffolding/nn/format.h"
#include "scaffolding/ops/interpolate/interpolate.h"
#include "scaffolding/ops/pad/pad.h"
#include "scaffolding/ops/pixel_shuffle/pixel_shuffle.h"
#include "scaffolding/ops/unfold/unfold.h"
#include "scaffolding/ops/view/view.h"

namespace sf::nn {

Tensor Flatten::forward(const Tensor& x) const { return flatten(x, start_dim, end_dim); }
std::string Flatten::extra_repr() const { return "start_dim=" + text(start_dim) + ", end_dim=" + text(end_dim); }

Tensor Unflatten::forward(const Tensor& x) const { return unflatten(x, dim, unflattened_size); }
std::string Unflatten::extra_repr() const {
  return "dim=" + text(dim) + ", unflattened_size=" + text(unflattened_size);
}

PixelShuffle::PixelShuffle(int64_t factor) : upscale_factor(factor) {
  SF_CHECK(factor > 0, "PixelShuffle: upscale_factor must be positive, got ", factor);
}
Tensor PixelShuffle::forward(const Tensor& x) const { return pixel_shuffle(x, upscale_factor); }
std::string PixelShuffle::extra_repr() const { return "upscale_factor=" + text(upscale_factor); }

PixelUnshuffle::PixelUnshuffle(int64_t factor) : downscale_factor(factor) {
  SF_CHECK(factor > 0, "PixelUnshuffle: downscale_factor must be positive, got ", factor);
}
Tensor PixelUnshuffle::forward(const Tensor& x) const { return pixel_unshuffle(x, downscale_factor); }
std::string PixelUnshuffle::extra_repr() const { return "downscale_factor=" + text(downscale_factor); }

ChannelShuffle::ChannelShuffle(int64_t n) : groups(n) {
  SF_CHECK(n > 0, "ChannelShuffle: groups must be positive, got ", n);
}
Tensor ChannelShuffle::forward(const Tensor& x) const { return channel_shuffle(x, groups); }
std::string ChannelShuffle::extra_repr() const { return "groups=" + text(groups); }

Tensor Unfold::forward(const Tensor& x) const {
  return unfold(x, kernel_size.values, dilation.values, padding.values, stride.values);
}
std::string Unfold::extra_repr() const {
  return "kernel_size=" + text(kernel_size) + ", dilation=" + text(dilation) + ", padding=" + text(padding) +
         ", stride=" + text(stride);
}
Tensor Fold::forward(const Tensor& x) const {
  return fold(x, output_size.values, kernel_size.values, dilation.values, padding.values, stride.values);
}
std::string Fold::extra_repr() const {
  return "output_size=" + text(output_size) + ", kernel_size=" + text(kernel_size) + ", dilation=" + text(dilation) +
         ", padding=" + text(padding) + ", stride=" + text(stride);
}

Upsample::Upsample(std::optional<Ints> s, std::optional<Factors> f, const std::string& m, std::optional<bool> align,
                   std::optional<bool> recompute)
    : size(s), scale_factor(std::move(f)), mode(m), align_corners(align), recompute_scale_factor(recompute) {
  SF_CHECK(bool(size) != bool(scale_factor), "Upsample: either size or scale_factor must be given, and not both");
}
Tensor Upsample::forward(const Tensor& x) const {
  std::optional<Shape> to;
  std::optional<Floats> by;
  if (size) to = size->values;
  if (scale_factor) by = scale_factor->values;
  return interpolate(x, to, by, mode, align_corners, recompute_scale_factor);
}
std::string Upsample::extra_repr() const {
  std::string how = scale_factor ? "scale_factor=" + (scale_factor->single ? text(scale_factor->values[0])
                                                                           : text(scale_factor->values))
                                 : "size=" + text(*size);
  return how + ", mode=" + quoted(mode);
}

PadNd::PadNd(const char* name, const char* m, int64_t dims, const Ints& p, Number fill) : mode(m), value(fill) {
  SF_CHECK(p.single || p.values.size() == 2 * dims, name, ": padding must be one number or ", 2 * dims,
           " numbers, got ", p.values);
  padding = p.single ? Shape::filled(2 * dims, p.values[0]) : p.values;
}
Tensor PadNd::forward(const Tensor& x) const {
  return mode == std::string("constant") ? pad(x, padding, mode, value.given()) : pad(x, padding, mode);
}
std::string PadNd::extra_repr() const { return text(padding); }
std::string ConstantPad1d::extra_repr() const { return "padding=" + text(padding) + ", value=" + text(value); }
std::string ConstantPad2d::extra_repr() const { return "padding=" + text(padding) + ", value=" + text(value); }
std::string ConstantPad3d::extra_repr() const { return "padding=" + text(padding) + ", value=" + text(value); }

// ---- registration

SF_LAYER(Flatten, "start_dim=1, end_dim=-1",
         [](int64_t start_dim, int64_t end_dim) { return std::make_unique<Flatten>(start_dim, end_dim); })
    .doc("Dimensions start_dim to end_dim as one.")
    .forward<&Flatten::forward>("input")
    .field<&Flatten::start_dim>("start_dim")
    .field<&Flatten::end_dim>("end_dim");
SF_LAYER(Unflatten, "dim, unflattened_size",
         [](int64_t dim, Shape unflattened_size) { return std::make_unique<Unflatten>(dim, unflattened_size); })
    .doc("Dimension dim split into unflattened_size.")
    .forward<&Unflatten::forward>("input")
    .field<&Unflatten::dim>("dim")
    .field<&Unflatten::unflattened_size>("unflattened_size");
SF_LAYER(PixelShuffle, "upscale_factor",
         [](int64_t upscale_factor) { return std::make_unique<PixelShuffle>(upscale_factor); })
    .doc("[..., C * r * r, H, W] -> [..., C, H * r, W * r].")
    .forward<&PixelShuffle::forward>("input")
    .field<&PixelShuffle::upscale_factor>("upscale_factor");
SF_LAYER(PixelUnshuffle, "downscale_factor",
         [](int64_t downscale_factor) { return std::make_unique<PixelUnshuffle>(downscale_factor); })
    .doc("[..., C, H * r, W * r] -> [..., C * r * r, H, W].")
    .forward<&PixelUnshuffle::forward>("input")
    .field<&PixelUnshuffle::downscale_factor>("downscale_factor");
SF_LAYER(ChannelShuffle, "groups", [](int64_t groups) { return std::make_unique<ChannelShuffle>(groups); })
    .doc("The channels of each group dealt out in turn.")
    .forward<&ChannelShuffle::forward>("input")
    .field<&ChannelShuffle::groups>("groups");
SF_LAYER(Unfold, "kernel_size, dilation=1, padding=0, stride=1",
         [](Ints kernel_size, Ints dilation, Ints padding, Ints stride) {
           return std::make_unique<Unfold>(kernel_size, dilation, padding, stride);
         })
    .doc("im2col: a column of C * kh * kw numbers for each place of the kernel.")
    .forward<&Unfold::forward>("input")
    .field<&Unfold::kernel_size>("kernel_size")
    .field<&Unfold::dilation>("dilation")
    .field<&Unfold::padding>("padding")
    .field<&Unfold::stride>("stride");
SF_LAYER(Fold, "output_size, kernel_size, dilation=1, padding=0, stride=1",
         [](Ints output_size, Ints kernel_size, Ints dilation, Ints padding, Ints stride) {
           return std::make_unique<Fold>(output_size, kernel_size, dilation, padding, stride);
         })
    .doc("col2im: the columns of Unfold summed back into an image.")
    .forward<&Fold::forward>("input")
    .field<&Fold::output_size>("output_size")
    .field<&Fold::kernel_size>("kernel_size")
    .field<&Fold::dilation>("dilation")
    .field<&Fold::padding>("padding")
    .field<&Fold::stride>("stride");

static LayerEntry& upsample_fields(LayerEntry& e) {
  return e.forward<&Upsample::forward>("input")
      .field<&Upsample::size>("size")
      .field<&Upsample::scale_factor>("scale_factor")
      .field<&Upsample::mode>("mode")
      .field<&Upsample::align_corners>("align_corners")
      .field<&Upsample::recompute_scale_factor>("recompute_scale_factor");
}
SF_LAYER(Upsample, "size=None, scale_factor=None, mode='nearest', align_corners=None, recompute_scale_factor=None",
         [](std::optional<Ints> size, std::optional<Factors> scale_factor, std::string mode,
            std::optional<bool> align_corners, std::optional<bool> recompute_scale_factor) {
           return std::make_unique<Upsample>(size, scale_factor, mode, align_corners, recompute_scale_factor);
         })
    .doc("Resizes input[N, C, ...] to size or by scale_factor.")
    .with(upsample_fields);
SF_LAYER(UpsamplingNearest2d, "size=None, scale_factor=None",
         [](std::optional<Ints> size, std::optional<Factors> scale_factor) {
           return std::make_unique<UpsamplingNearest2d>(size, scale_factor);
         })
    .doc("Upsample with mode='nearest'.")
    .with(upsample_fields);
SF_LAYER(UpsamplingBilinear2d, "size=None, scale_factor=None",
         [](std::optional<Ints> size, std::optional<Factors> scale_factor) {
           return std::make_unique<UpsamplingBilinear2d>(size, scale_factor);
         })
    .doc("Upsample with mode='bilinear', align_corners=True.")
    .with(upsample_fields);

template <class T> static std::unique_ptr<T> make_pad(Ints padding) { return std::make_unique<T>(padding); }
template <class T> static std::unique_ptr<T> make_constant_pad(Ints padding, Number value) {
  return std::make_unique<T>(padding, value);
}
static LayerEntry& pad_fields(LayerEntry& e) {
  return e.forward<&PadNd::forward>("input").field<&PadNd::padding>("padding");
}
static LayerEntry& constant_fields(LayerEntry& e) { return pad_fields(e).field<&PadNd::value>("value"); }
#define SF_PADS(dims)                                                                        \
  SF_LAYER(ZeroPad##dims##d, "padding", &make_pad<ZeroPad##dims##d>)                         \
      .doc("Zeros around the last dimensions.")                                              \
      .with(pad_fields);                                                                     \
  SF_LAYER(ReflectionPad##dims##d, "padding", &make_pad<ReflectionPad##dims##d>)             \
      .doc("The input mirrored at its ends.")                                                \
      .with(pad_fields);                                                                     \
  SF_LAYER(ReplicationPad##dims##d, "padding", &make_pad<ReplicationPad##dims##d>)           \
      .doc("The outermost entries repeated.")                                                \
      .with(pad_fields);                                                                     \
  SF_LAYER(CircularPad##dims##d, "padding", &make_pad<CircularPad##dims##d>)                 \
      .doc("The entries of the other end.")                                                  \
      .with(pad_fields);                                                                     \
  SF_LAYER(ConstantPad##dims##d, "padding, value", &make_constant_pad<ConstantPad##dims##d>) \
      .doc("A number around the last dimensions.")                                           \
      .with(constant_fields)
SF_PADS(1);
SF_PADS(2);
SF_PADS(3);

}  // namespace sf::nn
