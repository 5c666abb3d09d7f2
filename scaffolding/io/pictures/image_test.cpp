#include "scaffolding/io/pictures/image.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "scaffolding/core/provider.h"
#include "scaffolding/core/source_dir.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/pictures/yuv_kernel.h"
#include "scaffolding/io/test_packed.h"

namespace sf::io {
namespace {

namespace fs = std::filesystem;

const std::string kGolden = SF_SOURCE_DIR "/tests/golden/data/";

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::span<const uint8_t> span_of(const std::string& s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}
Tensor decode(const std::string& s, const ImageReadOptions& options = {}) {
  return decode_image(span_of(s), "test", options);
}

// [C, H, W] of [H, W, C] as numpy wrote it.
Tensor golden(const std::string& name) {
  const std::string path = kGolden + "photo.safetensors.xz";
  Tensor t = SafetensorsFile(Bytes::take(test::unpacked(path), path)).get(name);
  return t.ndim() == 2 ? t.unsqueeze(0) : t.permute({2, 0, 1});
}
double largest_difference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  if (a.shape() != b.shape()) return 1e9;
  auto x = a.to_vector(), y = b.to_vector();
  double d = 0;
  for (size_t i = 0; i < x.size(); ++i) d = std::max(d, std::abs(x[i] - y[i]));
  return d;
}
Tensor noise(const Shape& shape) {
  Tensor t = empty(shape, kUInt8);
  uint32_t s = 12345;
  for (int64_t i = 0; i < t.numel(); ++i) t.data<uint8_t>()[i] = uint8_t((s = s * 1664525 + 1013904223) >> 24);
  return t;
}
template <class E = ValueError> void refused(const std::string& text, const std::function<void()>& f) {
  try {
    f();
    ADD_FAILURE() << "was accepted; expected '" << text << "'";
  } catch (const E& e) {
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
  }
}

TEST(Image, what_pillow_wrote_is_read_as_pillow_reads_it) {
  for (std::string name : {"photo.png", "photo.webp", "photo_alpha.webp"})
    EXPECT_EQ(largest_difference(read_image(kGolden + name), golden(name)), 0) << name;
  // Versions of libjpeg differ in the last bit of a colour conversion.
  for (std::string name : {"photo.jpg", "photo_grey.jpg", "photo_progressive.jpg"})
    EXPECT_LE(largest_difference(read_image(kGolden + name), golden(name)), 2) << name;
  EXPECT_LE(largest_difference(read_image(kGolden + "photo_cmyk.jpg"), golden("photo_cmyk.jpg")), 2);
}

// Alpha that is wanted leaves the conversion to libwebp; without it, it is ours.
TEST(Image, colours_of_lossy_webp_are_libwebps_on_every_instruction_set) {
  for (Shape size : {Shape{1, 1}, Shape{1, 2}, Shape{2, 1}, Shape{3, 5}, Shape{16, 16}, Shape{17, 31}, Shape{31, 64},
                     Shape{40, 129}, Shape{128, 200}}) {
    std::string file = encode_image(noise({4, size[0], size[1]}), ImageFormat::WebP, {.quality = 90});
    Tensor theirs = decode(file);
    ASSERT_EQ(theirs.size(0), 4);
    for (int i = 0; i < yuv_to_rgb.count(DeviceType::CPU); ++i) {
      std::string provider = provider_label(yuv_to_rgb.entry(DeviceType::CPU, i));
      pin_provider("yuv_to_rgb", provider);
      EXPECT_EQ(largest_difference(decode(file, {.mode = ImageMode::RGB}), theirs.slice(0, 0, 3)), 0)
          << provider << " " << size[0] << " x " << size[1];
      unpin_providers();
    }
  }
}

TEST(Image, exif_orientation_turns_the_picture_upright) {
  Tensor stored = golden("photo_turned.jpg");
  std::string path = kGolden + "photo_turned.jpg";
  EXPECT_EQ(image_info(path).orientation, 6);
  EXPECT_LE(largest_difference(read_image(path, {.apply_orientation = false}), stored), 2);
  Tensor upright = read_image(path);
  ASSERT_EQ(upright.shape(), (Shape{3, 40, 24}));
  for (int64_t c = 0; c < 3; ++c)  // 6: the stored left edge is the upright top, from its bottom to its top
    for (int64_t r = 0; r < 40; ++r)
      for (int64_t k = 0; k < 24; ++k)
        ASSERT_NEAR(upright[c][r][k].item(), stored[c][23 - k][r].item(), 2) << c << " " << r << " " << k;
}

TEST(Image, each_orientation_is_what_exif_defines) {
  // A 3 x 2 picture of grey blocks as JPEG with an EXIF block put behind its first marker.
  Tensor x = empty({1, 16, 24}, kUInt8);
  for (int64_t r = 0; r < 16; ++r)
    for (int64_t c = 0; c < 24; ++c) x.data<uint8_t>()[r * 24 + c] = uint8_t(40 * (r / 8 * 3 + c / 8));
  std::string plain = encode_image(x, ImageFormat::JPEG, {.quality = 100});
  // For each orientation, the blocks (row by row) of the upright picture.
  const std::vector<std::vector<int>> wanted = {{0, 1, 2, 3, 4, 5}, {2, 1, 0, 5, 4, 3}, {5, 4, 3, 2, 1, 0},
                                                {3, 4, 5, 0, 1, 2}, {0, 3, 1, 4, 2, 5}, {3, 0, 4, 1, 5, 2},
                                                {5, 2, 4, 1, 3, 0}, {2, 5, 1, 4, 0, 3}};
  for (int o = 1; o <= 8; ++o) {
    std::string exif("Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", 25);
    exif += char(o) + std::string("\0\0\0\0\0\0", 6);
    std::string marker = "\xff\xe1" + std::string(1, '\0') + char(exif.size() + 2) + exif;
    Tensor y = decode(plain.substr(0, 2) + marker + plain.substr(2));
    int64_t rows = o >= 5 ? 3 : 2, columns = 5 - rows;
    ASSERT_EQ(y.shape(), (Shape{1, rows * 8, columns * 8})) << o;
    for (int64_t i = 0; i < 6; ++i)
      EXPECT_NEAR(y[0][i / columns * 8 + 4][i % columns * 8 + 4].item(), 40 * wanted[size_t(o - 1)][size_t(i)], 2)
          << o << " " << i;
  }
}

TEST(Image, lossless_formats_return_what_was_written) {
  for (int64_t c = 1; c <= 4; ++c) {
    Tensor x = noise({c, 13, 17});
    EXPECT_EQ(largest_difference(decode(encode_image(x, ImageFormat::PNG)), x), 0) << c;
    ImageMode wide = c <= 2 ? (c == 1 ? ImageMode::RGB : ImageMode::RGBA) : ImageMode::Keep;
    EXPECT_EQ(
        largest_difference(decode(encode_image(x, ImageFormat::WebP, {.lossless = true})), convert_image(x, wide)), 0)
        << c;
  }
  Tensor strided = noise({9, 8, 3}).permute({2, 1, 0});
  EXPECT_EQ(largest_difference(decode(encode_image(strided, ImageFormat::PNG, {.compression = 0})), strided), 0);
  Tensor flat = noise({5, 6});
  EXPECT_EQ(largest_difference(decode(encode_image(flat, ImageFormat::PNG)), flat.unsqueeze(0)), 0);
  Tensor smooth = golden("photo.jpg");
  EXPECT_LE(largest_difference(decode(encode_image(smooth, ImageFormat::JPEG, {.quality = 100})), smooth), 30);
}

TEST(Image, modes_are_converted_as_pillow_converts_them) {
  Tensor rgb = golden("rgb_of_photo");
  EXPECT_EQ(largest_difference(convert_image(rgb, ImageMode::L), golden("grey_of_photo")), 0);
  Tensor rgba = read_image(kGolden + "photo.jpg", {.mode = ImageMode::RGBA});
  EXPECT_EQ(rgba.shape(), (Shape{4, 24, 40}));
  EXPECT_EQ(rgba[3].to(kInt64).sum().item(), 255 * 24 * 40);
  EXPECT_EQ(read_image(kGolden + "photo.png", {.mode = ImageMode::LA}).shape(), (Shape{2, 24, 40}));
  EXPECT_EQ(largest_difference(read_image(kGolden + "photo.png", {.mode = ImageMode::RGB}),
                               golden("photo.png").slice(0, 0, 3)),
            0);
  EXPECT_EQ(largest_difference(read_image(kGolden + "photo_alpha.webp", {.mode = ImageMode::RGB}),
                               golden("photo_alpha.webp").slice(0, 0, 3)),
            0);
  Tensor wide = read_image(kGolden + "photo.png", {.bits = 16});
  EXPECT_EQ(wide.dtype(), kInt32);
  EXPECT_EQ(wide[0][3][4].item(), 257 * golden("photo.png")[0][3][4].item());
}

// libpng reads what is written here: rows that each of the five filters suits, pixels of every size, every level.
TEST(Image, png_of_every_filter_and_level_is_read_by_libpng) {
  for (int64_t channels = 1; channels <= 4; ++channels)
    for (Shape size : {Shape{1, 1}, Shape{1, 2}, Shape{3, 1}, Shape{40, 33}, Shape{5, 700}}) {
      Tensor x = empty({channels, size[0], size[1]}, kUInt8);
      uint32_t random = 1;
      for (int64_t i = 0; i < x.numel(); ++i) {
        const int64_t row = i / size[1] % size[0], column = i % size[1];
        random = random * 1664525 + 1013904223;
        const int64_t kinds[] = {random >> 24, column * 3, row * 40 + (column * column) % 7, row + column * 2,
                                 (row * row + column * column) / 9};
        x.data<uint8_t>()[i] = uint8_t(kinds[row % 5]);
      }
      size_t least = SIZE_MAX;
      for (int level = 0; level <= 9; ++level) {
        const std::string png = encode_image(x, ImageFormat::PNG, {.compression = level});
        EXPECT_EQ(largest_difference(decode(png), x), 0)
            << channels << " of " << size[0] << " x " << size[1] << ", level " << level;
        if (level == 1) EXPECT_LE(png.size(), least + 16);
        least = std::min(least, png.size());
      }
    }
}

TEST(Image, png_text_survives) {
  ImageText text{{"parameters", "a cat\nSteps: 20"}, {"Title", "caf\xc3\xa9"}, {"Comment", "\xe7\x8c\xab"}};
  std::string png = encode_image(noise({3, 4, 4}), ImageFormat::PNG, {.text = text});
  EXPECT_EQ(image_info(span_of(png), "x").text, text);
  EXPECT_NE(png.find("tEXtparameters"), std::string::npos);
  EXPECT_NE(png.find("iTXtComment"), std::string::npos);  // beyond Latin-1
  refused("keyword", [] { encode_image(noise({3, 4, 4}), ImageFormat::PNG, {.text = {{std::string(80, 'k'), "v"}}}); });
  refused("keyword", [] { encode_image(noise({3, 4, 4}), ImageFormat::PNG, {.text = {{"a\nb", "v"}}}); });
  refused("PNG only", [] { encode_image(noise({3, 4, 4}), ImageFormat::WebP, {.text = {{"k", "v"}}}); });
}

TEST(Image, every_cut_is_refused_and_named) {
  for (auto format : {ImageFormat::PNG, ImageFormat::JPEG, ImageFormat::WebP})
    for (bool lossless : {false, true}) {
      if (lossless && format != ImageFormat::WebP) continue;
      std::string whole = encode_image(noise({3, 8, 8}), format, {.lossless = lossless});
      for (size_t n = 0; n < whole.size(); ++n) {
        // the byte that pads a chunk to an even size
        if (format == ImageFormat::WebP && n >= whole.size() - 1) continue;
        refused("test", [&] { decode(whole.substr(0, n)); });
      }
      EXPECT_NO_THROW(decode(whole));
    }
}

TEST(Image, damage_is_refused_or_decoded_never_more) {
  for (std::string name :
       {"photo.png", "photo.jpg", "photo_progressive.jpg", "photo.webp", "photo_alpha.webp", "photo_turned.jpg"}) {
    std::string whole = bytes_of(kGolden + name);
    uint32_t s = 7;
    for (int i = 0; i < 400; ++i) {
      std::string x = whole;
      for (int k = 0; k < 1 + i % 3; ++k) {
        s = s * 1664525 + 1013904223;
        x[(s >> 8) % x.size()] = char(s >> 24);
      }
      try {
        decode(x, {.max_pixels = 1 << 20});
      } catch (const ValueError&) {}
    }
  }
}

TEST(Image, sizes_are_checked_before_memory_is_taken) {
  std::string png = encode_image(noise({1, 4, 4}), ImageFormat::PNG);
  refused("16 that are allowed", [&] { decode(encode_image(noise({1, 4, 5}), ImageFormat::PNG), {.max_pixels = 16}); });
  EXPECT_NO_THROW(decode(png, {.max_pixels = 16}));
  // A header that names 2^31-1 x 2^31-1 pixels, with its checksum made right.
  auto with_size = [&](uint32_t w, uint32_t h) {
    std::string x = png;
    for (int i = 0; i < 4; ++i) {
      x[size_t(16 + i)] = char(w >> (24 - 8 * i));
      x[size_t(20 + i)] = char(h >> (24 - 8 * i));
    }
    uint32_t crc = ~0u;
    for (size_t i = 12; i < 29; ++i) {
      crc ^= uint8_t(x[i]);
      for (int k = 0; k < 8; ++k) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    for (int i = 0; i < 4; ++i) x[size_t(29 + i)] = char(~crc >> (24 - 8 * i));
    return x;
  };
  refused("more than the", [&] { decode(with_size(0x7fffffff, 0x7fffffff)); });
  refused("too short for its size", [&] { decode(with_size(13000, 13000)); });
}

TEST(Image, errors_name_the_file_and_the_reason) {
  refused<RuntimeError>("/nowhere/x.png: cannot open", [] { read_image("/nowhere/x.png"); });
  refused("test: is empty", [] { decode(""); });
  refused("no PNG, JPEG or WebP", [] { decode("GIF89a......"); });
  refused("format must be", [] { write_image("/tmp/x.gif", noise({3, 4, 4})); });
  refused("needs a suffix", [] { write_image("/tmp/x", noise({3, 4, 4})); });
  refused<TypeError>("must be uint8", [] { write_image("/tmp/x.png", zeros({3, 4, 4})); });
  refused("[C, H, W]", [] { write_image("/tmp/x.png", noise({5, 4, 4})); });
  refused("JPEG has no transparency", [] { write_image("/tmp/x.jpg", noise({4, 4, 4})); });
  refused("quality must be", [] { write_image("/tmp/x.jpg", noise({3, 4, 4}), {.quality = 0}); });
  refused("bits must be", [] { decode("", {.bits = 12}); });
}

TEST(Image, write_image_replaces_the_file) {
  fs::path folder = fs::temp_directory_path() / ("sf_image_" + std::to_string(getpid()));
  fs::create_directories(folder);
  Tensor x = noise({3, 6, 7});
  for (std::string name : {"a.png", "a.PNG", "a.jpg", "a.jpeg", "a.webp"}) {
    write_image((folder / name).string(), x);
    EXPECT_EQ(read_image((folder / name).string()).shape(), x.shape());
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 5);
  fs::remove_all(folder);
}

std::string shared_data() {
  const char* set = std::getenv("SF_SHARED_DATA");
  return set ? set : SF_SOURCE_DIR "/../shared/data";
}

TEST(Image, pngsuite_is_as_its_manifest_says) {
  std::ifstream manifest(shared_data() + "/pngsuite/MANIFEST.jsonl");
  if (!manifest) GTEST_SKIP() << "no PngSuite in " << shared_data();
  const std::map<std::string, ImageMode> modes = {{"1", ImageMode::L},     {"L", ImageMode::L},
                                                  {"I", ImageMode::L},     {"LA", ImageMode::LA},
                                                  {"RGB", ImageMode::RGB}, {"RGBA", ImageMode::RGBA}};
  int read = 0, refused_files = 0;
  for (std::string line; std::getline(manifest, line);) {
    auto row = nlohmann::json::parse(line);
    std::string path = shared_data() + "/" + row["file"].get<std::string>(), file = fs::path(path).filename();
    SCOPED_TRACE(file);
    if (file[0] == 'x') {  // corrupt by the suite's own word, whatever Pillow makes of it
      ++refused_files;
      refused(path, [&] { read_image(path); });
      continue;
    }
    ASSERT_EQ(row["pil"], "ok");
    ++read;
    ImageInfo info = image_info(path);
    Tensor x = read_image(path, {.apply_orientation = false});
    EXPECT_EQ(x.shape(), (Shape{int64_t(info.mode), row["size"][1].get<int64_t>(), row["size"][0].get<int64_t>()}));
    std::string mode = row["mode"];
    EXPECT_EQ(mode == "P", info.palette);
    EXPECT_TRUE(mode != "I" || info.bits == 16);
    EXPECT_TRUE(mode != "1" || info.bits == 1);
    // Pillow's mode leaves out that a colour is transparent (tRNS), and widens 16-bit LA to RGBA.
    int got = int(info.mode), wanted = modes.contains(mode) ? int(modes.at(mode)) : got;
    bool fits = got == wanted || got == wanted + 1 || (mode == "RGBA" && info.bits == 16 && info.mode == ImageMode::LA);
    EXPECT_TRUE(fits) << "Pillow says " << mode << ", this is " << got << " channels";
  }
  EXPECT_EQ(read, 161);
  EXPECT_EQ(refused_files, 14);
}

}  // namespace
}  // namespace sf::io
