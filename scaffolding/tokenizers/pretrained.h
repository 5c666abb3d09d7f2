// Tokenizers by transformers' class names, as model_index.json and tokenizer_config.json have them. A class registers
// itself, with a file that its folders have and other classes' have not:
//   SF_TOKENIZER(CLIPTokenizer, "CLIPTokenizer, CLIPTokenizerFast", "merges.txt");
#pragma once
#include "scaffolding/core/error.h"
#include "scaffolding/core/kernel.h"
#include "scaffolding/tokenizers/tokenizer.h"

namespace sf::tokenizers {

// From files as transformers writes them. ValueError naming the classes there are for another, and file and rule for
// wrong files.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& class_name, const TokenizerFiles& files);
std::vector<std::string> tokenizer_classes();  // with the names of the fast ones
// The class of a folder's tokenizer: tokenizer_config.json's tokenizer_class, or by its files. ValueError where neither
// tells.
std::string tokenizer_class_of(const std::string& folder);

namespace detail {
using LoadTokenizer = std::shared_ptr<const Tokenizer> (*)(const TokenizerFiles& files);
bool add_tokenizer(std::string_view names, const char* file, LoadTokenizer load);
}  // namespace detail

#define SF_TOKENIZER(Type, names, file)                                                                            \
  [[maybe_unused]] static const bool SF_CAT(sf_tokenizer_, __COUNTER__) = ::sf::tokenizers::detail::add_tokenizer( \
      names, file,                                                                                                 \
      [](const ::sf::tokenizers::TokenizerFiles& files) -> std::shared_ptr<const ::sf::tokenizers::Tokenizer> {    \
        return std::make_shared<Type>(Type::from_pretrained(files));                                               \
      })

}  // namespace sf::tokenizers
