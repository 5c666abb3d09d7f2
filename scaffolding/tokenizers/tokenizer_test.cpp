#include "scaffolding/tokenizers/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>

#include <nlohmann/json.hpp>

#include "scaffolding/core/error.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/tokenizers/test_golden.h"

namespace sf::tokenizers {

namespace {

using Json = nlohmann::json;

Tokenizer from_text(const std::string& text) {
  return Tokenizer::from_json(io::Bytes::borrow(text.data(), text.size(), "tokenizer.json"));
}
Tokenizer from_text(const Json& json) { return from_text(json.dump()); }
Json parsed(const std::string& name) { return Json::parse(std::ifstream(kGolden + name)); }

TEST(Tokenizer, reads_every_stage_of_tokenizer_json_as_the_tokenizers_package_does) {
  Json cases = golden_cases("cases");
  size_t compared = 0;
  for (auto& [name, rows] : cases["results"].items()) {
    Tokenizer tok = Tokenizer::from_file(kGolden + name + ".json");
    size_t wrong = 0;
    for (size_t i = 0; i < rows.size() && wrong < 5; ++i) {
      std::string text = cases["strings"][i];
      Encoding e = tok.encode(text, tok.defaults());
      std::string mask;
      for (auto m : e.attention_mask) mask += char('0' + m);
      if (mask.find('0') == std::string::npos) mask.clear();
      auto want = rows[i][0].get<std::vector<int64_t>>();
      EXPECT_EQ(e.ids, want) << name << ": " << Json(text);
      EXPECT_EQ(mask, rows[i][1].get<std::string>()) << name << ": " << Json(text);
      EXPECT_EQ(tok.decode(want, true), rows[i][2].get<std::string>()) << name << ": " << Json(text);
      EXPECT_EQ(tok.decode(want), rows[i][3].get<std::string>()) << name << ": " << Json(text);
      wrong += testing::Test::HasFailure() && e.ids != want;
      ++compared;
    }
  }
  EXPECT_GT(compared, 1000u);
}

TEST(Tokenizer, added_tokens_are_found_before_the_model_and_take_the_next_ids) {
  Tokenizer tok = Tokenizer::from_file(kGolden + "gpt2.json");
  size_t before = tok.size();
  EXPECT_EQ(tok.add_tokens({{.content = "<style-1>", .normalized = false},
                            {.content = "<style-2>", .normalized = false, .special = true}}),
            2);
  EXPECT_EQ(tok.add_tokens({{.content = "<style-1>", .normalized = false}}), 0);
  EXPECT_EQ(tok.size(), before + 2);
  int64_t first = *tok.token_to_id("<style-1>"), second = *tok.token_to_id("<style-2>");
  EXPECT_EQ(second, first + 1);
  auto ids = tok.encode("a <style-1> b<style-2>").ids;
  EXPECT_EQ(std::count(ids.begin(), ids.end(), first), 1);
  EXPECT_EQ(ids.back(), second);
  EXPECT_EQ(tok.decode(ids), "a <style-1> b<style-2>");
  EXPECT_EQ(tok.decode(ids, true), "a <style-1> b");
  EXPECT_EQ(tok.decode({1'000'000, -5}), "") << "ids without a token are left out";
}

TEST(Tokenizer, truncation_and_padding_work_on_either_side) {
  Tokenizer tok = Tokenizer::from_file(kGolden + "bert.json");
  auto all = tok.encode("the quick brown fox").ids;
  auto options = EncodeOptions{.truncation = Truncation{4, Side::Right}};
  EXPECT_EQ(tok.encode("the quick brown fox", options).ids, (std::vector<int64_t>{all[0], all[1], all[2], all.back()}));
  options.truncation->side = Side::Left;
  EXPECT_EQ(tok.encode("the quick brown fox", options).ids,
            (std::vector<int64_t>{all[0], all[all.size() - 3], all[all.size() - 2], all.back()}));
  options.truncation->max_length = 2;
  EXPECT_EQ(tok.encode("the", options).ids, (std::vector<int64_t>{2, 3}));
  options.truncation->max_length = 1;
  SF_EXPECT_ERROR(ValueError, "room for 2 special tokens, got 1", tok.encode("the", options));
  auto batch =
      tok.encode_batch({"the", "the quick brown"}, {.padding = Padding{.side = Side::Left, .multiple_of = 4, .id = 7}});
  EXPECT_EQ(batch[0].ids.size(), batch[1].ids.size());
  EXPECT_EQ(batch[0].ids.size() % 4, 0u);
  EXPECT_EQ(batch[0].ids[0], 7);
  EXPECT_EQ(batch[0].attention_mask[0], 0);
  EXPECT_EQ(batch[0].attention_mask.back(), 1);
  SF_EXPECT_ERROR(ValueError, "this tokenizer has no model_max_length", tok.fixed_length());
  SF_EXPECT_ERROR(ValueError, "this tokenizer has none", tok.fixed_length(8));
}

TEST(Tokenizer, text_that_is_not_utf8_is_refused) {
  Tokenizer tok = Tokenizer::from_file(kGolden + "gpt2.json");
  SF_EXPECT_ERROR(ValueError, "encode: text must be UTF-8, byte 2 is not", tok.encode("ab\xFFz"));
  SF_EXPECT_ERROR(ValueError, "byte 0 is not", tok.encode("\xED\xA0\x80"));
  SF_EXPECT_ERROR(ValueError, "byte 1 is not", tok.encode("a\xC3"));
}

TEST(Tokenizer, wrong_files_are_refused_with_file_and_place) {
  auto with = [](const std::function<void(Json&)>& change) {
    Json j = parsed("llama.json");
    change(j);
    return j;
  };
  SF_EXPECT_ERROR(ValueError, "tokenizer.json: the JSON is broken at byte", from_text(std::string("{\"model\":")));
  SF_EXPECT_ERROR(ValueError, "tokenizer.json: 'model' is missing", from_text(std::string("{}")));
  SF_EXPECT_ERROR(ValueError, "nested more than 64 deep", from_text(std::string(100, '[')));
  SF_EXPECT_ERROR(ValueError, "the model 'RNN' is not known",
                  from_text(with([](Json& j) { j["model"]["type"] = "RNN"; })));
  SF_EXPECT_ERROR(ValueError, "'merges' is missing", from_text(with([](Json& j) { j["model"].erase("merges"); })));
  SF_EXPECT_ERROR(ValueError, "both have id 5", from_text(with([](Json& j) { j["model"]["vocab"]["zzzz"] = 5; })));
  SF_EXPECT_ERROR(ValueError, "must be between 0 and",
                  from_text(with([](Json& j) { j["model"]["vocab"]["zzzz"] = -5; })));
  SF_EXPECT_ERROR(ValueError, "must be between 0 and",
                  from_text(with([](Json& j) { j["model"]["vocab"]["zzzz"] = 1ull << 63; })));
  SF_EXPECT_ERROR(ValueError, "must be a whole number",
                  from_text(with([](Json& j) { j["model"]["vocab"]["zzzz"] = 1.5; })));
  SF_EXPECT_ERROR(ValueError, "merge 0 ('zq' 'qz') joins a token that is not in the vocabulary",
                  from_text(with([](Json& j) { j["model"]["merges"] = Json::array({"zq qz"}); })));
  SF_EXPECT_ERROR(ValueError, "merge 0 must be two tokens",
                  from_text(with([](Json& j) { j["model"]["merges"] = {"abc"}; })));
  SF_EXPECT_ERROR(ValueError, "unk_token 'nope' is not in the vocabulary",
                  from_text(with([](Json& j) { j["model"]["unk_token"] = "nope"; })));
  SF_EXPECT_ERROR(ValueError, "'</s>' has the ids 2 and 900",
                  from_text(with([](Json& j) { j["added_tokens"][2]["id"] = 900; })));
  SF_EXPECT_ERROR(ValueError, "tokenizer.json.normalizer.normalizers[0]: 'prepend' is missing",
                  from_text(with([](Json& j) { j["normalizer"]["normalizers"][0].erase("prepend"); })));
  SF_EXPECT_ERROR(ValueError, "is refused: missing closing parenthesis", from_text(with([](Json& j) {
                    j["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}};
                  })));
  SF_EXPECT_ERROR(ValueError, "the decoder 'CTC' is not known", from_text(with([](Json& j) {
                    j["decoder"] = {{"type", "CTC"}};
                  })));
  SF_EXPECT_ERROR(ValueError, "must be Left or Right",
                  from_text(with([](Json& j) { j["padding"]["direction"] = "Up"; })));
  SF_EXPECT_ERROR(ValueError, "its trie does not fit", from_text(with([](Json& j) {
                    j["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "/////w=="}};
                  })));
  SF_EXPECT_ERROR(ValueError, "a number that cannot be represented",
                  from_text(std::string(R"({"model":{"type":"Unigram","vocab":[["a",1e999]]}})")));
}

TEST(Tokenizer, a_pattern_that_backtracks_for_ever_is_an_error) {
  Json j = parsed("gpt2.json");
  j["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(x+x+)+[yz]"}}}, {"behavior", "Isolated"}};
  Tokenizer tok = from_text(j);
  SF_EXPECT_ERROR(ValueError, "the regex cannot be matched", tok.encode(std::string(60, 'x')));
}

TEST(Tokenizer, a_normalizer_that_grows_the_text_without_end_is_an_error) {
  Json j = parsed("gpt2.json"), rules = Json::array();
  for (int i = 0; i < 60; ++i)
    rules.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaa"}});
  j["normalizer"] = {{"type", "Sequence"}, {"normalizers", rules}};
  j["added_tokens"] = Json::array();
  Tokenizer tok = from_text(j);
  SF_EXPECT_ERROR(ValueError, "the text grows beyond", tok.encode("a"));
}

}  // namespace
}  // namespace sf::tokenizers
