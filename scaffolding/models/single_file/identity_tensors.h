// Tensors that a checkpoint leaves out because they are identities.
#pragma once
#include <memory>

#include "scaffolding/io/checkpoint.h"
#include "scaffolding/models/names/name_table.h"

namespace sf::models {

// The file with what it lacks of these tensors of a model: square ones, in the dtype of the model's first tensor there.
// The file itself where it lacks none.
std::shared_ptr<const io::Checkpoint> with_identities(std::shared_ptr<const io::Checkpoint> file,
                                                      const NameTable& model, const std::vector<std::string>& tensors);

}  // namespace sf::models
