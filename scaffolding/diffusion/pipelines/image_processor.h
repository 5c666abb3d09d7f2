// VaeImageProcessor: pictures to the tensors that an autoencoder takes, and back; diffusers' class and numbers.
// Pictures are uint8 [C, H, W] as io/pictures/image.h has them and are resized with Pillow's arithmetic;
// tensors are [B, C, H, W].
// Immutable after construction: any thread may use it.
#pragma once
#include <array>
#include <optional>

#include "scaffolding/core/tensor.h"
#include "scaffolding/data/resize.h"

namespace sf::diffusion {

// Fill: scaled to fit, its border pixels repeated around it. Crop: scaled to cover, and cut in the middle.
enum class ResizeMode : uint8_t { Default, Fill, Crop };
ResizeMode resize_mode(std::string_view name);  // "default", "fill", "crop"; ValueError otherwise

struct CropBox {
  int64_t left = 0, top = 0, right = 0, bottom = 0;  // pixels; right and bottom are the first ones outside
};

struct ImageProcessorOptions {
  bool do_resize = true;
  int64_t vae_scale_factor = 8;  // pixels for each latent; sizes taken from pictures are cut to multiples of it
  int64_t vae_latent_channels = 4;
  data::Filter resample = data::Filter::Lanczos;
  bool do_normalize = true;  // [0, 1] to [-1, 1]
  bool do_binarize = false;  // to 0 below 0.5 and 1 from there on: masks
  bool do_convert_grayscale = false;
};

struct PreprocessOptions {
  std::optional<int64_t> height, width;  // absent: the picture's own
  ResizeMode mode = ResizeMode::Default;
  std::optional<CropBox> crop;  // before the resize; may reach outside of the picture, where it is black
};

class VaeImageProcessor {
 public:
  explicit VaeImageProcessor(ImageProcessorOptions options = {}) : options_(options) {}
  const ImageProcessorOptions& options() const { return options_; }

  // uint8 pictures of one size [C, H, W], or of any where do_resize is on -> float32 [B, C, height, width].
  // ValueError for others.
  Tensor preprocess(const Tensors& pictures, const PreprocessOptions& options = {}) const;
  // Values in [0, 1], or in [-1, 1] where some are negative: [B, C, H, W], resized by the nearest pixel. Latents
  // (vae_latent_channels of channels) come back as they are.
  Tensor preprocess(const Tensor& images, const PreprocessOptions& options = {}) const;
  // [-1, 1] to [0, 1], clamped.
  Tensor denormalize(const Tensor& images) const;
  // Values in [0, 1], [B, C, H, W], as uint8 [B, H, W, C] on the same device, rounded to the nearest, half to even.
  static Tensor frames(const Tensor& images);
  // The same as pictures [C, H, W] on the host that lie in memory as [H, W, C].
  static Tensors pictures(const Tensor& images);
  // A picture uint8 [C, H, W] in another size.
  Tensor resize(const Tensor& picture, int64_t height, int64_t width, ResizeMode mode = ResizeMode::Default) const;

  // Around what is not black in a mask uint8 [C, H, W], `pad` pixels wider,
  // and grown towards the aspect ratio of width x height.
  // ValueError for a mask that is black all over.
  static CropBox crop_region(const Tensor& mask, int64_t width, int64_t height, int64_t pad = 0);
  // The picture [3, h, w] where the mask is white, over init_image [3, H, W] where it is black. crop:
  // where the picture belongs in it.
  Tensor apply_overlay(const Tensor& mask, const Tensor& init_image, const Tensor& picture,
                       std::optional<CropBox> crop = {}) const;

 private:
  ImageProcessorOptions options_;
};

}  // namespace sf::diffusion
