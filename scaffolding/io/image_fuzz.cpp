// Any bytes as a picture: decoded or refused, never more.
#include "scaffolding/io/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string name = "fuzz";
  try {
    sf::io::image_info({data, size}, name);
    sf::io::decode_image({data, size}, name, {.bits = size % 2 ? 16 : 8, .max_pixels = 1 << 20});
  } catch (const sf::Error&) {}
  return 0;
}
