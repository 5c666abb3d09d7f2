// vocab.json and merges.txt: the two files of a byte-pair vocabulary, as GPT-2, CLIP and Qwen have them.
#pragma once
#include <string>

#include "scaffolding/io/file.h"
#include "scaffolding/tokenizers/model.h"

namespace sf::tokenizers {

// A line for each merge, its two tokens with a space between; a first line that begins with "#version" says nothing.
// ValueError naming file and line for another line.
Merges read_merges(const io::Bytes& file);
std::string merges_text(const Merges& merges);

}  // namespace sf::tokenizers
