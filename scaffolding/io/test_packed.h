// Reads a golden file that lies under gzip.
#pragma once
#include <zlib.h>

#include <string>

#include "scaffolding/core/error.h"

namespace sf::test {

// The bytes of the gzip file at path, unpacked. Throws RuntimeError where it cannot be opened or is damaged.
inline std::string unpacked(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  SF_CHECK_AS(RuntimeError, file, path, ": cannot be opened");
  std::string bytes, part(size_t(1) << 16, '\0');
  int got;
  while ((got = gzread(file, part.data(), unsigned(part.size()))) > 0) bytes.append(part, 0, size_t(got));
  SF_CHECK_AS(RuntimeError, gzclose(file) == Z_OK && got == 0, path, ": is damaged");
  return bytes;
}

}  // namespace sf::test
