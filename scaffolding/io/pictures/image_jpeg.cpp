// JPEG through libjpeg(-turbo). Errors come by longjmp: every function that calls setjmp here keeps only plain data in
// its frame, and all memory belongs to the Reader or Writer of its caller.
#include <cstring>

#include "scaffolding/io/pictures/image_codecs.h"

#ifdef SF_WITH_JPEG
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
// jpeglib.h needs size_t and FILE
#include <jpeglib.h>
// jerror.h needs jpeglib.h
#include <jerror.h>

namespace sf::io {

namespace {

struct Errors {
  jpeg_error_mgr base;  // first: libjpeg hands out a pointer to it
  jmp_buf jump;
  char message[JMSG_LENGTH_MAX] = "";
};

void on_error(j_common_ptr c) {
  auto* e = reinterpret_cast<Errors*>(c->err);
  (*c->err->format_message)(c, e->message);
  longjmp(e->jump, 1);
}
// Warnings about missing or damaged data are errors here: libjpeg would paint the rest grey. Others are harmless.
void on_message(j_common_ptr c, int level) {
  int code = c->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
                    code == JWRN_ARITH_BAD_CODE || code == JWRN_MUST_RESYNC))
    on_error(c);
}

constexpr int kMaxScans = 200;  // encoders write about ten; a crafted file makes each of thousands cost a whole picture
void on_progress(j_common_ptr c) {
  auto* d = reinterpret_cast<j_decompress_ptr>(c);
  if (d->input_scan_number > kMaxScans) ERREXIT(c, JERR_BAD_PROGRESSION);
}

struct Reader {
  explicit Reader(const ImageBytes& in) : bytes(in.bytes) {
    c.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = on_error;
    errors.base.emit_message = on_message;
    progress.progress_monitor = on_progress;
  }
  ~Reader() { jpeg_destroy_decompress(&c); }  // does nothing where creation failed
  Reader(const Reader&) = delete;

  std::span<const uint8_t> bytes;
  Errors errors;
  jpeg_progress_mgr progress{};
  jpeg_decompress_struct c{};
};

bool read_header(Reader& r) {
  if (setjmp(r.errors.jump)) return false;
  jpeg_create_decompress(&r.c);
  r.c.progress = &r.progress;
  jpeg_mem_src(&r.c, r.bytes.data(), static_cast<unsigned long>(r.bytes.size()));
  jpeg_save_markers(&r.c, JPEG_APP0 + 1, 0xFFFF);
  jpeg_read_header(&r.c, TRUE);
  r.c.out_color_space = r.c.num_components == 1 ? JCS_GRAYSCALE : r.c.num_components == 4 ? JCS_CMYK : JCS_RGB;
  return true;
}

bool read_pixels(Reader& r, uint8_t* out, size_t row_bytes) {
  if (setjmp(r.errors.jump)) return false;
  jpeg_start_decompress(&r.c);
  while (r.c.output_scanline < r.c.output_height) {
    JSAMPROW row = out + r.c.output_scanline * row_bytes;
    jpeg_read_scanlines(&r.c, &row, 1);
  }
  jpeg_finish_decompress(&r.c);
  return true;
}

void fill_info(const Reader& r, ImageInfo& info) {
  info.format = ImageFormat::JPEG;
  info.width = r.c.image_width;
  info.height = r.c.image_height;
  info.mode = r.c.num_components == 1 ? ImageMode::L : ImageMode::RGB;
  for (auto* m = r.c.marker_list; m; m = m->next)
    if (m->data_length > 6 && !std::memcmp(m->data, "Exif\0", 6)) {
      info.orientation = exif_orientation({m->data + 6, m->data_length - 6});
      break;
    }
}

void rgb_of_cmyk(const uint8_t* from, uint8_t* to, int64_t pixels, bool inverted) {
  auto product = [](int a, int b) {  // a * b / 255, rounded
    int v = a * b + 128;
    return ((v >> 8) + v) >> 8;
  };
  for (int64_t i = 0; i < pixels; ++i, from += 4)
    for (int k = 0; k < 3; ++k) {
      int ink = inverted ? 255 - from[k] : from[k], paper = inverted ? from[3] : 255 - from[3];
      *to++ = uint8_t(std::max(0, paper - product(ink, paper)));
    }
}

}  // namespace

ImageInfo jpeg_info(const ImageBytes& in) {
  Reader r(in);
  if (!read_header(r)) broken_image(in, ImageFormat::JPEG, r.errors.message);
  ImageInfo info;
  fill_info(r, info);
  return info;
}

Tensor jpeg_pixels(const ImageBytes& in, const ImageLimits& limits, ImageInfo& info) {
  Reader r(in);
  if (!read_header(r)) broken_image(in, ImageFormat::JPEG, r.errors.message);
  fill_info(r, info);
  check_pixels(in, info.width, info.height, limits.max_pixels);
  bool cmyk = r.c.num_components == 4;
  int64_t C = cmyk ? 4 : int64_t(info.mode);
  Tensor pixels = empty({info.height, info.width, C}, kUInt8);
  if (!read_pixels(r, pixels.data<uint8_t>(), size_t(info.width * C)))
    broken_image(in, ImageFormat::JPEG, r.errors.message);
  if (!cmyk) return pixels;
  Tensor rgb = empty({info.height, info.width, 3}, kUInt8);
  // Adobe's programs store them inverted
  rgb_of_cmyk(pixels.data<uint8_t>(), rgb.data<uint8_t>(), info.height * info.width, r.c.saw_Adobe_marker);
  return rgb;
}

// ---- writing

namespace {

struct Writer {
  Writer() {
    c.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = on_error;
    errors.base.emit_message = on_message;
  }
  ~Writer() {
    jpeg_destroy_compress(&c);
    std::free(out);
  }
  Writer(const Writer&) = delete;

  Errors errors;
  jpeg_compress_struct c{};
  unsigned char* out = nullptr;
  unsigned long out_bytes = 0;
};

bool write_all(Writer& w, const uint8_t* pixels, int64_t height, int64_t width, int channels, int quality) {
  if (setjmp(w.errors.jump)) return false;
  jpeg_create_compress(&w.c);
  jpeg_mem_dest(&w.c, &w.out, &w.out_bytes);
  w.c.image_width = JDIMENSION(width);
  w.c.image_height = JDIMENSION(height);
  w.c.input_components = channels;
  w.c.in_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&w.c);
  jpeg_set_quality(&w.c, quality, TRUE);
  jpeg_start_compress(&w.c, TRUE);
  while (w.c.next_scanline < w.c.image_height) {
    auto* row = const_cast<uint8_t*>(pixels + int64_t(w.c.next_scanline) * width * channels);
    jpeg_write_scanlines(&w.c, &row, 1);
  }
  jpeg_finish_compress(&w.c);
  return true;
}

}  // namespace

std::string jpeg_encode(const Tensor& pixels, const ImageWriteOptions& options) {
  Writer w;
  SF_CHECK(write_all(w, pixels.data<uint8_t>(), pixels.size(0), pixels.size(1), int(pixels.size(2)), options.quality),
           "write_image: JPEG: ", w.errors.message);
  return {reinterpret_cast<char*>(w.out), w.out_bytes};
}

}  // namespace sf::io

#else

namespace sf::io {
[[noreturn]] static void absent() {
  fail<NotSupported>("this build reads and writes no JPEG: rebuild with -DSF_JPEG=ON and libjpeg");
}
ImageInfo jpeg_info(const ImageBytes&) { absent(); }
Tensor jpeg_pixels(const ImageBytes&, const ImageLimits&, ImageInfo&) { absent(); }
std::string jpeg_encode(const Tensor&, const ImageWriteOptions&) { absent(); }
}  // namespace sf::io

#endif
