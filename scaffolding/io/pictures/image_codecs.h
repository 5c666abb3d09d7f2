// What image.cpp asks of each format's library: one file per library, image_png.cpp, image_jpeg.cpp, image_webp.cpp,
// and image_png_write.cpp.
// Not public. The functions are stateless; any thread may call them.
#pragma once
#include "scaffolding/io/pictures/image.h"

namespace sf::io {

struct ImageBytes {
  std::span<const uint8_t> bytes;
  const std::string& name;
};

// `max_pixels`: checked after the header and before pixels are allocated. Pixels: [H, W, C] contiguous, uint8, or int32
// for samples of 16 bits when `bits` is 16. `info` is filled on the way; PNG reads text behind the pixels too.
struct ImageLimits {
  int64_t max_pixels;
  int bits;
  ImageMode mode;  // what will be made of the pixels; a codec that can may leave out alpha
};
ImageInfo png_info(const ImageBytes& in);
ImageInfo jpeg_info(const ImageBytes& in);
ImageInfo webp_info(const ImageBytes& in);
Tensor png_pixels(const ImageBytes& in, const ImageLimits& limits, ImageInfo& info);
Tensor jpeg_pixels(const ImageBytes& in, const ImageLimits& limits, ImageInfo& info);
Tensor webp_pixels(const ImageBytes& in, const ImageLimits& limits, ImageInfo& info);

// pixels: uint8 [H, W, C] contiguous.
std::string png_encode(const Tensor& pixels, const ImageWriteOptions& options);
std::string jpeg_encode(const Tensor& pixels, const ImageWriteOptions& options);
std::string webp_encode(const Tensor& pixels, const ImageWriteOptions& options);

void check_pixels(const ImageBytes& in, int64_t width, int64_t height, int64_t max_pixels);
// of an EXIF block that starts with its TIFF header; 1 where it says nothing
int exif_orientation(std::span<const uint8_t> tiff);

[[noreturn]] inline void broken_image(const ImageBytes& in, ImageFormat format, const char* why) {
  fail<ValueError>(in.name, ": is no whole ", name(format), " picture: ", why);
}

}  // namespace sf::io
