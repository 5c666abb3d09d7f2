#include "scaffolding/tokenizers/qwen2_tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "scaffolding/core/error.h"
#include "scaffolding/core/source_dir.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/io/test_packed.h"
#include "scaffolding/tokenizers/pretrained.h"

namespace sf::tokenizers::qwen2 {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
const std::string kGolden = SF_SOURCE_DIR "/tests/golden/";
const std::string kFolder = kGolden + "pipelines/z_image_tokenizer";

const Json& golden() {
  static const Json file = Json::parse(test::unpacked(kGolden + "tokenizers/qwen2_cases.json.xz"));
  return file;
}

void compare(const Qwen2Tokenizer& tok) {
  EXPECT_EQ(tok.size(), golden()["size"].get<size_t>());
  EXPECT_EQ(tok.token_to_id(tok.config().pad_token->content), golden()["pad"].get<int64_t>());
  const Json &strings = golden()["strings"], &rows = golden()["rows"];
  ASSERT_EQ(strings.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto want = rows[i][0].get<std::vector<int64_t>>();
    EXPECT_EQ(tok.encode(strings[i].get<std::string>()).ids, want) << strings[i];
    EXPECT_EQ(tok.decode(want), rows[i][1].get<std::string>()) << strings[i];
  }
}

class Qwen2TokenizerTest : public io::TestFolder {
 protected:
  void write(const char* name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  void copy(const char* name) { fs::copy_file(kFolder + "/" + name, folder_ / name); }
  std::string folder() const { return folder_.string(); }
};

TEST_F(Qwen2TokenizerTest, ids_and_texts_are_those_of_transformers) {
  compare(Qwen2Tokenizer::from_pretrained(kFolder));
}

TEST_F(Qwen2TokenizerTest, a_tokenizer_json_gives_the_same) {
  write("tokenizer.json", golden()["tokenizer.json"].dump());
  copy("tokenizer_config.json");
  compare(Qwen2Tokenizer::from_pretrained(folder()));
}

TEST_F(Qwen2TokenizerTest, a_users_turn_is_what_the_template_makes) {
  const auto tok = Qwen2Tokenizer::from_pretrained(kFolder);
  const Json &messages = golden()["messages"], &turns = golden()["turns"];
  for (size_t i = 0; i < turns.size(); ++i)
    EXPECT_EQ(user_turn(tok, messages[i].get<std::string>()), turns[i].get<std::string>());
}

TEST_F(Qwen2TokenizerTest, what_is_saved_is_read_back_with_its_template) {
  auto tok = Qwen2Tokenizer::from_pretrained(kFolder);
  EXPECT_EQ(tok.add_tokens({{.content = "<cat-toy>"}}), 1);
  const std::string saved = (folder_ / "saved").string(), text = "a <cat-toy> photo<|im_end|> of";
  tok.save_pretrained(saved);
  const auto again = Qwen2Tokenizer::from_pretrained(saved);
  EXPECT_EQ(again.vocabulary(), tok.vocabulary());
  EXPECT_EQ(again.encode(text).ids, tok.encode(text).ids);
  EXPECT_EQ(again.files(), tok.files());
  auto config_of = [](const std::string& folder) {
    return Json::parse(std::ifstream(folder + "/tokenizer_config.json"));
  };
  EXPECT_EQ(config_of(saved)["chat_template"], config_of(kFolder)["chat_template"]);
  EXPECT_EQ(tokenizer_class_of(saved), "Qwen2Tokenizer");
}

TEST_F(Qwen2TokenizerTest, a_template_in_a_file_of_its_own_stays_one) {
  for (const char* name : {"vocab.json", "merges.txt"}) copy(name);
  write("chat_template.jinja", "{{ messages }}");
  const auto tok = Qwen2Tokenizer::from_pretrained(folder());
  EXPECT_EQ(tok.files().at("chat_template.jinja"), "{{ messages }}");
  EXPECT_EQ(Json::parse(tok.files().at("tokenizer_config.json")).count("chat_template"), 0u);
  EXPECT_EQ(tok.config().pad_token->content, "<|endoftext|>");  // where no file says one
}

template <class E, class F> void expect_error(F f, const std::string& words) {
  try {
    f();
    FAIL() << "nothing was thrown";
  } catch (const E& e) {
    EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
  }
}

TEST_F(Qwen2TokenizerTest, wrong_files_are_refused) {
  expect_error<RuntimeError>([&] { Qwen2Tokenizer::from_pretrained(folder()); },
                             "neither tokenizer.json nor vocab.json and merges.txt");
  copy("vocab.json");
  write("merges.txt", "#version: 0.2\np h o\n");
  expect_error<ValueError>([&] { Qwen2Tokenizer::from_pretrained(folder()); }, "line 2 must be two tokens");
  write("merges.txt", "#version: 0.2\nqq q\n");
  expect_error<ValueError>([&] { Qwen2Tokenizer::from_pretrained(folder()); }, "not in the vocabulary");
  write("merges.txt", "#version: 0.2\n");
  expect_error<ValueError>([&] { user_turn(Qwen2Tokenizer::from_pretrained(folder()), "a"); }, "has no '<|im_start|>'");
}

}  // namespace

}  // namespace sf::tokenizers::qwen2
