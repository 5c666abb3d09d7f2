#include "scaffolding/io/pictures/image.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "scaffolding/core/env.h"
#include "scaffolding/io/file.h"
#include "scaffolding/io/pictures/image_codecs.h"

namespace sf::io {

const char* name(ImageFormat f) { return f == ImageFormat::PNG ? "PNG" : f == ImageFormat::JPEG ? "JPEG" : "WebP"; }

ImageMode image_mode(std::string_view name) {
  if (name == "keep") return ImageMode::Keep;
  if (name == "L") return ImageMode::L;
  if (name == "LA") return ImageMode::LA;
  if (name == "RGB") return ImageMode::RGB;
  if (name == "RGBA") return ImageMode::RGBA;
  fail("read_image: mode must be 'keep', 'L', 'LA', 'RGB' or 'RGBA', got '", name, "'");
}

ImageFormat image_format(std::string_view name) {
  std::string s(name.substr(name.starts_with('.') ? 1 : 0));
  for (char& c : s) c = c >= 'A' && c <= 'Z' ? char(c + 32) : c;
  if (s == "png") return ImageFormat::PNG;
  if (s == "jpeg" || s == "jpg") return ImageFormat::JPEG;
  if (s == "webp") return ImageFormat::WebP;
  fail("write_image: format must be png, jpeg or webp, got '", name, "'");
}

void check_pixels(const ImageBytes& in, int64_t width, int64_t height, int64_t max_pixels) {
  // Both are below 2^31, so that the product fits.
  SF_CHECK(width > 0 && height > 0, in.name, ": is a picture without pixels: ", width, " x ", height);
  SF_CHECK(width * height <= max_pixels, in.name, ": has ", width, " x ", height, " pixels, more than the ", max_pixels,
           " that are allowed (max_pixels, SF_IMAGE_MAX_PIXELS)");
}

int exif_orientation(std::span<const uint8_t> tiff) {
  if (tiff.size() < 8) return 1;
  bool big = tiff[0] == 'M';
  auto u16 = [&](size_t i) {
    return big ? uint32_t(tiff[i] << 8 | tiff[i + 1]) : uint32_t(tiff[i + 1] << 8 | tiff[i]);
  };
  auto u32 = [&](size_t i) { return big ? u16(i) << 16 | u16(i + 2) : u16(i + 2) << 16 | u16(i); };
  size_t at = u32(4);
  if (u16(2) != 42 || at > tiff.size() - 2) return 1;
  size_t count = u16(at);
  at += 2;
  for (; count > 0 && tiff.size() - at >= 12; --count, at += 12)
    if (u16(at) == 0x0112 && u16(at + 2) == 3) {  // Orientation, a SHORT
      uint32_t v = u16(at + 8);
      return v >= 1 && v <= 8 ? int(v) : 1;
    }
  return 1;
}

static ImageFormat format_of(const ImageBytes& in) {
  auto starts = [&](std::string_view magic, size_t at = 0) {
    return in.bytes.size() >= at + magic.size() && !std::memcmp(in.bytes.data() + at, magic.data(), magic.size());
  };
  if (starts("\x89PNG\r\n\x1a\n")) return ImageFormat::PNG;
  if (starts("\xff\xd8\xff")) return ImageFormat::JPEG;
  if (starts("RIFF") && starts("WEBP", 8)) return ImageFormat::WebP;
  SF_CHECK(!in.bytes.empty(), in.name, ": is empty, no picture");
  fail(in.name, ": is no PNG, JPEG or WebP picture (its first bytes are of none of them)");
}

// ---- pixels [H, W, C] in place or into a new tensor

// 1 upright; 2 mirrored; 3 turned by 180; 4 upside down; 5 transposed; 6, 8 turned;
// 7 transposed along the other diagonal.
template <class T> static Tensor oriented(const Tensor& x, int orientation) {
  int64_t H = x.size(0), W = x.size(1), C = x.size(2);
  bool swap = orientation >= 5;
  Tensor y = empty(swap ? Shape{W, H, C} : Shape{H, W, C}, x.dtype());
  bool flip_rows = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;  // of x
  bool flip_columns = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  // y[r, c] = x[c, r] for the transposed kinds; 6 (turn right by 90): y[r, c] = x[H-1-c, r].
  if (swap) std::swap(flip_rows, flip_columns);
  const T* from = x.data<T>();
  T* to = y.data<T>();
  for (int64_t r = 0; r < y.size(0); ++r)
    for (int64_t c = 0; c < y.size(1); ++c, to += C) {
      int64_t i = swap ? c : r, j = swap ? r : c;
      if (flip_rows) i = H - 1 - i;
      if (flip_columns) j = W - 1 - j;
      std::copy_n(from + (i * W + j) * C, C, to);
    }
  return y;
}

template <class T> static Tensor converted(const Tensor& x, int64_t to_channels, T opaque) {
  int64_t C = x.size(2), pixels = x.size(0) * x.size(1);
  Tensor y = empty({x.size(0), x.size(1), to_channels}, x.dtype());
  const T* from = x.data<T>();
  T* to = y.data<T>();
  bool grey_in = C <= 2, alpha_in = C % 2 == 0, grey_out = to_channels <= 2, alpha_out = to_channels % 2 == 0;
  for (int64_t i = 0; i < pixels; ++i, from += C) {
    if (grey_out)
      *to++ = grey_in
                  ? from[0]
                  : T((int64_t(from[0]) * 19595 + int64_t(from[1]) * 38470 + int64_t(from[2]) * 7471 + 0x8000) >> 16);
    else
      for (int k = 0; k < 3; ++k) *to++ = from[grey_in ? 0 : k];
    if (alpha_out) *to++ = alpha_in ? from[C - 1] : opaque;
  }
  return y;
}

static Tensor in_mode(const Tensor& pixels, ImageMode mode) {
  if (mode == ImageMode::Keep || int64_t(mode) == pixels.size(2)) return pixels;
  return pixels.dtype() == kUInt8 ? converted<uint8_t>(pixels, int64_t(mode), 255)
                                  : converted<int32_t>(pixels, int64_t(mode), 65535);
}

static Tensor widened(const Tensor& pixels) {
  if (pixels.dtype() != kUInt8) return pixels;
  Tensor y = empty(pixels.shape(), kInt32);
  std::transform(pixels.data<uint8_t>(), pixels.data<uint8_t>() + pixels.numel(), y.data<int32_t>(),
                 [](uint8_t v) { return v * 257; });
  return y;
}

static Tensor rows_of_pixels(const char* op, const Tensor& image) {
  check_defined(op, "image", image);
  SF_CHECK_AS(TypeError, image.dtype() == kUInt8, op,
              ": image must be uint8 (multiply a float image of 0..1 by 255 and convert it), got ", image.dtype());
  SF_CHECK(image.device().is_cpu(), op, ": image must be on the CPU, got ", image.device());
  Tensor x = image.detach();
  if (x.ndim() == 2) x = x.unsqueeze(0);
  SF_CHECK(x.ndim() == 3 && x.size(0) >= 1 && x.size(0) <= 4 && x.size(1) > 0 && x.size(2) > 0, op,
           ": image must be [C, H, W] with C = 1 to 4, got ", image.shape());
  return x.permute({1, 2, 0}).contiguous();
}

Tensor convert_image(const Tensor& image, ImageMode mode) {
  return in_mode(rows_of_pixels("convert_image", image), mode).permute({2, 0, 1});
}

template <class T> static void copy_planes_of(const Tensor& image, T* to) {
  int64_t C = image.size(0), pixels = image.size(1) * image.size(2);
  for (int64_t c = 0; c < C; ++c)
    for (int64_t i = 0; i < pixels; ++i) *to++ = image.data<T>()[i * C + c];
}

void copy_planes(const Tensor& image, uint8_t* to) { copy_planes_of(image, to); }

Tensor planar_image(const Tensor& image) {
  if (image.is_contiguous() || !image.permute({1, 2, 0}).is_contiguous()) return image.contiguous();
  Tensor y = empty(image.shape(), image.dtype());
  if (image.dtype() == kUInt8) copy_planes_of(image, y.data<uint8_t>());
  else copy_planes_of(image, y.data<int32_t>());
  return y;
}

// ---- reading

ImageInfo image_info(std::span<const uint8_t> bytes, const std::string& name) {
  ImageBytes in{bytes, name};
  ImageFormat f = format_of(in);
  return f == ImageFormat::PNG ? png_info(in) : f == ImageFormat::JPEG ? jpeg_info(in) : webp_info(in);
}

Tensor decode_image(std::span<const uint8_t> bytes, const std::string& name, const ImageReadOptions& options) {
  SF_CHECK(options.bits == 8 || options.bits == 16, "read_image: bits must be 8 or 16, got ", options.bits);
  static const int64_t allowed = env::integer("SF_IMAGE_MAX_PIXELS");
  ImageBytes in{bytes, name};
  ImageLimits limits{options.max_pixels.value_or(allowed), options.bits, options.mode};
  SF_CHECK(limits.max_pixels > 0, "read_image: max_pixels must be positive, got ", limits.max_pixels);
  ImageFormat f = format_of(in);
  ImageInfo info;
  Tensor x = f == ImageFormat::PNG    ? png_pixels(in, limits, info)
             : f == ImageFormat::JPEG ? jpeg_pixels(in, limits, info)
                                      : webp_pixels(in, limits, info);
  if (options.bits == 16) x = widened(x);
  x = in_mode(x, options.mode);
  if (options.apply_orientation && info.orientation != 1)
    x = x.dtype() == kUInt8 ? oriented<uint8_t>(x, info.orientation) : oriented<int32_t>(x, info.orientation);
  return x.permute({2, 0, 1});
}

static std::vector<uint8_t> read_whole(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  SF_CHECK_AS(RuntimeError, fd >= 0, path, ": cannot open: ", std::strerror(errno));
  struct Close {
    int fd;
    ~Close() { close(fd); }
  } guard{fd};
  struct stat s;
  SF_CHECK_AS(RuntimeError, fstat(fd, &s) == 0 && S_ISREG(s.st_mode), path, ": is not a regular file");
  SF_CHECK(s.st_size <= int64_t(1) << 31, path, ": has ", int64_t(s.st_size), " bytes, too many for a picture");
  std::vector<uint8_t> bytes(size_t(s.st_size));
  size_t have = 0;
  while (have < bytes.size()) {
    ssize_t n = read(fd, bytes.data() + have, bytes.size() - have);
    if (n < 0 && errno == EINTR) continue;
    SF_CHECK_AS(RuntimeError, n >= 0, path, ": cannot read: ", std::strerror(errno));
    if (n == 0) break;
    have += size_t(n);
  }
  bytes.resize(have);
  return bytes;
}

ImageInfo image_info(const std::string& path) {
  std::vector<uint8_t> bytes = read_whole(path);
  return image_info(bytes, path);
}

Tensor read_image(const std::string& path, const ImageReadOptions& options) {
  std::vector<uint8_t> bytes = read_whole(path);
  return decode_image(bytes, path, options);
}

// ---- writing

std::string encode_image(const Tensor& image, ImageFormat format, const ImageWriteOptions& options) {
  SF_CHECK(options.quality >= 1 && options.quality <= 100, "write_image: quality must be 1 to 100, got ",
           options.quality);
  SF_CHECK(options.compression >= 0 && options.compression <= 9, "write_image: compression must be 0 to 9, got ",
           options.compression);
  SF_CHECK(options.text.empty() || format == ImageFormat::PNG, "write_image: text is written to PNG only, got it for ",
           name(format));
  SF_CHECK(!options.lossless || format != ImageFormat::JPEG, "write_image: JPEG is never lossless; use PNG or WebP");
  Tensor pixels = rows_of_pixels("write_image", image);
  if (format == ImageFormat::PNG) return png_encode(pixels, options);
  if (format == ImageFormat::JPEG) {
    SF_CHECK(pixels.size(2) % 2 == 1, "write_image: JPEG has no transparency, got ", pixels.size(2),
             " channels; composite over a colour first");
    return jpeg_encode(pixels, options);
  }
  if (pixels.size(2) <= 2) pixels = in_mode(pixels, pixels.size(2) == 1 ? ImageMode::RGB : ImageMode::RGBA);
  return webp_encode(pixels, options);
}

void write_image(const std::string& path, const Tensor& image, const ImageWriteOptions& options) {
  std::string suffix = std::filesystem::path(path).extension().string();
  SF_CHECK(!suffix.empty(), "write_image: the path needs a suffix that says the format (.png, .jpg, .webp), got '",
           path, "'");
  std::string bytes = encode_image(image, image_format(suffix), options);
  ReplacingFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

}  // namespace sf::io
