#include "scaffolding/diffusion/pipelines/image_processor.h"

#include <algorithm>

#include "scaffolding/core/error.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

constexpr const char* kName = "VaeImageProcessor";

void check_picture(const char* what, const Tensor& picture) {
  check_defined(kName, what, picture);
  SF_CHECK(picture.ndim() == 3 && picture.size(0) >= 1 && picture.size(0) <= 4 && picture.numel() > 0 &&
               picture.dtype() == kUInt8,
           kName, ": ", what, " must be a uint8 picture [C, H, W] with C = 1 to 4, got ", picture.dtype(), " ",
           picture.shape());
}

// [C, height, width] of one colour, in memory as [height, width, C].
Tensor blank(int64_t channels, int64_t height, int64_t width) {
  return zeros({height, width, channels}, kUInt8).permute({2, 0, 1});
}

// What lies inside of `onto` only.
void paste(const Tensor& onto, const Tensor& picture, int64_t left, int64_t top) {
  int64_t x0 = std::max<int64_t>(left, 0), y0 = std::max<int64_t>(top, 0);
  int64_t x1 = std::min(left + picture.size(2), onto.size(2)), y1 = std::min(top + picture.size(1), onto.size(1));
  if (x0 >= x1 || y0 >= y1) return;
  Tensor target = onto.slice(1, y0, y1).slice(2, x0, x1);
  target.copy_(picture.slice(1, y0 - top, y1 - top).slice(2, x0 - left, x1 - left));
}

Tensor cropped(const Tensor& picture, const CropBox& box) {
  SF_CHECK(box.right > box.left && box.bottom > box.top, kName, ": a crop must not be empty, got ", box.left, ", ",
           box.top, ", ", box.right, ", ", box.bottom);
  Tensor out = blank(picture.size(0), box.bottom - box.top, box.right - box.left);
  paste(out, picture, -box.left, -box.top);
  return out;
}

// The picture's border row or column as diffusers repeats it: Pillow's bicubic of an area without size, 9/8 of the last
// pixels less 1/8 of the next.
Tensor border(const Tensor& picture, int64_t dim, int64_t last, int64_t next) {
  Tensor at = picture.narrow(dim, last, 1);
  if (next < 0 || next >= picture.size(dim)) return at;
  Tensor sum = at.to(kFloat32) * 9 - picture.narrow(dim, next, 1).to(kFloat32) + 4;
  return clamp(floor(sum / 8), 0, 255).to(kUInt8);
}

uint8_t over_255(int v) {  // v / 255, rounded, as Pillow divides
  v += 128;
  return uint8_t(((v >> 8) + v) >> 8);
}

}  // namespace

ResizeMode resize_mode(std::string_view name) {
  if (name == "default") return ResizeMode::Default;
  if (name == "fill") return ResizeMode::Fill;
  if (name == "crop") return ResizeMode::Crop;
  fail(kName, ": resize_mode must be 'default', 'fill' or 'crop', got '", name, "'");
}

Tensor VaeImageProcessor::resize(const Tensor& picture, int64_t height, int64_t width, ResizeMode mode) const {
  check_picture("picture", picture);
  SF_CHECK(height > 0 && width > 0, kName, ": sizes must be positive, got ", height, " x ", width);
  if (mode == ResizeMode::Default) return data::resize(picture, height, width, options_.resample);
  double ratio = double(width) / double(height), source = double(picture.size(2)) / double(picture.size(1));
  bool fill = mode == ResizeMode::Fill;
  bool full_width = fill ? ratio < source : ratio > source, full_height = fill ? ratio >= source : ratio <= source;
  int64_t w = full_width ? width : picture.size(2) * height / picture.size(1),
          h = full_height ? height : picture.size(1) * width / picture.size(2);
  SF_CHECK(w > 0 && h > 0, kName, ": a picture of ", picture.size(2), " x ", picture.size(1), " cannot be fitted into ",
           width, " x ", height);
  Tensor resized = data::resize(picture, h, w, options_.resample), out = blank(picture.size(0), height, width);
  int64_t left = width / 2 - w / 2, top = height / 2 - h / 2;
  paste(out, resized, left, top);
  if (!fill) return out;
  if (ratio < source && top > 0) {
    paste(out, border(resized, 1, 0, 1).expand({resized.size(0), top, width}), 0, 0);
    paste(out, border(resized, 1, h - 1, h - 2).expand({resized.size(0), top, width}), 0, top + h);
  } else if (ratio > source && left > 0) {
    paste(out, border(resized, 2, 0, 1).expand({resized.size(0), height, left}), 0, 0);
    paste(out, border(resized, 2, w - 1, w - 2).expand({resized.size(0), height, left}), left + w, 0);
  }
  return out;
}

Tensor VaeImageProcessor::preprocess(const Tensors& pictures, const PreprocessOptions& o) const {
  SF_CHECK(!pictures.empty(), kName, ": needs at least one picture");
  Tensors floats;
  std::optional<int64_t> height = o.height, width = o.width;
  for (Tensor picture : pictures) {
    check_picture("image", picture);
    if (o.crop) picture = cropped(picture, *o.crop);
    if (options_.do_resize) {
      // diffusers takes the first picture's size for all of them.
      auto whole = [&](int64_t n) { return n - n % options_.vae_scale_factor; };
      if (!height) height = picture.size(1);
      if (!width) width = picture.size(2);
      SF_CHECK(whole(*height) > 0 && whole(*width) > 0, kName, ": pictures must have at least ",
               options_.vae_scale_factor, " pixels each way, got ", *width, " x ", *height);
      picture = resize(picture, whole(*height), whole(*width), o.mode);
    }
    picture = io::convert_image(picture, options_.do_convert_grayscale ? io::ImageMode::L : io::ImageMode::RGB);
    floats.push_back(picture.contiguous().to(kFloat32));
    SF_CHECK(floats.back().shape() == floats.front().shape(), kName,
             ": pictures of different sizes make no batch, got ", floats.front().shape(), " and ",
             floats.back().shape());
  }
  Tensor x = stack(floats) / 255;
  if (options_.do_normalize) x = 2 * x - 1;
  if (options_.do_binarize) x = ge(x, wrapped(0.5)).to(kFloat32);
  return x;
}

Tensor VaeImageProcessor::preprocess(const Tensor& images, const PreprocessOptions& o) const {
  check_defined(kName, "image", images);
  SF_CHECK(images.ndim() == 4 && images.numel() > 0, kName, ": image must be [B, C, H, W], got ", images.shape());
  check_floating(kName, "image", images);
  SF_CHECK(!o.crop && o.mode == ResizeMode::Default, kName,
           ": crops and resize modes are for pictures, not for tensors of values");
  if (images.size(1) == options_.vae_latent_channels) return images;
  Tensor x = images;
  if (options_.do_resize) {
    auto whole = [&](int64_t n) { return n - n % options_.vae_scale_factor; };
    int64_t height = whole(o.height.value_or(x.size(2))), width = whole(o.width.value_or(x.size(3)));
    SF_CHECK(height > 0 && width > 0, kName, ": images must have at least ", options_.vae_scale_factor,
             " pixels each way, got ", x.shape());
    if (height != x.size(2) || width != x.size(3)) x = interpolate(x, Shape{height, width});
  }
  if (options_.do_normalize && !(amin(x).item() < 0)) x = 2.0 * x - 1.0;
  if (options_.do_binarize) x = ge(x, wrapped(0.5)).to(x.dtype());
  return x;
}

Tensor VaeImageProcessor::denormalize(const Tensor& images) const {
  return options_.do_normalize ? clamp(images * 0.5 + 0.5, 0, 1) : images;
}

Tensor VaeImageProcessor::frames(const Tensor& images) {
  check_defined(kName, "images", images);
  SF_CHECK(images.ndim() == 4, kName, ": images must be [B, C, H, W], got ", images.shape());
  Tensor x = images.to(kFloat32).permute({0, 2, 3, 1});
  return clamp(round(x * 255), 0, 255).to(kUInt8).contiguous();
}

Tensors VaeImageProcessor::pictures(const Tensor& images) {
  Tensor x = frames(images).to(Device::CPU);
  Tensors out;
  for (int64_t b = 0; b < x.size(0); ++b) out.push_back(x.select(0, b).permute({2, 0, 1}));
  return out;
}

CropBox VaeImageProcessor::crop_region(const Tensor& mask, int64_t width, int64_t height, int64_t pad) {
  check_picture("mask", mask);
  SF_CHECK(width > 0 && height > 0, kName, ": sizes must be positive, got ", height, " x ", width);
  Tensor grey = io::convert_image(mask, io::ImageMode::L).contiguous();
  int64_t H = grey.size(1), W = grey.size(2);
  const uint8_t* p = grey.data<uint8_t>();
  int64_t x1 = W, y1 = H, x2 = 0, y2 = 0;
  for (int64_t y = 0; y < H; ++y)
    for (int64_t x = 0; x < W; ++x)
      if (p[y * W + x]) x1 = std::min(x1, x), y1 = std::min(y1, y), x2 = std::max(x2, x + 1), y2 = std::max(y2, y + 1);
  SF_CHECK(x2 > 0, kName, ": a mask that is black all over has no region to crop to");
  x1 = std::max<int64_t>(x1 - pad, 0), y1 = std::max<int64_t>(y1 - pad, 0), x2 = std::min(x2 + pad, W),
  y2 = std::min(y2 + pad, H);
  // One direction grows towards the ratio, and is moved inside where it stands out.
  auto grow = [](int64_t& low, int64_t& high, int64_t wanted, int64_t end) {
    int64_t more = wanted - (high - low), before = more / 2;
    low -= before, high += more - before;
    if (high >= end) low -= high - end, high = end;
    if (low < 0) high -= low, low = 0;
    high = std::min(high, end);
  };
  double ratio = double(width) / double(height);
  if (double(x2 - x1) / double(y2 - y1) > ratio)
    grow(y1, y2, (y2 - y1) + int64_t(double(x2 - x1) / ratio - double(y2 - y1)), H);
  else grow(x1, x2, (x2 - x1) + int64_t(double(y2 - y1) * ratio - double(x2 - x1)), W);
  return {x1, y1, x2, y2};
}

Tensor VaeImageProcessor::apply_overlay(const Tensor& mask, const Tensor& init_image, const Tensor& picture,
                                        std::optional<CropBox> crop) const {
  check_picture("mask", mask);
  check_picture("init_image", init_image);
  check_picture("picture", picture);
  int64_t H = init_image.size(1), W = init_image.size(2);
  Tensor placed = io::convert_image(picture, io::ImageMode::RGB);
  if (crop) {
    Tensor part = resize(placed, crop->bottom - crop->top, crop->right - crop->left, ResizeMode::Crop);
    placed = blank(3, H, W);
    paste(placed, part, crop->left, crop->top);
  }
  Tensor grey = io::convert_image(mask, io::ImageMode::L);
  for (auto [what, t] : {std::pair{"mask", &grey}, {"picture", &placed}})
    SF_CHECK(t->size(1) == H && t->size(2) == W, kName, ": ", what, " must have init_image's size ", init_image.shape(),
             ", got ", t->shape());
  Tensor m = grey.contiguous(), under = placed.permute({1, 2, 0}).contiguous(),
         init = io::convert_image(init_image, io::ImageMode::RGB).permute({1, 2, 0}).contiguous();
  Tensor out = empty({H, W, 3}, kUInt8);
  // Pillow's integers: the initial picture is pasted through the inverted mask with premultiplied colours,
  // then composited.
  for (int64_t i = 0; i < H * W; ++i) {
    int alpha = 255 - m.data<uint8_t>()[i];
    for (int64_t c = 0; c < 3; ++c) {
      int below = under.data<uint8_t>()[i * 3 + c], value = over_255(init.data<uint8_t>()[i * 3 + c] * alpha);
      if (alpha != 0 && alpha != 255) value = std::min(255, 255 * value / alpha);
      uint32_t share = uint32_t(alpha) << 7;  // of 255 << 7; the picture below is opaque
      uint32_t sum = uint32_t(value) * share + uint32_t(below) * ((255u << 7) - share) + (0x80u << 7);
      out.data<uint8_t>()[i * 3 + c] = alpha ? uint8_t(((sum >> 8) + sum) >> 8 >> 7) : uint8_t(below);
    }
  }
  return out.permute({2, 0, 1});
}

}  // namespace sf::diffusion
