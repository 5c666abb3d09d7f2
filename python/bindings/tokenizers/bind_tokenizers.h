// Tokenizers, bound as scaffolding._core._Tokenizer, _CLIPTokenizer,
// _GemmaTokenizer, _Qwen2Tokenizer and _T5Tokenizer; called once by the module.
#pragma once
#include <nanobind/nanobind.h>

namespace sf::py {

void bind_tokenizers(nanobind::module_& m);

}  // namespace sf::py
