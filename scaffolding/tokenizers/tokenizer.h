// Tokenizer: text to ids and back, read from a Hugging Face tokenizer.json; its results are those of the tokenizers
// package (without BPE's dropout, which is for training).
// Owns its tables. Const use is thread-safe; add_tokens and remove_tokens must be alone.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scaffolding/io/file.h"
#include "scaffolding/tokenizers/tokenizer_files.h"

namespace sf::tokenizers {

enum class Side { Left, Right };

struct Truncation {
  int64_t max_length = 512;  // with the special tokens
  Side side = Side::Right;   // where tokens are dropped
};
struct Padding {
  int64_t length = 0;  // 0: as long as the longest of the batch
  Side side = Side::Right;
  int64_t multiple_of = 0;  // 0: any length
  int64_t id = 0;
};
struct EncodeOptions {
  bool add_special_tokens = true;
  std::optional<Truncation> truncation;
  std::optional<Padding> padding;
};
struct Encoding {
  std::vector<int64_t> ids;
  std::vector<int64_t> attention_mask;  // 1 for a token, 0 for padding
};

// A token that is looked for in the text before the model sees it.
struct AddedToken {
  std::string content;
  bool single_word = false;  // only where no word character stands beside it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and after it
  bool normalized = true;    // looked for in the normalized text
  bool special = false;      // decode can leave it out
};

// What CLIPTokenizer does to a text before its words are split.
// Both make white space single spaces and letters lower case.
enum class TextCleaning {
  Transformers,  // NFC
  OpenAI,  // OpenAI's and OpenCLIP's own tokenizer: HTML's character references become characters, twice over; no NFC
};

// What tokenizer_config.json, special_tokens_map.json and added_tokens.json say.
struct TokenizerConfig {
  std::optional<AddedToken> bos_token, eos_token, unk_token, pad_token;
  int64_t model_max_length = INT64_MAX;  // tokens that the model takes; INT64_MAX: as many as there are
  Side padding_side = Side::Right, truncation_side = Side::Right;
  TextCleaning text_cleaning = TextCleaning::Transformers;   // CLIPTokenizer's
  std::vector<std::pair<int64_t, AddedToken>> added_tokens;  // id -1: the vocabulary's, or the next free one
  // CLIPTokenizer's, where no file has a vocabulary: "clip" for the one that is compiled in. A key of our own.
  std::string built_in_vocabulary;
};
// ValueError naming file and rule for what is wrong in them; a file that is not there says nothing.
TokenizerConfig read_tokenizer_config(const TokenizerFiles& files);

class Tokenizer {
 public:
  struct Parts;  // the stages, known to this folder only
  // tokenizer.json. ValueError naming file, place and rule for a wrong one.
  static Tokenizer from_json(const io::Bytes& file);
  static Tokenizer from_file(const std::string& path) { return from_json(io::Bytes::map(path)); }
  // A folder with tokenizer.json and, where present, tokenizer_config.json and special_tokens_map.json.
  static Tokenizer from_pretrained(const TokenizerFiles& files);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  virtual ~Tokenizer();

  virtual const char* class_name() const { return "PreTrainedTokenizerFast"; }  // transformers'
  // The files that from_pretrained reads. NotSupported of a tokenizer that was read from a tokenizer.json alone.
  virtual FileTexts files() const;
  void save_pretrained(const std::string& folder) const;  // writes them; the folder is made

  // ValueError for a text that is not UTF-8 and for a max_length without room for the special tokens.
  Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;
  std::vector<Encoding> encode_batch(const std::vector<std::string>& texts, const EncodeOptions& options = {}) const;
  const EncodeOptions& defaults() const;  // truncation and padding as the file has them
  // Cut and padded to `length` tokens, or to model_max_length for 0. ValueError without a length or a pad token.
  EncodeOptions fixed_length(int64_t length = 0) const;
  const TokenizerConfig& config() const;
  // Ids without a token are left out.
  std::string decode(const std::vector<int64_t>& ids, bool skip_special_tokens = false) const;

  std::optional<int64_t> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(int64_t id) const;
  std::vector<std::pair<int64_t, std::string>> vocabulary(bool with_added = true) const;  // by id
  std::vector<std::pair<int64_t, AddedToken>> added_tokens() const;                       // by id
  // Tokens that are new take the next free ids; known ones are looked for in texts from now on.
  // Returns how many are new.
  int64_t add_tokens(const std::vector<AddedToken>& tokens);
  // Takes out tokens that were added; the ids of others stay. ValueError, and nothing changes, for a token that was
  // not, or that the vocabulary has as well.
  void remove_tokens(const std::vector<std::string>& tokens);
  int64_t next_id() const;  // of the next new token
  size_t size() const;      // of the vocabulary, with added tokens

 protected:
  explicit Tokenizer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace sf::tokenizers
