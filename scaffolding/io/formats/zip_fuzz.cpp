#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/io/formats/zip.h"

SF_FUZZ_TARGET(zip) {
  sf::io::ZipReader zip(sf::io::Bytes::borrow(data, size, "fuzz"));
  for (auto& e : zip.entries()) {
    try {
      zip.read(e, true);
    } catch (
        const sf::ValueError&) {  // the checksums of most mutations are wrong; the other entries are still of interest
    }
  }
}
