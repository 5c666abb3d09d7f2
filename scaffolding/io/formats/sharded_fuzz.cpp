#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/io/formats/sharded.h"

// The JSON of an index: the configuration file that checkpoints come with.
SF_FUZZ_TARGET(shard_index) {
  auto index = sf::io::read_shard_index(sf::io::Bytes::borrow(data, size, "fuzz"));
  for (auto& [name, file] : index.weight_map)
    SF_CHECK_AS(RuntimeError, file.find('/') == std::string::npos, "internal: a path got through");
}
