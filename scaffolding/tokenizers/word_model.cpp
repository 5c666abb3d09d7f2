// WordPiece (BERT's: the longest token first) and WordLevel, and the choice of a model by its type.
#include "scaffolding/tokenizers/json_part.h"
#include "scaffolding/tokenizers/model.h"
#include "scaffolding/tokenizers/unicode.h"

namespace sf::tokenizers {

namespace {

struct WordPiece final : Model {
  explicit WordPiece(const JsonPart& part)
      : prefix(part.text_or("continuing_subword_prefix", "##")),
        longest(part.has("max_input_chars_per_word") ? part["max_input_chars_per_word"].integer(1, 100'000) : 100) {
    vocabulary = read_vocabulary(part["vocab"]);
    auto id = vocabulary.id(part["unk_token"].text());
    if (!id) part.refuse("unk_token '", part["unk_token"].text(), "' is not in the vocabulary");
    unk = *id;
  }
  void tokenize(std::string_view piece, std::vector<int64_t>& ids) const override {
    int64_t characters = 0;
    for (size_t i = 0; i < piece.size(); i += character_bytes(piece, i)) ++characters;
    if (characters > longest) return ids.push_back(unk);
    size_t before = ids.size();
    for (size_t begin = 0; begin < piece.size();) {
      size_t end = piece.size();
      std::optional<int64_t> id;
      for (; end > begin; --end) {
        if (end < piece.size() && (static_cast<unsigned char>(piece[end]) & 0xC0) == 0x80) continue;
        id = vocabulary.id((begin ? prefix : "") + std::string(piece.substr(begin, end - begin)));
        if (id) break;
      }
      if (!id) {
        ids.resize(before);
        return ids.push_back(unk);
      }
      ids.push_back(*id);
      begin = end;
    }
  }
  std::string prefix;
  int64_t longest, unk;
};

struct WordLevel final : Model {
  explicit WordLevel(const JsonPart& part) : where(part.where()) {
    vocabulary = read_vocabulary(part["vocab"]);
    unk = vocabulary.id(part.text_or("unk_token", ""));
  }
  void tokenize(std::string_view piece, std::vector<int64_t>& ids) const override {
    auto id = vocabulary.id(piece);
    SF_CHECK(id || unk, where, ": '", piece, "' is not in the vocabulary, and there is no unk_token");
    ids.push_back(id ? *id : *unk);
  }
  std::string where;
  std::optional<int64_t> unk;
};

}  // namespace

std::unique_ptr<Model> make_model(const JsonPart& part) {
  // Files from before version 0.9 have no type: a list of scores is Unigram's, merges are BPE's.
  std::string type = part.text_or("type", "");
  if (type.empty())
    type = part.has("merges") ? "BPE" : part.has("vocab") && part["vocab"].json().is_array() ? "Unigram" : "WordPiece";
  if (type == "BPE") return make_bpe(part);
  if (type == "Unigram") return make_unigram(part);
  if (type == "WordPiece") return std::make_unique<WordPiece>(part);
  if (type == "WordLevel") return std::make_unique<WordLevel>(part);
  part.refuse("the model '", type, "' is not known");
}

}  // namespace sf::tokenizers
