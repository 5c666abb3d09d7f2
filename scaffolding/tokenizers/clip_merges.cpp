#include "scaffolding/tokenizers/clip_merges.h"

#include "scaffolding/tokenizers/embedded.h"
#include "scaffolding/tokenizers/unicode.h"

namespace sf::tokenizers {

namespace {
constexpr size_t kMerges = 48894;
}

std::vector<std::string> clip_byte_tokens() {
  std::vector<std::string> out;
  for (bool itself : {true, false})
    for (int b = 0; b < 256; ++b)
      if ((byte_of_character(char32_t(b)) == b) == itself) out.push_back(byte_character(static_cast<unsigned char>(b)));
  for (size_t i = 0; i < 256; ++i) out.push_back(out[i] + "</w>");
  return out;
}

ClipVocabulary clip_vocabulary() {
  const std::string planes = inflated("CLIPTokenizer: the merges", clip_merges_file(), 4 * kMerges);
  ClipVocabulary out;
  std::vector<std::string> tokens = clip_byte_tokens();
  tokens.reserve(tokens.size() + kMerges + 2);
  out.merges.reserve(kMerges);
  for (size_t i = 0; i < kMerges; ++i) {
    auto token = [&](size_t plane) -> const std::string& {
      auto byte = [&](size_t p) { return size_t(static_cast<unsigned char>(planes[p * kMerges + i])); };
      return tokens.at(byte(plane) | byte(plane + 1) << 8);
    };
    tokens.push_back(token(0) + token(2));
    out.merges.emplace_back(token(0), token(2));
  }
  tokens.insert(tokens.end(), {"<|startoftext|>", "<|endoftext|>"});
  for (size_t i = 0; i < tokens.size(); ++i) out.vocabulary.add(tokens[i], int64_t(i), "CLIPTokenizer");
  return out;
}

}  // namespace sf::tokenizers
