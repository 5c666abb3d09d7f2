// Model: what turns one piece of text into ids. BPE, Unigram, WordPiece and WordLevel,
// as the tokenizers package has them.
// Made once; const use is thread-safe. Every id lies in [0, 2^31) and belongs to one token.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sf::tokenizers {

class JsonPart;

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
};
template <class V> using TextMap = std::unordered_map<std::string, V, TextHash, std::equal_to<>>;

// Tokens and ids, one to one.
class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;
  // ValueError naming `where` for an id outside of [0, 2^31) or a second token of an id.
  void add(const std::string& token, int64_t id, const std::string& where);
  std::optional<int64_t> id(std::string_view token) const;
  const std::string* token(int64_t id) const;  // null without one
  size_t size() const { return ids_.size(); }
  int64_t next_id() const { return next_; }                     // one above the largest
  std::vector<std::pair<int64_t, std::string>> sorted() const;  // by id

 private:
  TextMap<int64_t> ids_;
  std::unordered_map<int64_t, const std::string*> tokens_;  // keys of ids_, which stay where they are
  int64_t next_ = 0;
};
Vocabulary read_vocabulary(const JsonPart& object);  // {token: id}

struct Model {
  virtual ~Model() = default;
  virtual void tokenize(std::string_view piece, std::vector<int64_t>& ids) const = 0;  // appends
  Vocabulary vocabulary;
};
std::unique_ptr<Model> make_model(const JsonPart& part);
std::unique_ptr<Model> make_unigram(const JsonPart& part);

struct UnigramOptions {
  std::vector<std::pair<std::string, double>> pieces;  // by id, with finite scores; not empty
  int64_t unk_id = -1;                                 // -1: unknown characters are an error
  bool byte_fallback = false;
  std::string where;  // for messages
};
std::unique_ptr<Model> make_unigram(UnigramOptions options);

using Merges = std::vector<std::pair<std::string, std::string>>;

struct BpeOptions {
  std::string unk_token, continuing_subword_prefix, end_of_word_suffix;
  bool fuse_unk = false, byte_fallback = false, ignore_merges = false;
};

// Byte-pair encoding. A piece of n characters takes O(n log n): symbols are a linked list, possible merges a heap.
class Bpe final : public Model {
 public:
  // ValueError naming `where` and the merge for one whose parts or result are not in the vocabulary.
  Bpe(Vocabulary vocabulary, const Merges& merges, BpeOptions options, const std::string& where);
  ~Bpe() override;
  void tokenize(std::string_view piece, std::vector<int64_t>& ids) const override;
  Merges merges() const;  // by rank
  const BpeOptions& options() const { return options_; }

 private:
  struct Merge {
    uint32_t rank;
    int64_t id;
  };
  struct Cache;
  static uint64_t key(int64_t left, int64_t right) { return (uint64_t(left) << 32) | uint64_t(right); }
  std::vector<int64_t> symbols_of(std::string_view piece) const;
  void merge(std::vector<int64_t>& symbols) const;

  BpeOptions options_;
  std::unordered_map<uint64_t, Merge> merges_;
  std::unique_ptr<Cache> cache_;
};
std::unique_ptr<Bpe> make_bpe(const JsonPart& part);

}  // namespace sf::tokenizers
