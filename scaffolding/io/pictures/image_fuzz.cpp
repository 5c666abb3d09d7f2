#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/io/pictures/image.h"

SF_FUZZ_TARGET(image) {
  static const std::string name = "fuzz";
  sf::io::image_info({data, size}, name);
  sf::io::decode_image({data, size}, name, {.bits = size % 2 ? 16 : 8, .max_pixels = 1 << 18});
}
