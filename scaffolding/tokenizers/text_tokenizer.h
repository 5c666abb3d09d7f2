// TextTokenizer: words as ids without a vocabulary. A word's id is a hash of its letters, the same in every process and
// on every machine; two words may share one. For networks that learn their words from few texts, such as the small
// video family's. Immutable, any thread.
#pragma once
#include "scaffolding/tokenizers/tokenizer.h"

namespace sf::tokenizers {

class TextTokenizer {
 public:
  static constexpr int64_t kPad = 0, kBegin = 1, kEnd = 2, kFirstWord = 3;
  static constexpr int64_t kMostIds = 1 << 20, kMostTokens = 1 << 16;

  // ValueError for a vocabulary without words, a length without room for the ends, and sizes past the limits.
  explicit TextTokenizer(int64_t vocab_size = 8192, int64_t max_length = 77);
  // A folder with the tokenizer_config.json that save_pretrained writes. ValueError naming file and rule for a wrong
  // one.
  static TextTokenizer from_pretrained(const std::string& folder);
  void save_pretrained(const std::string& folder) const;

  // What ids stand for: in lower case (NFC), runs of letters, digits, marks and underscores, and every other character
  // that is neither white space nor control by itself. ValueError for a text that is not UTF-8.
  static std::vector<std::string> words(std::string_view text);
  // From kFirstWord to vocab_size - 1: FNV-1a of 64 bits over the UTF-8, modulo the ids there are.
  int64_t id_of(std::string_view word) const;
  // kBegin, the ids of as many words as fit, kEnd, and kPad up to max_length.
  Encoding encode(std::string_view text) const;

  int64_t vocab_size() const { return vocab_size_; }
  int64_t max_length() const { return max_length_; }

 private:
  int64_t vocab_size_, max_length_;
};

}  // namespace sf::tokenizers
