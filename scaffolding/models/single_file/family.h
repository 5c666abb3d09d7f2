// Of which family a checkpoint is, for whoever only wants to tell: recognise_single_file() (kinds.h) says in an error
// why one cannot be loaded.
#pragma once
#include "scaffolding/models/single_file/kinds.h"

namespace sf::models {

// Null for what is none of the kinds. outer: as there.
const SingleFileKind* find_single_file_kind(const io::Checkpoint& file, const std::string& outer);
// "FLUX.1"; "" of one that is supported, or not known.
std::string family_not_supported(const io::Checkpoint& file, const std::string& outer);

}  // namespace sf::models
