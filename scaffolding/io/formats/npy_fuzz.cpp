#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/io/formats/npy.h"

SF_FUZZ_TARGET(npy) {
  auto bytes = sf::io::Bytes::borrow(data, size, "fuzz");
  if (!sf::io::ZipReader::recognises(bytes)) return void(sf::io::load_npy(bytes).to_vector());
  sf::io::NpzFile archive(bytes);
  for (auto& name : archive.names()) archive.get(name).to_vector();
}
