// Layers that rearrange, resize or pad.
#pragma once
#include "scaffolding/nn/layer.h"

namespace sf::nn {

struct Flatten : Module {
  int64_t start_dim, end_dim;
  SF_MODULE(Flatten)
  explicit Flatten(int64_t start = 1, int64_t end = -1) : start_dim(start), end_dim(end) {}
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};
struct Unflatten : Module {
  int64_t dim;
  Shape unflattened_size;
  SF_MODULE(Unflatten)
  Unflatten(int64_t d, const Shape& size) : dim(d), unflattened_size(size) {}
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};
struct PixelShuffle : Module {
  int64_t upscale_factor;
  SF_MODULE(PixelShuffle)
  explicit PixelShuffle(int64_t upscale_factor);
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};
struct PixelUnshuffle : Module {
  int64_t downscale_factor;
  SF_MODULE(PixelUnshuffle)
  explicit PixelUnshuffle(int64_t downscale_factor);
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};
struct ChannelShuffle : Module {
  int64_t groups;
  SF_MODULE(ChannelShuffle)
  explicit ChannelShuffle(int64_t groups);
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};

// im2col and back.
struct Unfold : Module {
  Ints kernel_size, dilation, padding, stride;
  SF_MODULE(Unfold)
  explicit Unfold(const Ints& k, const Ints& d = 1, const Ints& p = 0, const Ints& s = 1)
      : kernel_size(k), dilation(d), padding(p), stride(s) {}
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};
struct Fold : Module {
  Ints output_size, kernel_size, dilation, padding, stride;
  SF_MODULE(Fold)
  Fold(const Ints& o, const Ints& k, const Ints& d = 1, const Ints& p = 0, const Ints& s = 1)
      : output_size(o), kernel_size(k), dilation(d), padding(p), stride(s) {}
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};

// A factor or one per spatial dimension.
struct Factors {
  Floats values;
  bool single = false;
};

// Resizes [N, C, ...] to `size` or by `scale_factor`; exactly one of them is given. Modes as in sf::interpolate.
struct Upsample : Module {
  std::optional<Ints> size;
  std::optional<Factors> scale_factor;
  std::string mode;
  std::optional<bool> align_corners, recompute_scale_factor;
  SF_MODULE(Upsample)
  Upsample(std::optional<Ints> size, std::optional<Factors> scale_factor, const std::string& mode = "nearest",
           std::optional<bool> align_corners = {}, std::optional<bool> recompute_scale_factor = {});
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};
struct UpsamplingNearest2d : Upsample {
  SF_MODULE(UpsamplingNearest2d)
  UpsamplingNearest2d(std::optional<Ints> s, std::optional<Factors> f) : Upsample(s, f, "nearest") {}
};
struct UpsamplingBilinear2d : Upsample {
  SF_MODULE(UpsamplingBilinear2d)
  UpsamplingBilinear2d(std::optional<Ints> s, std::optional<Factors> f) : Upsample(s, f, "bilinear", true) {}
};

// Entries added at both ends of the last `dims` dimensions: one number, or (left, right, top, bottom, ...).
struct PadNd : Module {
  Shape padding;
  const char* mode;
  Number value;
  PadNd(const char* name, const char* mode, int64_t dims, const Ints& padding, Number value = 0.0);
  Tensor forward(const Tensor& input) const;
  std::string extra_repr() const override;
};
#define SF_PAD(Type, mode, dims)                                                 \
  struct Type : PadNd {                                                          \
    SF_MODULE(Type)                                                              \
    explicit Type(const Ints& padding) : PadNd(#Type, mode, dims, padding, 0) {} \
  };
#define SF_PADS(dims)                                                        \
  SF_PAD(ZeroPad##dims##d, "constant", dims)                                 \
  SF_PAD(ReflectionPad##dims##d, "reflect", dims)                            \
  SF_PAD(ReplicationPad##dims##d, "replicate", dims)                         \
  SF_PAD(CircularPad##dims##d, "circular", dims)                             \
  struct ConstantPad##dims##d : PadNd {                                      \
    SF_MODULE(ConstantPad##dims##d)                                          \
    ConstantPad##dims##d(const Ints& padding, Number fill)                   \
        : PadNd("ConstantPad" #dims "d", "constant", dims, padding, fill) {} \
    std::string extra_repr() const override;                                 \
  };
SF_PADS(1)
SF_PADS(2)
SF_PADS(3)
#undef SF_PADS
#undef SF_PAD

}  // namespace sf::nn

template <> struct sf::detail::arg_type<sf::nn::Factors> { static constexpr ArgKind kind = ArgKind::Floats; };
template <> inline sf::nn::Factors sf::detail::unbox<sf::nn::Factors>(const Value& v) {
  if (auto* d = std::get_if<double>(&v)) return {{*d}, true};
  return {unbox<Floats>(v), false};
}
