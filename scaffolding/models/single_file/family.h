// Of which family a checkpoint is, for whoever only wants to tell: recognise_single_file() (kinds.h) says in an error
// why one cannot be loaded.
#pragma once
#include "scaffolding/models/single_file/kinds.h"

namespace sf::models {

// Null for what is none of the kinds. outer: as there.
const SingleFileKind* find_single_file_kind(const io::Checkpoint& file, const std::string& outer);
// "AuraFlow", with the class that loads the denoiser of its files, which hold nothing else that can be loaded: "" where
// that is not supported. No title: one of the kinds, or not known.
struct OtherFamily {
  std::string title, model_alone;
};
OtherFamily other_family(const io::Checkpoint& file, const std::string& outer);

}  // namespace sf::models
