// SentencePieceModel: what a SentencePiece file (spiece.model, tokenizer.model) holds,
// a protobuf message of unknown origin. Plain data.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "scaffolding/io/file.h"

namespace sf::tokenizers {

struct SentencePiece {
  enum class Type { Normal = 1, Unknown = 2, Control = 3, UserDefined = 4, Unused = 5, Byte = 6 };
  std::string text;  // UTF-8, not empty
  double score = 0;  // finite
  Type type = Type::Normal;
};

struct SentencePieceModel {
  enum class Kind { Unigram = 1, Bpe = 2, Word = 3, Char = 4 };
  Kind kind = Kind::Unigram;
  std::vector<SentencePiece> pieces;  // by id
  int64_t unk_id = 0;                 // the one piece of type Unknown
  bool byte_fallback = false;
  std::string precompiled_charsmap;  // rules of normalization, as make_precompiled takes them; empty: none
};

// ValueError naming file and rule for what is no such file; fields that are not used here are passed over.
SentencePieceModel read_sentencepiece_model(const io::Bytes& file);

}  // namespace sf::tokenizers
