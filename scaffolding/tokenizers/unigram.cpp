// Unigram: the segmentation whose tokens' log probabilities have the largest sum (Viterbi),
// by the tokenizers package's rules.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "scaffolding/tokenizers/json_part.h"
#include "scaffolding/tokenizers/model.h"
#include "scaffolding/tokenizers/unicode.h"

namespace sf::tokenizers {

namespace {

constexpr double kUnknownPenalty = 10;  // below the least score, as in SentencePiece

class Unigram final : public Model {
 public:
  explicit Unigram(UnigramOptions o) : where_(std::move(o.where)), byte_fallback_(o.byte_fallback), unk_(o.unk_id) {
    double least = std::numeric_limits<double>::infinity();
    for (auto& [token, score] : o.pieces) {
      vocabulary.add(token, int64_t(scores_.size()), where_);
      scores_.push_back(score);
      least = std::min(least, score);
    }
    unknown_score_ = least - kUnknownPenalty;
    build_trie();
  }

  void tokenize(std::string_view piece, std::vector<int64_t>& ids) const override {
    struct Node {
      double score = 0;
      size_t begin = SIZE_MAX;
      int64_t id = -1;
    };
    std::vector<Node> best(piece.size() + 1);
    auto reach = [&](size_t begin, size_t end, int64_t id, double score) {
      Node& target = best[end];
      double total = best[begin].score + score;
      if (target.begin == SIZE_MAX || total > target.score) target = {total, begin, id};
    };
    for (size_t i = 0; i < piece.size();) {
      size_t one = character_bytes(piece, i);
      bool single = false;
      uint32_t node = 0;
      for (size_t j = i; j < piece.size();) {
        auto next = children_.find(edge(node, piece[j++]));
        if (next == children_.end()) break;
        node = next->second;
        if (ids_[node] < 0) continue;
        reach(i, j, ids_[node], scores_[size_t(ids_[node])]);
        single |= j - i == one;
      }
      if (!single) {
        SF_CHECK(unk_ >= 0, where_, ": the text has a character that the vocabulary lacks, and there is no unk_id");
        reach(i, i + one, unk_, unknown_score_);
      }
      i += one;
    }
    std::vector<Range> parts;  // from the end; neighbours that are unknown are one
    for (size_t end = piece.size(); end > 0; end = best[end].begin) {
      bool unknown = best[end].id == unk_;
      if (unknown && !parts.empty() && parts.back().unknown) parts.back().begin = best[end].begin;
      else parts.push_back({best[end].begin, end, unknown});
    }
    for (size_t k = parts.size(); k-- > 0;) emit(piece.substr(parts[k].begin, parts[k].end - parts[k].begin), ids);
  }

 private:
  struct Range {
    size_t begin, end;
    bool unknown;
  };
  static uint64_t edge(uint32_t node, char c) { return (uint64_t(node) << 8) | static_cast<unsigned char>(c); }

  void build_trie() {
    ids_.assign(1, -1);
    for (int64_t id = 0; id < int64_t(scores_.size()); ++id) {
      const std::string& token = *vocabulary.token(id);
      if (token.empty()) continue;
      uint32_t node = 0;
      for (char c : token) {
        auto [at, is_new] = children_.try_emplace(edge(node, c), uint32_t(ids_.size()));
        if (is_new) ids_.push_back(-1);
        node = at->second;
      }
      ids_[node] = id;
    }
  }

  void emit(std::string_view part, std::vector<int64_t>& ids) const {
    if (auto id = vocabulary.id(part)) return ids.push_back(*id);
    size_t before = ids.size();
    for (size_t i = 0; byte_fallback_ && i < part.size(); ++i) {
      char code[8];
      std::snprintf(code, sizeof code, "<0x%02X>", static_cast<unsigned>(static_cast<unsigned char>(part[i])));
      auto id = vocabulary.id(code);
      if (!id) {
        ids.resize(before);
        break;
      }
      ids.push_back(*id);
    }
    if (ids.size() > before) return;
    SF_CHECK(unk_ >= 0, where_, ": '", part, "' is not in the vocabulary, and there is no unk_id");
    ids.push_back(unk_);
  }

  std::string where_;
  bool byte_fallback_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  int64_t unk_;
  std::unordered_map<uint64_t, uint32_t> children_;
  std::vector<int64_t> ids_;  // of the trie's nodes
};

}  // namespace

std::unique_ptr<Model> make_unigram(UnigramOptions options) { return std::make_unique<Unigram>(std::move(options)); }

std::unique_ptr<Model> make_unigram(const JsonPart& part) {
  JsonPart list = part["vocab"];
  UnigramOptions o{.byte_fallback = part.flag_or("byte_fallback", false), .where = list.where()};
  if (!list.json().is_array() || list.json().empty()) list.refuse("must be a list of [token, score] that is not empty");
  for (auto& entry : list.json()) {
    const size_t id = o.pieces.size();
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
      list.refuse("entry ", id, " must be [token, score]");
    const double score = entry[1].get<double>();
    if (!std::isfinite(score)) list.refuse("the score of entry ", id, " must be finite");
    o.pieces.emplace_back(entry[0].get_ref<const std::string&>(), score);
  }
  if (part.has("unk_id")) o.unk_id = part["unk_id"].integer(0, int64_t(o.pieces.size()) - 1);
  return make_unigram(std::move(o));
}

}  // namespace sf::tokenizers
