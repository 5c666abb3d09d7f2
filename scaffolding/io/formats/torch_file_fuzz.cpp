#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/io/formats/torch_file.h"

// Zip archives with PyTorch's entries, the older format and plain pickles.
SF_FUZZ_TARGET(torch_file) {
  auto tree = sf::io::load_torch(sf::io::Bytes::borrow(data, size, "fuzz"), {.placeholders = true});
  for (auto& [name, t] : sf::io::named_tensors(tree))
    if (t.numel() < 4096) t.to_vector();
}
