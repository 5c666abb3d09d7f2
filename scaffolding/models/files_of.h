// Larger classes whose files hold a model, which is read in their place: of the config its flat_config takes the
// model's part, of the tensors its current_key() leaves out what is not the model's before it is read.
//   SF_FILES_OF(Gemma3TextModel, "Gemma3ForConditionalGeneration, Gemma3Model");
// find_model() and model_class() know the larger names; a model's own name is what stands in the files that it writes.
#pragma once
#include <string>
#include <string_view>

#include "scaffolding/core/kernel.h"

namespace sf::models {

// The model that is read for a class, or the class itself.
std::string_view model_in_files_of(std::string_view class_name);

namespace detail {
bool add_files_of(const char* model, std::string_view classes);
}

#define SF_FILES_OF(Type, classes)                                       \
  [[maybe_unused]] static const bool SF_CAT(sf_files_of_, __COUNTER__) = \
      ::sf::models::detail::add_files_of(#Type, classes)

}  // namespace sf::models
