// TokenizerFiles: where a tokenizer's files are read from, a folder or texts in memory (a checkpoint's metadata). What
// is in memory comes from strangers as a folder does, and is checked by the same readers. Const use is thread-safe.
#pragma once
#include <map>
#include <string>

#include "scaffolding/io/file.h"

namespace sf::tokenizers {

using FileTexts = std::map<std::string, std::string>;  // by name: "merges.txt"

class TokenizerFiles {
 public:
  TokenizerFiles(std::string folder);
  TokenizerFiles(const char* folder);
  TokenizerFiles(std::string where, FileTexts texts);  // where: for messages

  const std::string& where() const { return where_; }
  std::string path(const char* name) const { return where_ + "/" + name; }
  bool has(const char* name) const;
  io::Bytes read(const char* name) const;  // RuntimeError naming it where it is not there

 private:
  std::string where_;
  FileTexts texts_;
  bool in_memory_ = false;
};

}  // namespace sf::tokenizers
