// PNG is written here: rows filtered, and deflated by libdeflate, which takes a third of zlib's time for the same size.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#ifdef SF_WITH_DEFLATE
#include <libdeflate.h>
#endif
#include <zlib.h>

#include "scaffolding/core/parallel.h"
#include "scaffolding/io/pictures/image_codecs.h"

namespace sf::io {

namespace {

using Octets = std::vector<uint8_t>;

// The five filters of PNG's specification: each byte less what its neighbours say that it is. x is the row, above the
// one over it, left the bytes of a pixel.
int16_t paeth(int16_t a, int16_t b, int16_t c) {
  const int16_t pa = int16_t(std::abs(b - c)), pb = int16_t(std::abs(a - c)), pc = int16_t(std::abs(a + b - 2 * c));
  return pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
}
void filter(int which, const uint8_t* x, const uint8_t* above, int64_t n, int64_t left, uint8_t* to) {
  const int64_t edge = std::min(n, left);
  auto each = [&](const auto& predicted) {
    for (int64_t i = 0; i < edge; ++i) to[i] = uint8_t(x[i] - predicted(0, above[i], 0));
    for (int64_t i = edge; i < n; ++i) to[i] = uint8_t(x[i] - predicted(x[i - left], above[i], above[i - left]));
  };
  switch (which) {
    case 1: return each([](int16_t a, int16_t, int16_t) { return a; });
    case 2: return each([](int16_t, int16_t b, int16_t) { return b; });
    case 3: return each([](int16_t a, int16_t b, int16_t) { return int16_t((a + b) >> 1); });
    case 4: return each(paeth);
    default: std::memcpy(to, x, size_t(n));
  }
}

// [H][1 + row]: the number of a filter, and the row by it. Of the five the one whose bytes, signed, add up to least.
Octets filtered(const Tensor& pixels, bool plain) {
  const int64_t H = pixels.size(0), left = pixels.size(2), row = pixels.size(1) * left;
  Octets out(size_t(H * (row + 1)));
  const uint8_t* from = pixels.data<uint8_t>();
  const Octets nothing(static_cast<size_t>(row));
  parallel_for(H, std::max<int64_t>(1, (1 << 15) / row), [&](int64_t begin, int64_t end) {
    Octets tried(size_t(5 * row));
    for (int64_t y = begin; y < end; ++y) {
      const uint8_t *x = from + y * row, *above = y ? x - row : nothing.data();
      int best = 0;
      int64_t least = INT64_MAX;
      for (int which = 0; which < (plain ? 1 : 5); ++which) {
        uint8_t* to = tried.data() + which * row;
        filter(which, x, above, row, left, to);
        int64_t sum = 0;
        for (int64_t i = 0; i < row; ++i) sum += std::abs(int8_t(to[i]));
        if (sum < least) least = sum, best = which;
      }
      uint8_t* to = out.data() + y * (row + 1);
      *to = uint8_t(best);
      std::memcpy(to + 1, tried.data() + best * row, size_t(row));
    }
  });
  return out;
}

#ifdef SF_WITH_DEFLATE
Octets deflated(const Octets& data, int level) {
  const std::unique_ptr<libdeflate_compressor, decltype(&libdeflate_free_compressor)> compressor{
      libdeflate_alloc_compressor(level), &libdeflate_free_compressor};
  SF_CHECK_AS(RuntimeError, compressor, "write_image: libdeflate has no memory");
  Octets out(libdeflate_zlib_compress_bound(compressor.get(), data.size()));
  out.resize(libdeflate_zlib_compress(compressor.get(), data.data(), data.size(), out.data(), out.size()));
  return out;
}
#else
Octets deflated(const Octets& data, int level) {
  struct Stream : z_stream {
    explicit Stream(int level) : z_stream() {
      SF_CHECK_AS(RuntimeError, deflateInit2(this, level, Z_DEFLATED, 15, 8, Z_FILTERED) == Z_OK,
                  "write_image: zlib has no memory");
    }
    ~Stream() { deflateEnd(this); }
  } s(level);
  constexpr size_t kPiece = size_t(1) << 30;  // zlib counts in 32 bits
  Octets out;
  size_t at = 0, done = 0;
  for (int status = Z_OK; status != Z_STREAM_END;) {
    if (s.avail_in == 0 && at < data.size()) {
      s.next_in = const_cast<uint8_t*>(data.data()) + at;
      s.avail_in = uInt(std::min(kPiece, data.size() - at));
      at += s.avail_in;
    }
    if (done == out.size()) out.resize(out.size() + std::max<size_t>(1 << 16, out.size() / 2));
    s.next_out = out.data() + done;
    const size_t room = std::min(kPiece, out.size() - done);
    s.avail_out = uInt(room);
    status = deflate(&s, at == data.size() ? Z_FINISH : Z_NO_FLUSH);
    done += room - s.avail_out;
  }
  out.resize(done);
  return out;
}
#endif

void put(std::string& out, uint32_t v) {
  for (int shift = 24; shift >= 0; shift -= 8) out += char(v >> shift);
}

void put_chunk(std::string& out, std::string_view type, std::string_view data) {
  put(out, uint32_t(data.size()));
  const size_t from = out.size();
  out.append(type).append(data);
  put(out, uint32_t(crc32_z(0, reinterpret_cast<const Bytef*>(out.data() + from), out.size() - from)));
}

// False where a character is beyond Latin-1 or the bytes are no UTF-8.
bool latin1_of_utf8(const std::string& s, std::string& out) {
  for (size_t i = 0; i < s.size(); ++i) {
    auto c = uint8_t(s[i]);
    if (c < 0x80) out += char(c);
    else if ((c == 0xC2 || c == 0xC3) && i + 1 < s.size()) out += char(c << 6 | (uint8_t(s[++i]) & 0x3F));
    else return false;
  }
  return true;
}

bool is_printable(const std::string& latin1) {
  return std::all_of(latin1.begin(), latin1.end(), [](char c) {
    const auto v = uint8_t(c);
    return (v >= 32 && v < 127) || v > 160;
  });
}

void put_text(std::string& out, const std::string& key, const std::string& value) {
  std::string keyword, plain;
  SF_CHECK(latin1_of_utf8(key, keyword) && !keyword.empty() && keyword.size() <= 79 && is_printable(keyword),
           "write_image: a keyword of PNG text has 1 to 79 printable Latin-1 characters, got '", key, "'");
  SF_CHECK(value.find('\0') == std::string::npos, "write_image: PNG text holds no zero byte, got one in '", key, "'");
  keyword += '\0';
  if (latin1_of_utf8(value, plain)) put_chunk(out, "tEXt", keyword + plain);
  else put_chunk(out, "iTXt", keyword + std::string(4, '\0') + value);  // not compressed, of no language
}

}  // namespace

std::string png_encode(const Tensor& pixels, const ImageWriteOptions& options) {
  constexpr char kColours[] = {0, 4, 2, 6};  // grey, grey with alpha, RGB, RGBA
  const int64_t H = pixels.size(0), W = pixels.size(1), C = pixels.size(2);
  SF_CHECK(H <= INT32_MAX && W <= INT32_MAX, "write_image: a PNG has at most 2^31 - 1 rows and columns, got ", H, " x ",
           W);
  std::string out = "\x89PNG\r\n\x1a\n", header;
  put(header, uint32_t(W));
  put(header, uint32_t(H));
  header += {8, kColours[C - 1], 0, 0, 0};  // bits; deflate, adaptive filters, not interlaced
  put_chunk(out, "IHDR", header);
  for (auto& [key, value] : options.text) put_text(out, key, value);
  const Octets data = deflated(filtered(pixels, options.compression == 0), options.compression);
  constexpr size_t kMost = size_t(1) << 30;  // of a chunk, whose length has 31 bits
  for (size_t at = 0; at < data.size(); at += kMost)
    put_chunk(out, "IDAT", {reinterpret_cast<const char*>(data.data()) + at, std::min(kMost, data.size() - at)});
  put_chunk(out, "IEND", {});
  return out;
}

}  // namespace sf::io
