// CLIP's own vocabulary, compiled into the library: OpenAI's merges (clip/merges.z; MIT, clip/LICENSE), from which the
// ids of all 49408 tokens follow. Any thread may call any of these.
#pragma once
#include <span>

#include "scaffolding/tokenizers/model.h"

namespace sf::tokenizers {

// The bytes inside of a word and at its end, in CLIP's order: those that stand for themselves, then the others.
std::vector<std::string> clip_byte_tokens();

struct ClipVocabulary {
  Vocabulary vocabulary;  // bytes, a token for each merge, <|startoftext|>, <|endoftext|>
  Merges merges;
};
ClipVocabulary clip_vocabulary();

// The ids of each merge's two tokens, 16 bits each, as four planes (low and high bytes of the left ids, then of the
// right ones), deflated by zlib. cmake/embedded_merges.cmake writes the function.
std::span<const unsigned char> clip_merges_file();

}  // namespace sf::tokenizers
