// Checkpoints in several files beside an index: model-00001-of-00002.safetensors and model.safetensors.index.json, as
// diffusers and transformers write them.
#pragma once
#include <map>
#include <string>

#include "scaffolding/io/formats/safetensors.h"

namespace sf::io {

struct ShardIndex {
  std::map<std::string, std::string> weight_map;  // tensor name: file name
  Metadata metadata;                              // strings and numbers of "metadata", as text
};

bool is_shard_index(const Bytes& file);  // begins as a JSON object and has a "weight_map" early on
// ValueError unless it is {"metadata": {...}, "weight_map": {name: file}} with plain file names: no folders, no "..".
ShardIndex read_shard_index(const Bytes& file);

inline constexpr uint64_t kDefaultShardSize = 5'000'000'000;  // diffusers' "5GB"

// Writes `path` ("folder/model.safetensors") or, where the tensors have more than max_shard_size bytes, shards of at
// most that (a larger tensor gets one of its own), filled in the order of the names, and path + ".index.json". All
// files are on the disk before the first takes its place; the index comes last.
// What an earlier save left under these names is removed then.
// Returns the file to open: the index or `path`.
std::string save_sharded_safetensors(const std::map<std::string, Tensor>& tensors, const std::string& path,
                                     uint64_t max_shard_size = kDefaultShardSize, const Metadata& metadata = {});

}  // namespace sf::io
