// PNG is read through libpng, which reports errors by longjmp: every function that calls setjmp here keeps only plain
// data in its frame, and all memory belongs to the Reader of its caller, whose destructor runs as usual.
#include <cstring>

#include "scaffolding/io/pictures/image_codecs.h"

#ifdef SF_WITH_PNG
#include <png.h>

#include <vector>

namespace sf::io {

namespace {

struct Failure {
  char message[160] = "";
};

void on_error(png_structp png, png_const_charp message) {
  auto* f = static_cast<Failure*>(png_get_error_ptr(png));
  std::strncpy(f->message, message, sizeof f->message - 1);
  png_longjmp(png, 1);
}
void on_warning(png_structp, png_const_charp) {}

constexpr size_t kTextBytes = 8 << 20;  // what one text or profile chunk may take unpacked

struct Reader {
  explicit Reader(const ImageBytes& in) : bytes(in.bytes) {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &failure, on_error, on_warning);
    if (png) info = png_create_info_struct(png);
    SF_CHECK_AS(RuntimeError, info, in.name, ": libpng has no memory");
  }
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
  Reader(const Reader&) = delete;

  std::span<const uint8_t> bytes;
  size_t at = 0;
  Failure failure;
  png_structp png = nullptr;
  png_infop info = nullptr;
  png_uint_32 width = 0, height = 0;
  int bits = 0, colour = 0;
  bool transparent = false;
};

void on_read(png_structp png, png_bytep out, size_t n) {
  auto* r = static_cast<Reader*>(png_get_io_ptr(png));
  if (n > r->bytes.size() - r->at) png_error(png, "it ends too early");
  std::memcpy(out, r->bytes.data() + r->at, n);
  r->at += n;
}

bool read_header(Reader& r) {
  if (setjmp(png_jmpbuf(r.png))) return false;
  png_set_read_fn(r.png, &r, on_read);
  png_set_user_limits(r.png, 0x7fffffff, 0x7fffffff);  // check_pixels has the say
  png_set_chunk_malloc_max(r.png, kTextBytes);
  png_read_info(r.png, r.info);
  int interlace, compression, filter;
  png_get_IHDR(r.png, r.info, &r.width, &r.height, &r.bits, &r.colour, &interlace, &compression, &filter);
  r.transparent = png_get_valid(r.png, r.info, PNG_INFO_tRNS);
  return true;
}

bool read_pixels(Reader& r, png_bytepp rows, bool keep_16) {
  if (setjmp(png_jmpbuf(r.png))) return false;
  png_read_image(r.png, rows);
  png_read_end(r.png, r.info);
  return true;
}

// Sets up the conversion to 1 to 4 channels of 8 or 16 bits; false with a message in failure.
bool set_transforms(Reader& r, bool keep_16) {
  if (setjmp(png_jmpbuf(r.png))) return false;
  png_set_expand(r.png);  // palettes to RGB, fewer bits to 8, tRNS to alpha
  if (r.bits == 16 && !keep_16) png_set_strip_16(r.png);
  if (r.bits == 16 && keep_16) png_set_swap(r.png);  // the machine's order
  png_set_interlace_handling(r.png);
  png_read_update_info(r.png, r.info);
  return true;
}

std::string utf8_of_latin1(const char* s, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) {
    auto c = uint8_t(s[i]);
    if (c < 0x80) out += char(c);
    else out += {char(0xC0 | c >> 6), char(0x80 | (c & 0x3F))};
  }
  return out;
}

void fill_info(Reader& r, ImageInfo& info) {
  info.format = ImageFormat::PNG;
  info.width = r.width;
  info.height = r.height;
  info.bits = r.bits;
  info.palette = r.colour == PNG_COLOR_TYPE_PALETTE;
  bool alpha = (r.colour & PNG_COLOR_MASK_ALPHA) || r.transparent;
  info.mode = r.colour & PNG_COLOR_MASK_COLOR ? (alpha ? ImageMode::RGBA : ImageMode::RGB)
                                              : (alpha ? ImageMode::LA : ImageMode::L);
#ifdef PNG_eXIf_SUPPORTED
  png_uint_32 exif_bytes = 0;
  png_bytep exif = nullptr;
  if (png_get_eXIf_1(r.png, r.info, &exif_bytes, &exif)) info.orientation = exif_orientation({exif, exif_bytes});
#endif
  png_textp text = nullptr;
  int count = 0;
  png_get_text(r.png, r.info, &text, &count);
  for (int i = 0; i < count; ++i) {
    bool utf8 = text[i].compression >= PNG_ITXT_COMPRESSION_NONE;
    size_t n = utf8 ? text[i].itxt_length : text[i].text_length;
    info.text[utf8_of_latin1(text[i].key, std::strlen(text[i].key))] = !text[i].text ? ""
                                                                       : utf8        ? std::string(text[i].text, n)
                                                                                     : utf8_of_latin1(text[i].text, n);
  }
}

}  // namespace

ImageInfo png_info(const ImageBytes& in) {
  Reader r(in);
  if (!read_header(r)) broken_image(in, ImageFormat::PNG, r.failure.message);
  ImageInfo info;
  fill_info(r, info);
  return info;
}

Tensor png_pixels(const ImageBytes& in, const ImageLimits& limits, ImageInfo& info) {
  Reader r(in);
  if (!read_header(r)) broken_image(in, ImageFormat::PNG, r.failure.message);
  check_pixels(in, r.width, r.height, limits.max_pixels);
  // Deflate packs at most 1032 to 1: a short file that names many pixels is cut short or means harm.
  if (png_get_rowbytes(r.png, r.info) / 1032 * r.height > in.bytes.size())
    broken_image(in, ImageFormat::PNG, "it is too short for its size");
  fill_info(r, info);
  bool keep_16 = limits.bits == 16 && r.bits == 16;
  if (!set_transforms(r, keep_16)) broken_image(in, ImageFormat::PNG, r.failure.message);
  int64_t H = r.height, W = r.width, C = png_get_channels(r.png, r.info),
          row_bytes = int64_t(png_get_rowbytes(r.png, r.info));
  SF_CHECK_AS(RuntimeError, C == int64_t(info.mode) && row_bytes == W * C * (keep_16 ? 2 : 1), in.name,
              ": libpng unpacks it to ", C, " channels");
  Tensor pixels = empty({H, W, C}, keep_16 ? kInt16 : kUInt8);
  std::vector<png_bytep> rows(static_cast<size_t>(H));
  for (int64_t y = 0; y < H; ++y) rows[size_t(y)] = static_cast<png_bytep>(pixels.data_ptr()) + y * row_bytes;
  if (!read_pixels(r, rows.data(), keep_16)) broken_image(in, ImageFormat::PNG, r.failure.message);
  fill_info(r, info);
  if (!keep_16) return pixels;
  Tensor wide = empty({H, W, C}, kInt32);
  const int16_t* from = pixels.data<int16_t>();
  int32_t* to = wide.data<int32_t>();
  for (int64_t i = 0; i < wide.numel(); ++i) to[i] = uint16_t(from[i]);
  return wide;
}

}  // namespace sf::io

#else

namespace sf::io {
[[noreturn]] static void absent() {
  fail<NotSupported>("this build reads no PNG: rebuild with -DSF_PNG=ON and libpng");
}
ImageInfo png_info(const ImageBytes&) { absent(); }
Tensor png_pixels(const ImageBytes&, const ImageLimits&, ImageInfo&) { absent(); }
}  // namespace sf::io

#endif
