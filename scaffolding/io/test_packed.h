// Reads a golden file that lies under gzip or xz.
#pragma once
#include <lzma.h>
#include <zlib.h>

#include <fstream>
#include <iterator>
#include <string>

#include "scaffolding/core/error.h"

namespace sf::test {

inline std::string unpacked_gzip(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  SF_CHECK_AS(RuntimeError, file, path, ": cannot be opened");
  std::string bytes, part(size_t(1) << 16, '\0');
  int got;
  while ((got = gzread(file, part.data(), unsigned(part.size()))) > 0) bytes.append(part, 0, size_t(got));
  SF_CHECK_AS(RuntimeError, gzclose(file) == Z_OK && got == 0, path, ": is damaged");
  return bytes;
}

inline std::string unpacked_xz(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  SF_CHECK_AS(RuntimeError, file, path, ": cannot be opened");
  const std::string packed{std::istreambuf_iterator<char>(file), {}};
  lzma_stream stream = LZMA_STREAM_INIT;
  lzma_ret state = lzma_stream_decoder(&stream, UINT64_MAX, 0);
  stream.next_in = reinterpret_cast<const uint8_t*>(packed.data()), stream.avail_in = packed.size();
  std::string bytes, part(size_t(1) << 16, '\0');
  while (state == LZMA_OK) {
    stream.next_out = reinterpret_cast<uint8_t*>(part.data()), stream.avail_out = part.size();
    state = lzma_code(&stream, LZMA_FINISH);
    bytes.append(part, 0, part.size() - stream.avail_out);
  }
  lzma_end(&stream);
  SF_CHECK_AS(RuntimeError, state == LZMA_STREAM_END, path, ": is damaged");
  return bytes;
}

// The bytes of the packed file at path. RuntimeError where it cannot be opened or is damaged.
inline std::string unpacked(const std::string& path) {
  return path.ends_with(".xz") ? unpacked_xz(path) : unpacked_gzip(path);
}

}  // namespace sf::test
