#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/io/formats/gguf.h"

SF_FUZZ_TARGET(gguf) {
  sf::io::GgufFile file(sf::io::Bytes::borrow(data, size, "fuzz"));
  file.metadata();
  for (auto& e : file.entries()) {
    file.stored(e.name).to_vector();
    try {
      file.get(e.name, size % 2 ? sf::kFloat32 : sf::kBFloat16).to_vector();
    } catch (const sf::NotSupported&) {}
  }
}
