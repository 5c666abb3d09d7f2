#include "scaffolding/tokenizers/gemma_tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>

#include "scaffolding/core/error.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/tokenizers/pretrained.h"
#include "scaffolding/tokenizers/test_golden.h"

namespace sf::tokenizers::gemma {

namespace {

using Json = nlohmann::json;

const Json& golden() {
  static const Json file = golden_cases("gemma_cases");
  return file;
}

class GemmaTokenizerTest : public io::TestFolder {
 protected:
  void write(const char* name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  void write_both(Json config = golden()["tokenizer_config.json"]) {
    write("tokenizer.json", golden()["tokenizer.json"].dump());
    write("tokenizer_config.json", config.dump());
  }
  std::string folder() const { return folder_.string(); }
};

TEST_F(GemmaTokenizerTest, ids_and_texts_are_those_of_transformers) {
  write_both();
  const auto tok = GemmaTokenizer::from_pretrained(folder());
  EXPECT_EQ(tok.size(), golden()["size"].get<size_t>());
  const Json &strings = golden()["strings"], &rows = golden()["rows"];
  ASSERT_EQ(strings.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto want = rows[i][0].get<std::vector<int64_t>>();
    EXPECT_EQ(tok.encode(strings[i].get<std::string>()).ids, want) << strings[i];
    EXPECT_EQ(tok.decode(want), rows[i][1].get<std::string>()) << strings[i];
  }
}

TEST_F(GemmaTokenizerTest, texts_are_padded_at_the_left_where_no_file_says_otherwise) {
  write_both();
  const auto tok = GemmaTokenizer::from_pretrained(folder());
  EXPECT_EQ(golden()["side"], "left");
  EXPECT_EQ(tok.config().padding_side, Side::Left);
  Json config = golden()["tokenizer_config.json"];
  config["padding_side"] = "right";
  write_both(config);
  const auto right = GemmaTokenizer::from_pretrained(folder());
  const Json& prompts = golden()["prompts"];
  for (auto [name, asked] : {std::pair{"left", &tok}, {"right", &right}}) {
    const EncodeOptions options = asked->fixed_length(24);
    for (size_t i = 0; i < prompts.size(); ++i) {
      const Json& want = golden()["padded"][name][i];
      const Encoding got = asked->encode(prompts[i].get<std::string>(), options);
      EXPECT_EQ(got.ids, want[0].get<std::vector<int64_t>>()) << prompts[i];
      EXPECT_EQ(got.attention_mask, want[1].get<std::vector<int64_t>>()) << prompts[i];
    }
  }
}

TEST_F(GemmaTokenizerTest, what_is_saved_is_read_back_with_its_template) {
  write_both();
  auto tok = GemmaTokenizer::from_pretrained(folder());
  EXPECT_EQ(tok.add_tokens({{.content = "<cat-toy>"}}), 1);
  const std::string saved = (folder_ / "saved").string(), text = "a <cat-toy>\n\nphoto<eos> of";
  tok.save_pretrained(saved);
  EXPECT_EQ(tokenizer_class_of(saved), "GemmaTokenizer");
  const auto again = load_tokenizer("GemmaTokenizerFast", saved);
  EXPECT_EQ(again->vocabulary(), tok.vocabulary());
  EXPECT_EQ(again->encode(text).ids, tok.encode(text).ids);
  EXPECT_EQ(again->config().padding_side, Side::Left);
  EXPECT_EQ(again->files(), tok.files());
  EXPECT_EQ(Json::parse(std::ifstream(saved + "/tokenizer_config.json"))["chat_template"],
            golden()["tokenizer_config.json"]["chat_template"]);
}

TEST_F(GemmaTokenizerTest, without_a_config_special_tokens_have_gemmas_names) {
  write("tokenizer.json", golden()["tokenizer.json"].dump());
  const auto tok = GemmaTokenizer::from_pretrained(folder());
  EXPECT_EQ(tok.token_to_id(tok.config().pad_token->content), 0);
  EXPECT_EQ(tok.token_to_id(tok.config().eos_token->content), 1);
  EXPECT_EQ(tok.token_to_id(tok.config().bos_token->content), 2);
  EXPECT_EQ(tok.size(), golden()["size"].get<size_t>());
}

TEST_F(GemmaTokenizerTest, a_folder_without_tokenizer_json_is_refused) {
  auto says = [&](const std::string& words) {
    try {
      GemmaTokenizer::from_pretrained(folder());
      ADD_FAILURE() << "nothing was thrown";
    } catch (const RuntimeError& e) {
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    }
  };
  says("has no tokenizer.json");
  write("tokenizer.model", "");
  says("its tokenizer.model is not read");
}

}  // namespace

}  // namespace sf::tokenizers::gemma
