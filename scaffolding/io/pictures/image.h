// Pictures: PNG, JPEG and WebP files to tensors and back. The kind of a file is told by its content, not by its name.
// Pictures are uint8 tensors [C, H, W] that lie in memory as rows of pixels (strides of [H, W, C]); C is 1 (L), 2 (LA),
// 3 (RGB) or 4 (RGBA, straight alpha). Functions only: any thread may call any of them.
// A file that is corrupt, cut short, or larger than allowed is a ValueError with the file's name, before memory of a
// size that the file names is taken; one that cannot be opened is a RuntimeError;
// a format left out of this build NotSupported.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "scaffolding/core/tensor.h"

namespace sf::io {

enum class ImageFormat : uint8_t { PNG, JPEG, WebP };
// Keep: what the file has; a palette counts as RGB, or RGBA where it has transparent colours, and CMYK as RGB.
enum class ImageMode : uint8_t { Keep = 0, L = 1, LA = 2, RGB = 3, RGBA = 4 };  // the value is the number of channels

const char* name(ImageFormat f);                  // "PNG"
ImageMode image_mode(std::string_view name);      // "keep", "L", "LA", "RGB" or "RGBA"; ValueError otherwise
ImageFormat image_format(std::string_view name);  // "png", "jpeg", "jpg" or "webp", with or without a dot, in any case

using ImageText = std::map<std::string, std::string>;  // keyword -> UTF-8

struct ImageInfo {
  ImageFormat format = ImageFormat::PNG;
  int64_t width = 0, height = 0;    // as stored; an orientation of 5 to 8 exchanges them when it is applied
  ImageMode mode = ImageMode::RGB;  // what Keep gives
  int bits = 8;                     // of a sample in the file: 1, 2, 4, 8 or 16
  bool palette = false;
  int orientation = 1;  // EXIF: 1 (upright) to 8
  ImageText text;       // PNG's tEXt, zTXt and iTXt chunks before the pixels
};

struct ImageReadOptions {
  ImageMode mode = ImageMode::Keep;
  int bits =
      // 16: an int32 tensor of 0..65535; 8-bit samples are multiplied by 257. With 8,
      // 16-bit samples lose their low byte
      8;
  bool apply_orientation = true;        // turns and mirrors the picture upright
  std::optional<int64_t> max_pixels{};  // SF_IMAGE_MAX_PIXELS where not given
};

struct ImageWriteOptions {
  int quality = 75;       // of JPEG, and of WebP that is not lossless: 1 to 100
  bool lossless = false;  // WebP
  int compression = 6;    // PNG: 0 (none) to 9
  ImageText text;         // PNG only: tEXt where the value is Latin-1, else iTXt
};

// `name` stands in errors.
ImageInfo image_info(std::span<const uint8_t> bytes, const std::string& name);
ImageInfo image_info(const std::string& path);
Tensor decode_image(std::span<const uint8_t> bytes, const std::string& name, const ImageReadOptions& options = {});
Tensor read_image(const std::string& path, const ImageReadOptions& options = {});

// image: uint8 [C, H, W] or [H, W], any strides, on the CPU. JPEG has no transparency: C is 1 or 3. WebP has no grey: L
// is written as RGB, LA as RGBA.
std::string encode_image(const Tensor& image, ImageFormat format, const ImageWriteOptions& options = {});
// The format is that of the path's suffix. The file appears whole or not at all.
void write_image(const std::string& path, const Tensor& image, const ImageWriteOptions& options = {});

// The picture with its channels one after the other in memory, as most code wants it. One thread's work,
// unlike contiguous().
Tensor planar_image(const Tensor& image);
// The same, of any uint8 [C, H, W] whose pixels lie side by side, into memory of its size.
void copy_planes(const Tensor& image, uint8_t* to);

// The picture in another mode. L is 0.299 R + 0.587 G + 0.114 B (ITU-R 601, Pillow's integers); alpha is dropped,
// or added as opaque.
Tensor convert_image(const Tensor& image, ImageMode mode);

}  // namespace sf::io
