#include <gtest/gtest.h>

#include <filesystem>

#include "scaffolding/core/error.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/tokenizers/t5_tokenizer.h"

namespace sf::tokenizers {

namespace {

using Texts = std::vector<std::string>;
const Texts kTexts{"Red apple, noto", "red rocket, fluent 3d", "t-shirt, noto, on a red background"};

TEST(TrainWords, WordsAreTokensAndOthersAreSpelled) {
  const T5Tokenizer tok = train_words(kTexts, {.model_max_length = 12});
  const auto ids = tok.encode("rocket, red").ids;
  Texts tokens;
  for (int64_t id : ids) tokens.push_back(*tok.id_to_token(id));
  EXPECT_EQ(tokens, (Texts{"\xE2\x96\x81rocket", ",", "\xE2\x96\x81red", "</s>"}));
  EXPECT_EQ(tok.decode(ids, true), "rocket, red");
  EXPECT_EQ(tok.encode("ROCKET, Red").ids, ids);
  EXPECT_EQ(tok.decode(tok.encode("torch").ids, true), "torch");  // by letters that the texts have
  const auto strange = tok.encode("\xE6\x97\xA5").ids;            // by none
  EXPECT_NE(std::find(strange.begin(), strange.end(), *tok.token_to_id("<unk>")), strange.end());
  EXPECT_EQ(tok.encode("red", tok.fixed_length()).ids.size(), 12u);
  EXPECT_EQ(tok.encode("red", tok.fixed_length()).ids.back(), *tok.token_to_id("<pad>"));
}

TEST(TrainWords, TheMostFrequentWordsComeFirst) {
  const T5Tokenizer all = train_words(kTexts);
  const T5Tokenizer few = train_words(kTexts, {.vocab_size = int64_t(all.size()) - 4});
  EXPECT_EQ(few.size(), all.size() - 4);
  EXPECT_TRUE(few.token_to_id("\xE2\x96\x81red"));
  EXPECT_EQ(few.decode(few.encode("rocket").ids, true), "rocket");
}

class TrainWordsFiles : public io::TestFolder {};
TEST_F(TrainWordsFiles, FilesDoNotDependOnTheOrderAndAreReadAgain) {
  const T5Tokenizer tok = train_words(kTexts, {.model_max_length = 12});
  tok.save_pretrained((folder_ / "a").string());
  train_words({kTexts.rbegin(), kTexts.rend()}, {.model_max_length = 12}).save_pretrained((folder_ / "b").string());
  const auto bytes = [&](const char* name) {
    const auto file = io::Bytes::read((folder_ / name / "tokenizer.json").string());
    return std::string(file.chars(), file.size);
  };
  EXPECT_EQ(bytes("a"), bytes("b"));
  const T5Tokenizer again = T5Tokenizer::from_pretrained((folder_ / "a").string());
  EXPECT_EQ(again.encode("red apple, on a t-shirt").ids, tok.encode("red apple, on a t-shirt").ids);
  EXPECT_EQ(again.config().model_max_length, 12);
}

TEST(TrainWords, RefusesWhatCannotBe) {
  EXPECT_THROW(train_words({}), Error);
  EXPECT_THROW(train_words({" "}), Error);
  EXPECT_THROW(train_words(kTexts, {.vocab_size = 8}), Error);
  EXPECT_THROW(train_words(kTexts, {.model_max_length = 1}), Error);
  EXPECT_THROW(train_words({"\xFF"}), Error);
}

}  // namespace

}  // namespace sf::tokenizers
