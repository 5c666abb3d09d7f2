#include <algorithm>
#include <queue>
#include <unordered_set>

#include "scaffolding/tokenizers/clip_merges.h"
#include "scaffolding/tokenizers/clip_tokenizer.h"
#include "scaffolding/tokenizers/tokenizer_parts.h"
#include "scaffolding/tokenizers/unicode.h"

namespace sf::tokenizers {

namespace {

constexpr int64_t kBytes = 512;  // each byte inside of a word and at its end
constexpr const char* kSuffix = "</w>";

struct Word {
  std::vector<uint32_t> symbols;
  int64_t count;
};

class Trainer {
 public:
  Trainer(std::vector<Word> words, std::vector<std::string> tokens)
      : words_(std::move(words)), tokens_(std::move(tokens)) {
    for (uint32_t id = 0; id < tokens_.size(); ++id) ids_[tokens_[id]] = id;
    for (uint32_t w = 0; w < words_.size(); ++w) count_pairs(w, 1);
    for (auto& [pair, entry] : pairs_) heap_.push({entry.count, pair});
  }

  Merges run(size_t vocabulary, int64_t min_frequency) {
    Merges merges;
    while (tokens_.size() < vocabulary && !heap_.empty()) {
      auto [count, pair] = heap_.top();
      heap_.pop();
      auto at = pairs_.find(pair);
      if (at == pairs_.end() || at->second.count != count) continue;  // an older count
      if (count < min_frequency) break;
      auto left = uint32_t(pair >> 32), right = uint32_t(pair);
      merges.emplace_back(tokens_[left], tokens_[right]);
      std::string joined = tokens_[left] + tokens_[right];
      auto [known, is_new] = ids_.try_emplace(joined, uint32_t(tokens_.size()));
      if (is_new) tokens_.push_back(joined);
      merge(left, right, known->second, std::move(at->second.words));
    }
    return merges;
  }
  const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  struct Entry {
    int64_t count = 0;
    std::unordered_set<uint32_t> words;  // that have, or had, the pair
  };
  struct Candidate {
    int64_t count;
    uint64_t pair;
    bool operator<(const Candidate& o) const { return count != o.count ? count < o.count : pair > o.pair; }
  };

  void count_pairs(uint32_t w, int64_t sign) {
    auto& s = words_[w].symbols;
    for (size_t i = 0; i + 1 < s.size(); ++i) {
      uint64_t pair = (uint64_t(s[i]) << 32) | s[i + 1];
      auto& entry = pairs_[pair];
      entry.count += sign * words_[w].count;
      if (sign > 0) entry.words.insert(w);
      changed_.insert(pair);
    }
  }

  void merge(uint32_t left, uint32_t right, uint32_t id, std::unordered_set<uint32_t> where) {
    changed_.clear();
    for (uint32_t w : where) {
      count_pairs(w, -1);
      auto& s = words_[w].symbols;
      size_t kept = 0;
      for (size_t i = 0; i < s.size(); ++i) {
        bool joined = i + 1 < s.size() && s[i] == left && s[i + 1] == right;
        s[kept++] = joined ? id : s[i];
        i += joined;
      }
      s.resize(kept);
      count_pairs(w, 1);
    }
    for (uint64_t pair : changed_) {
      auto at = pairs_.find(pair);
      if (at->second.count > 0) heap_.push({at->second.count, pair});
      else pairs_.erase(at);
    }
  }

  std::vector<Word> words_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, uint32_t> ids_;
  std::unordered_map<uint64_t, Entry> pairs_;
  std::unordered_set<uint64_t> changed_;
  std::priority_queue<Candidate> heap_;
};

}  // namespace

CLIPTokenizer train_bpe(const std::vector<std::string>& texts, const BpeTrainOptions& options) {
  SF_CHECK(options.vocab_size >= kBytes + 2 && options.vocab_size <= 10'000'000,
           "train_bpe: vocab_size must be between ", kBytes + 2, " and 10000000, got ", options.vocab_size);
  SF_CHECK(options.min_frequency >= 1, "train_bpe: min_frequency must be at least 1, got ", options.min_frequency);
  SF_CHECK(options.model_max_length > 2, "train_bpe: model_max_length must be above 2, got ", options.model_max_length);
  TokenizerConfig config;
  config.model_max_length = options.model_max_length;
  auto build = [&](const std::vector<std::string>& tokens, const Merges& merges) {
    Vocabulary vocabulary;
    for (auto& t : tokens) vocabulary.add(t, vocabulary.next_id(), "train_bpe");
    for (const char* t : {"<|startoftext|>", "<|endoftext|>"}) vocabulary.add(t, vocabulary.next_id(), "train_bpe");
    auto parts = std::make_unique<Tokenizer::Parts>();
    parts->model =
        std::make_unique<Bpe>(std::move(vocabulary), merges,
                              BpeOptions{.unk_token = "<|endoftext|>", .end_of_word_suffix = kSuffix}, "train_bpe");
    return CLIPTokenizer::make(std::move(parts), config, "train_bpe");
  };
  auto tokens = clip_byte_tokens();
  CLIPTokenizer plain = build(tokens, {});
  auto& stages = *plain.parts_;
  std::unordered_map<std::string, int64_t> counts;
  for (auto& text : texts) {
    require_utf8(text, "train_bpe");
    std::vector<Piece> pieces{{stages.normalizer->apply(text), true}};
    for (auto& p : stages.pre_tokenizer->apply(std::move(pieces))) ++counts[p.text];
  }
  std::vector<std::string> sorted;  // for the order not to depend on the texts' order
  for (auto& [word, n] : counts)
    if (!stages.added.id(word)) sorted.push_back(word);
  std::sort(sorted.begin(), sorted.end());
  std::vector<Word> words;
  words.reserve(sorted.size());
  for (auto& word : sorted) {
    std::vector<int64_t> ids;
    stages.model->tokenize(word, ids);
    words.push_back({{ids.begin(), ids.end()}, counts[word]});
  }
  Trainer trainer(std::move(words), std::move(tokens));
  Merges merges = trainer.run(size_t(options.vocab_size) - 2, options.min_frequency);
  return build(trainer.tokens(), merges);
}

}  // namespace sf::tokenizers
