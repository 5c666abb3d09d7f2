#include <algorithm>
#include <cstdlib>

#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/io/checkpoint_head.h"
#include "scaffolding/models/single_file/description.h"

// What a listing of models tells of a file.
SF_FUZZ_TARGET(model_description) {
  const auto file = sf::io::open_checkpoint_head(sf::io::Bytes::borrow(data, size, "fuzz"));
  const auto is = sf::models::describe_checkpoint(*file, "fuzz", sf::io::ModelUse::Any);
  auto& kinds = sf::models::described_kinds();
  if (std::find(kinds.begin(), kinds.end(), is.kind) == kinds.end() || is.parameters < 0) std::abort();
}
