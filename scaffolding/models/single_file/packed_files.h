// Configs and tokenizers in the metadata of a safetensors file, so that a whole pipeline is one file: the files of its
// folder but for the weights, each under its path there ("scaffolding:unet/config.json"; what is no text as base64).
#pragma once
#include "scaffolding/models/single_file/kinds.h"

namespace sf::models {

using PackedFiles = std::map<std::string, std::string>;  // by path in the folder: "unet/config.json"
using Metadata = std::map<std::string, std::string>;     // as io::Checkpoint has it

Metadata packed_metadata(const PackedFiles& files);
// Nothing where the metadata has none. ValueError naming `path` and the entry for paths that no pipeline has, for too
// many or too large ones, and where model_index.json is not among them.
PackedFiles packed_files(const Metadata& metadata, const std::string& path);
// The path of the file that an entry of the metadata holds; "" for other entries.
std::string packed_path(const std::string& key);

// What such a file is made of: the components that its model_index.json names, with the configs that it brings. Their
// tensors stand behind the component's name ("unet.conv_in.weight"), or as in a published kind. ValueError for configs
// that are none.
SingleFileKind packed_kind(const PackedFiles& files, const io::Checkpoint& file, const std::string& path);

}  // namespace sf::models
