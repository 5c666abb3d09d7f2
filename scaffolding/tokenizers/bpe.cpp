#include <algorithm>
#include <cstdio>
#include <mutex>
#include <queue>

#include "scaffolding/tokenizers/json_part.h"
#include "scaffolding/tokenizers/model.h"
#include "scaffolding/tokenizers/unicode.h"

namespace sf::tokenizers {

namespace {
constexpr size_t kCachedWords = 20'000, kLongestCached = 64;  // words of text repeat; the longest hardly do
}

// Pieces that were seen before. Forgets all when full.
struct Bpe::Cache {
  std::mutex lock;
  TextMap<std::vector<int64_t>> words;
};

Bpe::Bpe(Vocabulary v, const Merges& merges, BpeOptions options, const std::string& where)
    : options_(std::move(options)), cache_(new Cache) {
  vocabulary = std::move(v);
  SF_CHECK(options_.unk_token.empty() || vocabulary.id(options_.unk_token), where, ": unk_token '", options_.unk_token,
           "' is not in the vocabulary");
  size_t prefix = options_.continuing_subword_prefix.size();
  uint32_t rank = 0;
  merges_.reserve(merges.size());
  for (auto& [left, right] : merges) {
    auto a = vocabulary.id(left), b = vocabulary.id(right);
    SF_CHECK(a && b, where, ": merge ", rank, " ('", left, "' '", right,
             "') joins a token that is not in the vocabulary");
    auto joined = vocabulary.id(left + right.substr(std::min(prefix, right.size())));
    SF_CHECK(joined, where, ": merge ", rank, " ('", left, "' '", right,
             "') makes a token that is not in the vocabulary");
    merges_.insert_or_assign(key(*a, *b), Merge{rank, *joined});
    ++rank;
  }
}
Bpe::~Bpe() = default;

Merges Bpe::merges() const {
  std::vector<std::pair<uint32_t, uint64_t>> order;
  order.reserve(merges_.size());
  for (auto& [k, m] : merges_) order.emplace_back(m.rank, k);
  std::sort(order.begin(), order.end());
  Merges out;
  out.reserve(order.size());
  for (auto& [rank, k] : order)
    out.emplace_back(*vocabulary.token(int64_t(k >> 32)), *vocabulary.token(int64_t(k & 0xFFFFFFFF)));
  return out;
}

std::vector<int64_t> Bpe::symbols_of(std::string_view piece) const {
  std::vector<int64_t> out;
  out.reserve(piece.size());
  std::optional<int64_t> unknown, unk = options_.unk_token.empty() ? std::nullopt : vocabulary.id(options_.unk_token);
  std::string symbol;
  for (size_t i = 0; i < piece.size();) {
    size_t at = i, n = character_bytes(piece, i);
    i += n;
    symbol.assign(at > 0 ? options_.continuing_subword_prefix : "").append(piece, at, n);
    if (i == piece.size()) symbol += options_.end_of_word_suffix;
    if (auto id = vocabulary.id(symbol)) {
      if (unknown) out.push_back(*std::exchange(unknown, std::nullopt));
      out.push_back(*id);
      continue;
    }
    if (options_.byte_fallback) {
      size_t before = out.size();
      for (char c : symbol) {
        char code[8];
        std::snprintf(code, sizeof code, "<0x%02X>", static_cast<unsigned>(static_cast<unsigned char>(c)));
        auto id = vocabulary.id(code);
        if (!id) {
          out.resize(before);
          break;
        }
        out.push_back(*id);
      }
      if (out.size() > before) continue;
    }
    if (!unk) continue;
    if (unknown && !options_.fuse_unk) out.push_back(*unknown);
    unknown = unk;
  }
  if (unknown) out.push_back(*unknown);
  return out;
}

void Bpe::merge(std::vector<int64_t>& symbols) const {
  constexpr uint32_t kNone = UINT32_MAX;
  struct Candidate {
    uint32_t rank, at;
    int64_t id;
    // the heap's top is the least
    bool operator<(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
  };
  auto n = uint32_t(symbols.size());
  std::vector<uint32_t> next(n), before(n);
  std::vector<Candidate> storage;
  storage.reserve(n);
  std::priority_queue<Candidate> heap({}, std::move(storage));
  auto consider = [&](uint32_t left, uint32_t right) {
    auto found = merges_.find(key(symbols[left], symbols[right]));
    if (found != merges_.end()) heap.push({found->second.rank, left, found->second.id});
  };
  for (uint32_t i = 0; i < n; ++i) {
    before[i] = i == 0 ? kNone : i - 1;
    next[i] = i + 1 == n ? kNone : i + 1;
    if (i + 1 < n) consider(i, i + 1);
  }
  constexpr int64_t kGone = -1;
  while (!heap.empty()) {
    Candidate top = heap.top();
    heap.pop();
    if (symbols[top.at] == kGone || next[top.at] == kNone) continue;
    uint32_t right = next[top.at];
    auto still = merges_.find(key(symbols[top.at], symbols[right]));
    if (still == merges_.end() || still->second.id != top.id) continue;  // an older pair stood here
    symbols[top.at] = top.id;
    symbols[right] = kGone;
    next[top.at] = next[right];
    if (next[right] != kNone) before[next[right]] = top.at;
    if (before[top.at] != kNone) consider(before[top.at], top.at);
    if (next[top.at] != kNone) consider(top.at, next[top.at]);
  }
  std::erase(symbols, kGone);
}

void Bpe::tokenize(std::string_view piece, std::vector<int64_t>& ids) const {
  if (piece.empty()) return;
  if (options_.ignore_merges) {
    if (auto id = vocabulary.id(piece)) return ids.push_back(*id);
  }
  bool cached = piece.size() <= kLongestCached;
  if (cached) {
    std::lock_guard hold(cache_->lock);
    auto at = cache_->words.find(piece);
    if (at != cache_->words.end()) {
      ids.insert(ids.end(), at->second.begin(), at->second.end());
      return;
    }
  }
  auto symbols = symbols_of(piece);
  merge(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  if (cached) {
    std::lock_guard hold(cache_->lock);
    if (cache_->words.size() >= kCachedWords) cache_->words.clear();
    cache_->words.emplace(piece, std::move(symbols));
  }
}

std::unique_ptr<Bpe> make_bpe(const JsonPart& part) {
  Merges merges;
  JsonPart list = part["merges"];
  if (!list.json().is_array()) list.refuse("must be a list, got ", list.json().type_name());
  merges.reserve(list.json().size());
  for (auto& m : list.json()) {  // "a b", or ["a", "b"] since version 0.20
    if (m.is_string()) {
      auto& text = m.get_ref<const std::string&>();
      size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
        list.refuse("merge ", merges.size(), " must be two tokens, got '", text, "'");
      merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    } else if (m.is_array() && m.size() == 2 && m[0].is_string() && m[1].is_string()) {
      merges.emplace_back(m[0], m[1]);
    } else {
      list.refuse("merge ", merges.size(), " must be two tokens");
    }
  }
  BpeOptions options{.unk_token = part.text_or("unk_token", ""),
                     .continuing_subword_prefix = part.text_or("continuing_subword_prefix", ""),
                     .end_of_word_suffix = part.text_or("end_of_word_suffix", ""),
                     .fuse_unk = part.flag_or("fuse_unk", false),
                     .byte_fallback = part.flag_or("byte_fallback", false),
                     .ignore_merges = part.flag_or("ignore_merges", false)};
  return std::make_unique<Bpe>(read_vocabulary(part["vocab"]), merges, std::move(options), part.where());
}

}  // namespace sf::tokenizers
