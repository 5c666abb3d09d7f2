// CLIP's own vocabulary, compiled into the library: OpenAI's merges (clip/merges.z; MIT, clip/LICENSE), from which the
// ids of all 49408 tokens follow. Any thread may call any of these.
#pragma once
#include "scaffolding/tokenizers/model.h"

namespace sf::tokenizers {

// The bytes inside of a word and at its end, in CLIP's order: those that stand for themselves, then the others.
std::vector<std::string> clip_byte_tokens();

struct ClipVocabulary {
  Vocabulary vocabulary;  // bytes, a token for each merge, <|startoftext|>, <|endoftext|>
  Merges merges;
};
ClipVocabulary clip_vocabulary();

}  // namespace sf::tokenizers
