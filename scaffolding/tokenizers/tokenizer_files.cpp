#include "scaffolding/tokenizers/tokenizer_files.h"

#include <filesystem>

#include "scaffolding/core/error.h"

namespace sf::tokenizers {

TokenizerFiles::TokenizerFiles(std::string folder) : where_(std::move(folder)) {}
TokenizerFiles::TokenizerFiles(const char* folder) : where_(folder) {}
TokenizerFiles::TokenizerFiles(std::string where, FileTexts texts)
    : where_(std::move(where)), texts_(std::move(texts)), in_memory_(true) {}

bool TokenizerFiles::has(const char* name) const {
  if (in_memory_) return texts_.count(name) > 0;
  std::error_code ignored;
  return std::filesystem::exists(path(name), ignored);
}

io::Bytes TokenizerFiles::read(const char* name) const {
  if (!in_memory_) return io::Bytes::map(path(name));
  auto found = texts_.find(name);
  SF_CHECK_AS(RuntimeError, found != texts_.end(), path(name), ": there is no such file");
  return io::Bytes::copy(found->second.data(), found->second.size(), path(name));
}

}  // namespace sf::tokenizers
