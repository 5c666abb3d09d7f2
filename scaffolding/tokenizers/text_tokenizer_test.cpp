#include "scaffolding/tokenizers/text_tokenizer.h"

#include <gtest/gtest.h>

#include "scaffolding/core/error.h"
#include "scaffolding/io/test_folder.h"

namespace sf::tokenizers {
namespace {

using Words = std::vector<std::string>;

TEST(TextTokenizer, WordsAreRunsOfLettersAndOtherCharactersAlone) {
  EXPECT_EQ(TextTokenizer::words("A cat, walking..."), (Words{"a", "cat", ",", "walking", ".", ".", "."}));
  EXPECT_EQ(TextTokenizer::words("2 red-ish_things\t\n"), (Words{"2", "red", "-", "ish_things"}));
  EXPECT_EQ(TextTokenizer::words("CAF\u00c9 cafe\u0301"), (Words{"caf\u00e9", "caf\u00e9"}));
  EXPECT_EQ(TextTokenizer::words(" \u00a0\u0007 "), Words{});
  EXPECT_THROW(TextTokenizer::words("\xff"), ValueError);
}

// Published values of FNV-1a of 64 bits: "" cbf29ce484222325, "a" af63dc4c8601ec8c, "foobar" 85944171f73967e8.
TEST(TextTokenizer, IdsAreTheHashOfTheWord) {
  const TextTokenizer t;
  EXPECT_EQ(t.id_of(""), 3 + int64_t(0xcbf29ce484222325u % 8189));
  EXPECT_EQ(t.id_of("a"), 3 + int64_t(0xaf63dc4c8601ec8cu % 8189));
  EXPECT_EQ(t.id_of("foobar"), 3 + int64_t(0x85944171f73967e8u % 8189));
  EXPECT_EQ(TextTokenizer(4).id_of("anything"), 3);
}

TEST(TextTokenizer, EncodesToOneLength) {
  const TextTokenizer t(8192, 5);
  const Encoding empty = t.encode("");
  EXPECT_EQ(empty.ids, (std::vector<int64_t>{1, 2, 0, 0, 0}));
  EXPECT_EQ(empty.attention_mask, (std::vector<int64_t>{1, 1, 0, 0, 0}));
  const Encoding cut = t.encode("one two three four");
  EXPECT_EQ(cut.ids, (std::vector<int64_t>{1, t.id_of("one"), t.id_of("two"), t.id_of("three"), 2}));
  EXPECT_EQ(cut.attention_mask, std::vector<int64_t>(5, 1));
}

TEST(TextTokenizer, RefusesSizes) {
  for (int64_t size : {-1, 3, (1 << 20) + 1}) EXPECT_THROW(TextTokenizer(size, 77), ValueError) << size;
  for (int64_t length : {-1, 2, (1 << 16) + 1}) EXPECT_THROW(TextTokenizer(8192, length), ValueError) << length;
}

using TextTokenizerFiles = io::TestFolder;

TEST_F(TextTokenizerFiles, ThereAndBack) {
  TextTokenizer(99, 7).save_pretrained(path("tokenizer"));
  const TextTokenizer again = TextTokenizer::from_pretrained(path("tokenizer"));
  EXPECT_EQ(again.vocab_size(), 99);
  EXPECT_EQ(again.max_length(), 7);
}

TEST_F(TextTokenizerFiles, WrongOnesAreRefusedByName) {
  for (const char* wrong : {"{}", "[]", R"({"tokenizer_class": "T5Tokenizer"})",
                            R"({"tokenizer_class": "TextTokenizer", "vocab_size": 2, "model_max_length": 7})",
                            R"({"tokenizer_class": "TextTokenizer", "vocab_size": 99, "model_max_length": "7"})"}) {
    write("tokenizer_config.json", wrong);
    SF_EXPECT_ERROR(ValueError, "tokenizer_config.json", TextTokenizer::from_pretrained(folder_.string()));
  }
}

}  // namespace
}  // namespace sf::tokenizers
