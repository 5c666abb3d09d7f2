#include "scaffolding/tokenizers/t5_tokenizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "scaffolding/core/error.h"
#include "scaffolding/core/source_dir.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/io/test_packed.h"
#include "scaffolding/tokenizers/sentencepiece_model.h"

namespace sf::tokenizers {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
const std::string kGolden = SF_SOURCE_DIR "/tests/golden/tokenizers/";

Json golden() { return Json::parse(test::unpacked(kGolden + "t5_cases.json.xz")); }

void compare(const T5Tokenizer& tok, const Json& strings, const Json& rows, bool decode) {
  ASSERT_EQ(strings.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string text = strings[i];
    const auto want = rows[i][0].get<std::vector<int64_t>>();
    EXPECT_EQ(tok.encode(text).ids, want) << Json(text);
    if (!decode) continue;
    EXPECT_EQ(tok.decode(want, true), rows[i][1].get<std::string>()) << Json(text);
  }
}

// ---- protobuf messages by hand

std::string varint(uint64_t v) {
  std::string out;
  for (; v >= 0x80; v >>= 7) out += char(v | 0x80);
  return out + char(v);
}
std::string number(int field, uint64_t v) { return varint(uint64_t(field) << 3) + varint(v); }
std::string bytes(int field, const std::string& s) { return varint(uint64_t(field) << 3 | 2) + varint(s.size()) + s; }
std::string real(int field, float v) {
  return varint(uint64_t(field) << 3 | 5) + std::string(reinterpret_cast<char*>(&v), 4);
}
std::string piece(const std::string& text, float score = -1, uint64_t type = 1) {
  return bytes(1, bytes(1, text) + real(2, score) + (type == 1 ? "" : number(3, type)));
}
const std::string kLeast = piece("<pad>", 0, 3) + piece("</s>", 0, 3) + piece("<unk>", 0, 2);
const std::string kMark = "\xE2\x96\x81";

T5Tokenizer from_text(const std::string& message, int64_t extra_ids = 2) {
  return T5Tokenizer::from_sentencepiece(io::Bytes::copy(message.data(), message.size(), "spiece.model"), {},
                                         extra_ids);
}

class T5TokenizerTest : public io::TestFolder {};

TEST_F(T5TokenizerTest, ids_and_texts_are_those_of_transformers) {
  const Json file = golden();
  for (auto& [name, config] : file["configs"].items()) {
    const fs::path folder = folder_ / name;
    fs::create_directories(folder);
    fs::copy_file(kGolden + "t5_small.model", folder / "spiece.model");
    std::ofstream(folder / "tokenizer_config.json") << config;
    T5Tokenizer tok = T5Tokenizer::from_pretrained(folder.string());
    const Json& want = file["results"]["t5_small/" + name];
    EXPECT_EQ(tok.size(), want["size"].get<size_t>());
    std::vector<int64_t> special;
    for (auto& [id, token] : tok.added_tokens()) special.push_back(id);
    EXPECT_EQ(special, want["special"].get<std::vector<int64_t>>());
    Json strings = file["strings"];
    strings.erase(strings.size() - 1);  // a test of its own
    compare(tok, strings, want["rows"], true);
  }
}

TEST_F(T5TokenizerTest, pieces_that_users_or_control_define_are_tokens_as_they_are) {
  const Json file = golden();
  T5Tokenizer tok = T5Tokenizer::from_sentencepiece(io::Bytes::map(kGolden + "t5_identity.model"));
  compare(tok, file["strings"], file["results"]["t5_identity/plain"]["rows"], true);
  EXPECT_EQ(tok.token_to_id("<cat>"), 4);
}

TEST_F(T5TokenizerTest, unknown_characters_are_bytes_where_the_model_says_so) {
  const Json file = golden();
  T5Tokenizer tok = T5Tokenizer::from_sentencepiece(io::Bytes::map(kGolden + "t5_bytes.model"));
  compare(tok, file["spaced"], file["results"]["t5_bytes"]["rows"], false);
  EXPECT_EQ(tok.decode(tok.encode("na\xC3\xAFve \xF0\x9F\x98\x80").ids, true), "na\xC3\xAFve \xF0\x9F\x98\x80");
}

TEST_F(T5TokenizerTest, all_rules_of_nfkc) {
  const std::string path = SF_SOURCE_DIR "/../shared/data/sentencepiece/test_model.model";
  if (!fs::exists(path)) GTEST_SKIP() << "there is no " << path;
  const Json file = golden();
  compare(T5Tokenizer::from_sentencepiece(io::Bytes::map(path)), file["plain"], file["results"]["test_model"]["rows"],
          false);
}

TEST_F(T5TokenizerTest, what_is_saved_is_read_back) {
  T5Tokenizer tok =
      T5Tokenizer::from_sentencepiece(io::Bytes::map(kGolden + "t5_small.model"), {.model_max_length = 30}, 7);
  EXPECT_EQ(tok.add_tokens({{.content = "<cat-toy>"}}), 1);
  const std::string folder = (folder_ / "saved").string(), text = "a <cat-toy> photo<extra_id_6> of";
  tok.save_pretrained(folder);
  T5Tokenizer again = T5Tokenizer::from_pretrained(folder);
  EXPECT_EQ(again.vocabulary(), tok.vocabulary());
  EXPECT_EQ(again.encode(text).ids, tok.encode(text).ids);
  EXPECT_EQ(again.encode(text, again.fixed_length()).ids.size(), 30u);
  again.save_pretrained(folder);  // over the file that it has mapped
  EXPECT_EQ(T5Tokenizer::from_pretrained(folder).encode(text).ids, tok.encode(text).ids);
}

TEST_F(T5TokenizerTest, a_tokenizer_json_goes_before_a_model) {
  fs::copy_file(kGolden + "t5_small.model", folder_ / "spiece.model");
  fs::copy_file(kGolden + "t5.json", folder_ / "tokenizer.json");
  T5Tokenizer tok = T5Tokenizer::from_pretrained(folder_.string());
  const Tokenizer plain = Tokenizer::from_file(kGolden + "t5.json");
  EXPECT_EQ(tok.encode("the quick fox").ids, plain.encode("the quick fox").ids);
  EXPECT_EQ(tok.config().pad_token->content, "<pad>");
  tok.save_pretrained((folder_ / "saved").string());
  EXPECT_TRUE(fs::exists(folder_ / "saved/tokenizer.json") && !fs::exists(folder_ / "saved/spiece.model"));
  T5Tokenizer model = T5Tokenizer::from_sentencepiece(io::Bytes::map(kGolden + "t5_small.model"));
  model.save_pretrained((folder_ / "saved").string());  // over it: the file that would be read first goes
  EXPECT_EQ(T5Tokenizer::from_pretrained((folder_ / "saved").string()).vocabulary(), model.vocabulary());
}

TEST_F(T5TokenizerTest, the_smallest_model_and_fields_that_are_not_known) {
  T5Tokenizer tok = from_text(kLeast + piece(kMark + "a") + bytes(77, "later") + number(78, ~0ull) + real(79, 1) +
                              varint(80 << 3 | 1) + std::string(8, 'x'));
  EXPECT_EQ(tok.encode("a b").ids, (std::vector<int64_t>{3, 2, 1}));
  EXPECT_EQ(tok.token_to_id("<extra_id_0>"), 5);
  EXPECT_EQ(tok.token_to_id("<extra_id_1>"), 4);
  EXPECT_EQ(from_text(kLeast + piece("<extra_id_1>", 0)).token_to_id("<extra_id_1>"), 3);
  EXPECT_EQ(from_text(kLeast, 0).size(), 3u);
}

TEST_F(T5TokenizerTest, wrong_models_are_refused) {
  SF_EXPECT_ERROR(ValueError, "spiece.model: is no SentencePiece model: it has no pieces", from_text(""));
  SF_EXPECT_ERROR(ValueError, "spiece.model: is", from_text("{\"model\": {}}"));
  SF_EXPECT_ERROR(ValueError, "no piece stands for what is unknown", from_text(piece("a")));
  SF_EXPECT_ERROR(ValueError, "pieces 2 and 3 both stand for what is unknown", from_text(kLeast + piece("b", 0, 2)));
  SF_EXPECT_ERROR(ValueError, "'a' has the ids 3 and 4", from_text(kLeast + piece("a") + piece("a")));
  SF_EXPECT_ERROR(ValueError, "piece 3 is empty", from_text(kLeast + piece("")));
  SF_EXPECT_ERROR(ValueError, "piece 3: text must be UTF-8, byte 1 is not", from_text(kLeast + piece("a\xFF")));
  SF_EXPECT_ERROR(ValueError, "the score of piece 3 must be finite", from_text(kLeast + piece("a", INFINITY)));
  SF_EXPECT_ERROR(ValueError, "piece 3 has the unknown type 9", from_text(kLeast + piece("a", 0, 9)));
  SF_EXPECT_ERROR(ValueError, "field 1 of a message has the wire type 0, not 2", from_text(number(1, 5)));
  SF_EXPECT_ERROR(ValueError, "wire type 3", from_text(varint(1 << 3 | 3)));
  SF_EXPECT_ERROR(ValueError, "has the number 0", from_text(std::string(2, '\0')));
  SF_EXPECT_ERROR(ValueError, "more than 10 bytes", from_text("\x08" + std::string(11, '\x80')));
  SF_EXPECT_ERROR(ValueError, "is cut short", from_text(kLeast.substr(0, kLeast.size() - 1)));
  SF_EXPECT_ERROR(ValueError, "is cut short", from_text(varint(1 << 3 | 2) + varint(1ull << 62)));
  SF_EXPECT_ERROR(ValueError, "its trie does not fit", from_text(kLeast + bytes(3, bytes(2, "\xFF\xFF\xFF\x7F"))));
  SF_EXPECT_ERROR(ValueError, "unknown type 7", from_text(kLeast + bytes(2, number(3, 7))));
  SF_EXPECT_ERROR(ValueError, "T5's vocabularies are Unigram models, and this is one of type 2",
                  T5Tokenizer::from_sentencepiece(io::Bytes::map(kGolden + "t5_bpe.model")));
  SF_EXPECT_ERROR(ValueError, "extra_ids must be between 0 and 100000, got -1", from_text(kLeast, -1));
  SF_EXPECT_ERROR(RuntimeError, "neither tokenizer.json nor spiece.model",
                  T5Tokenizer::from_pretrained(folder_.string()));
}

}  // namespace
}  // namespace sf::tokenizers
