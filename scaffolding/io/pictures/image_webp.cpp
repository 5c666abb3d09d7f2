// WebP through libwebp: still pictures, lossy and lossless.
#include <cstring>

#include "scaffolding/io/pictures/image_codecs.h"
#include "scaffolding/io/pictures/yuv_kernel.h"

namespace sf::io {
KernelTable<YuvToRgb> yuv_to_rgb("yuv_to_rgb");
}

#ifdef SF_WITH_WEBP
#include <webp/decode.h>
#include <webp/encode.h>

namespace sf::io {

namespace {

constexpr int kLossy = 1;  // WebPBitstreamFeatures::format

const char* reason(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY: return "libwebp has no memory";
    case VP8_STATUS_BITSTREAM_ERROR: return "its data is damaged";
    case VP8_STATUS_UNSUPPORTED_FEATURE: return "it uses a feature that libwebp does not know";
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA: return "it ends too early";
    default: return "libwebp refuses it";
  }
}

// The EXIF chunk of the RIFF container, which libwebp leaves to its caller.
int orientation_of(std::span<const uint8_t> b) {
  for (size_t at = 12; b.size() >= 8 && at <= b.size() - 8;) {
    size_t n = b[at + 4] | size_t(b[at + 5]) << 8 | size_t(b[at + 6]) << 16 | size_t(b[at + 7]) << 24;
    auto rest = b.subspan(at + 8);
    if (n > rest.size()) return 1;
    if (!std::memcmp(b.data() + at, "EXIF", 4)) {
      auto block = rest.first(n);
      // some writers keep JPEG's prefix
      if (n > 6 && !std::memcmp(block.data(), "Exif\0", 6)) block = block.subspan(6);
      return exif_orientation(block);
    }
    at += 8 + n + (n & 1);
  }
  return 1;
}

ImageInfo read_info(const ImageBytes& in, WebPBitstreamFeatures& f) {
  if (auto status = WebPGetFeatures(in.bytes.data(), in.bytes.size(), &f); status != VP8_STATUS_OK)
    broken_image(in, ImageFormat::WebP, reason(status));
  SF_CHECK(!f.has_animation, in.name, ": is an animated WebP picture; only still ones are read");
  ImageInfo info;
  info.format = ImageFormat::WebP;
  info.width = f.width;
  info.height = f.height;
  info.mode = f.has_alpha ? ImageMode::RGBA : ImageMode::RGB;
  info.orientation = orientation_of(in.bytes);
  return info;
}

}  // namespace

ImageInfo webp_info(const ImageBytes& in) {
  WebPBitstreamFeatures f;
  return read_info(in, f);
}

Tensor webp_pixels(const ImageBytes& in, const ImageLimits& limits, ImageInfo& info) {
  WebPDecoderConfig config;
  SF_CHECK_AS(RuntimeError, WebPInitDecoderConfig(&config), "libwebp's version does not fit its headers");
  info = read_info(in, config.input);
  check_pixels(in, info.width, info.height, limits.max_pixels);
  bool alpha = info.mode == ImageMode::RGBA && limits.mode != ImageMode::RGB && limits.mode != ImageMode::L;
  int64_t H = info.height, W = info.width, C = alpha ? 4 : 3;
  Tensor pixels = empty({H, W, C}, kUInt8);
  auto decode = [&] {
    config.output.is_external_memory = 1;
    if (auto status = WebPDecode(in.bytes.data(), in.bytes.size(), &config); status != VP8_STATUS_OK)
      broken_image(in, ImageFormat::WebP, reason(status));
  };
  if (config.input.format == kLossy && !alpha) {
    int64_t chroma_width = (W + 1) / 2, luma = H * W, chroma = (H + 1) / 2 * chroma_width;
    int64_t bytes = luma + 2 * chroma, words_at = (bytes + 63) / 64 * 64;
    Tensor planes = empty({words_at + yuv_scratch(W) * int64_t(sizeof(uint16_t))}, kUInt8);
    uint8_t *y = planes.data<uint8_t>(), *u = y + luma, *v = u + chroma;
    config.output.colorspace = MODE_YUV;
    config.output.u.YUVA = {
        y, u, v, nullptr, int(W), int(chroma_width), int(chroma_width), 0, size_t(luma), size_t(chroma), size_t(chroma),
        0};
    decode();
    YuvToRgb a{y, u, v, pixels.data<uint8_t>(), H, W, reinterpret_cast<uint16_t*>(y + words_at)};
    yuv_to_rgb.find(Device::CPU, a)(a);
  } else {
    config.output.colorspace = alpha ? MODE_RGBA : MODE_RGB;
    config.output.u.RGBA = {pixels.data<uint8_t>(), int(W * C), pixels.nbytes()};
    decode();
  }
  return pixels;
}

std::string webp_encode(const Tensor& pixels, const ImageWriteOptions& options) {
  int64_t H = pixels.size(0), W = pixels.size(1), C = pixels.size(2);
  SF_CHECK(H <= WEBP_MAX_DIMENSION && W <= WEBP_MAX_DIMENSION, "write_image: WebP holds at most ", WEBP_MAX_DIMENSION,
           " x ", WEBP_MAX_DIMENSION, " pixels, got ", W, " x ", H);
  WebPConfig config;
  struct Owned {
    WebPPicture picture;
    WebPMemoryWriter memory;
    ~Owned() {
      WebPPictureFree(&picture);
      WebPMemoryWriterClear(&memory);
    }
  } o;
  WebPMemoryWriterInit(&o.memory);
  SF_CHECK_AS(RuntimeError, WebPPictureInit(&o.picture) && WebPConfigInit(&config),
              "libwebp's version does not fit its headers");
  config.quality = float(options.quality);
  config.lossless = options.lossless;
  config.exact = options.lossless;  // colour under transparent pixels too
  o.picture.use_argb = options.lossless;
  o.picture.width = int(W);
  o.picture.height = int(H);
  o.picture.writer = WebPMemoryWrite;
  o.picture.custom_ptr = &o.memory;
  const uint8_t* rows = pixels.data<uint8_t>();
  bool fits =
      C == 4 ? WebPPictureImportRGBA(&o.picture, rows, int(W * 4)) : WebPPictureImportRGB(&o.picture, rows, int(W * 3));
  SF_CHECK_AS(RuntimeError, fits && WebPEncode(&config, &o.picture), "write_image: WebP: libwebp's error ",
              int(o.picture.error_code));
  return {reinterpret_cast<char*>(o.memory.mem), o.memory.size};
}

}  // namespace sf::io

#else

namespace sf::io {
[[noreturn]] static void absent() {
  fail<NotSupported>("this build reads and writes no WebP: rebuild with -DSF_WEBP=ON and libwebp");
}
ImageInfo webp_info(const ImageBytes&) { absent(); }
Tensor webp_pixels(const ImageBytes&, const ImageLimits&, ImageInfo&) { absent(); }
std::string webp_encode(const Tensor&, const ImageWriteOptions&) { absent(); }
}  // namespace sf::io

#endif
