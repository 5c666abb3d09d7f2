#include "scaffolding/tokenizers/embedded.h"

#include <zlib.h>

#include "scaffolding/core/error.h"

namespace sf::tokenizers {

std::string inflated(const char* what, std::span<const unsigned char> file, size_t size) {
  std::string bytes(size, '\0');
  auto got = uLongf(size);
  const int status = uncompress(reinterpret_cast<unsigned char*>(bytes.data()), &got, file.data(), uLong(file.size()));
  SF_CHECK_AS(RuntimeError, status == Z_OK && got == size, what, " in the library are damaged");
  return bytes;
}

}  // namespace sf::tokenizers
