#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/io/formats/safetensors.h"

SF_FUZZ_TARGET(safetensors) {
  sf::io::SafetensorsFile file(sf::io::Bytes::borrow(data, size, "fuzz"));
  for (auto& e : file.entries()) {
    try {
      file.get(e.name).to_vector();
    } catch (const sf::NotSupported&) {}
  }
}
