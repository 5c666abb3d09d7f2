// Tokenizers, bound as scaffolding._core._Tokenizer and _CLIPTokenizer; called once by the module.
#pragma once
#include <nanobind/nanobind.h>

namespace sf::py {

void bind_tokenizers(nanobind::module_& m);

}  // namespace sf::py
