#include "scaffolding/tokenizers/clip_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include <nlohmann/json.hpp>

#include "scaffolding/core/error.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/tokenizers/test_golden.h"
#include "scaffolding/tokenizers/unicode.h"

namespace sf::tokenizers {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// The folder of CLIP's whole vocabulary; empty where there is none.
std::string whole_vocabulary() {
  fs::path folder = fs::path(SF_SOURCE_DIR).parent_path() / "shared" / "data";
  if (const char* set = std::getenv("SF_SHARED_DATA")) folder = set;
  return fs::exists(folder / "clip" / "vocab.json") ? (folder / "clip").string() : "";
}

class CLIPTokenizerTest : public io::TestFolder {
 protected:
  // source: "" for the vocabulary that is compiled in
  CLIPTokenizer with_config(const std::string& source, Json config) const {
    if (source.empty()) config["built_in_vocabulary"] = "clip";
    for (const char* name : {"vocab.json", "merges.txt"})
      if (!source.empty()) fs::copy_file(fs::path(source) / name, folder_ / name, fs::copy_options::overwrite_existing);
    fs::remove(folder_ / "tokenizer_config.json");
    if (!config.empty()) write("tokenizer_config.json", config.dump());
    return CLIPTokenizer::from_pretrained(folder_.string());
  }
  void compare(const std::string& size, const std::string& source) {
    Json golden = golden_cases("clip");
    for (auto& [name, config] : golden["configs"].items()) {
      CLIPTokenizer tok = with_config(source, config);
      auto& want = golden["results"][size + "/" + name];
      EXPECT_EQ(tok.pad_token_id(), want["pad"].get<int64_t>());
      for (size_t i = 0; i < want["rows"].size(); ++i) {
        std::string text = golden["strings"][i];
        auto& row = want["rows"][i];
        auto ids = row[0].get<std::vector<int64_t>>();
        ASSERT_EQ(tok.encode(text).ids, ids) << size << "/" << name << ": " << Json(text);
        EXPECT_EQ(tok.decode(ids, true), row[2].get<std::string>()) << Json(text);
        EXPECT_EQ(tok.decode(ids), row[3].get<std::string>()) << Json(text);
        Encoding fixed = tok.encode(text, tok.fixed_length());
        if (ids.size() > 77) ids.erase(ids.begin() + 76, ids.end() - 1);
        auto kept = int64_t(ids.size());
        ids.resize(77, tok.pad_token_id());
        EXPECT_EQ(fixed.ids, ids) << Json(text);
        EXPECT_EQ(std::count(fixed.attention_mask.begin(), fixed.attention_mask.end(), 1), kept);
        EXPECT_EQ(row[1].get<int64_t>(), kept);
      }
    }
  }
};

TEST_F(CLIPTokenizerTest, gives_transformers_ids_with_a_small_vocabulary) { compare("small", kGolden + "clip_small"); }

TEST_F(CLIPTokenizerTest, gives_transformers_ids_with_the_whole_vocabulary) {
  std::string source = whole_vocabulary();
  if (source.empty()) GTEST_SKIP() << "CLIP's whole vocabulary is not here (SF_SHARED_DATA)";
  compare("full", source);
}

TEST_F(CLIPTokenizerTest, gives_transformers_ids_with_the_built_in_vocabulary) { compare("full", ""); }

TEST_F(CLIPTokenizerTest, the_built_in_vocabulary_has_clips_ids) {
  CLIPTokenizer tok = CLIPTokenizer::built_in();
  EXPECT_EQ(tok.size(), 49408u);
  EXPECT_EQ(tok.encode("a photo of a cat").ids, (std::vector<int64_t>{49406, 320, 1125, 539, 320, 2368, 49407}));
  EXPECT_EQ(tok.token_to_id("!"), 0);
  EXPECT_EQ(tok.token_to_id("in</w>"), 530);
  EXPECT_EQ(tok.pad_token_id(), 49407);
  EXPECT_EQ(tok.config().model_max_length, 77);
  tok.save_pretrained(path("saved"));
  EXPECT_EQ(CLIPTokenizer::from_pretrained(path("saved")).vocabulary(), tok.vocabulary());
  write("tokenizer_config.json", R"({"built_in_vocabulary": "t5"})");
  SF_EXPECT_ERROR(ValueError, "built_in_vocabulary must be clip, got 't5'",
                  CLIPTokenizer::from_pretrained(folder_.string()));
}

TEST_F(CLIPTokenizerTest, the_built_in_vocabulary_is_the_published_one) {
  std::string source = whole_vocabulary();
  if (source.empty()) GTEST_SKIP() << "CLIP's whole vocabulary is not here (SF_SHARED_DATA)";
  FileTexts built_in = CLIPTokenizer::built_in().files(), published = CLIPTokenizer::from_pretrained(source).files();
  for (const char* name : {"vocab.json", "merges.txt"}) EXPECT_EQ(built_in.at(name), published.at(name)) << name;
}

TEST_F(CLIPTokenizerTest, reads_files_in_memory_as_those_of_a_folder) {
  CLIPTokenizer tok = CLIPTokenizer::from_pretrained(kGolden + "clip_small");
  FileTexts files = tok.files();
  const CLIPTokenizer again = CLIPTokenizer::from_pretrained({"one.safetensors", files});
  EXPECT_EQ(again.vocabulary(), tok.vocabulary());
  EXPECT_EQ(again.encode("a photo of a cat").ids, tok.encode("a photo of a cat").ids);
  files["merges.txt"] = "a b c\n";
  SF_EXPECT_ERROR(ValueError, "one.safetensors/merges.txt: line 1 must be two tokens",
                  CLIPTokenizer::from_pretrained({"one.safetensors", files}));
  files["vocab.json"] = std::string(100, '[');
  SF_EXPECT_ERROR(ValueError, "one.safetensors/vocab.json: it is nested more than 64 deep",
                  CLIPTokenizer::from_pretrained({"one.safetensors", files}));
}

TEST_F(CLIPTokenizerTest, gives_the_ids_of_openai) {
  std::string source = whole_vocabulary();
  if (source.empty()) GTEST_SKIP() << "CLIP's whole vocabulary is not here (SF_SHARED_DATA)";
  CLIPTokenizer tok = CLIPTokenizer::from_pretrained(source),
                theirs = CLIPTokenizer::from_pretrained(source, TextCleaning::OpenAI);
  // OpenAI turns HTML's character references into characters and does not bring texts to NFC. transformers does the
  // contrary, and for the two rows where it matters gives these ids.
  const std::map<std::string, std::vector<int64_t>> transformers{
      {"&lt;html&gt; &amp;amp; entities", {261, 3333, 282, 18231, 261, 4725, 282, 261, 6259, 282, 6259, 282, 38134}},
      {"e\xCC\x81 combining", {4166, 23561}}};
  std::ifstream lines(source + "/golden.jsonl");
  size_t rows = 0, different = 0;
  for (std::string line; std::getline(lines, line); ++rows) {
    Json row = Json::parse(line);
    std::string text = row["text"];
    auto other = transformers.find(text);
    different += other != transformers.end();
    EXPECT_EQ(theirs.encode(text, {.add_special_tokens = false}).ids, row["ids"].get<std::vector<int64_t>>()) << text;
    auto want = other == transformers.end() ? row["ids"].get<std::vector<int64_t>>() : other->second;
    EXPECT_EQ(tok.encode(text, {.add_special_tokens = false}).ids, want) << text;
  }
  EXPECT_EQ(rows, 230u);
  EXPECT_EQ(different, transformers.size());
}

TEST_F(CLIPTokenizerTest, the_cleaning_is_saved_and_named) {
  CLIPTokenizer tok = CLIPTokenizer::from_pretrained(kGolden + "clip_small", TextCleaning::OpenAI);
  tok.save_pretrained(path("saved"));
  CLIPTokenizer again = CLIPTokenizer::from_pretrained(path("saved")),
                plain = CLIPTokenizer::from_pretrained(path("saved"), TextCleaning::Transformers);
  const char *escaped = "a&amp;lt;b", *meant = "a<b";
  EXPECT_EQ(again.encode(escaped).ids, plain.encode(meant).ids);
  EXPECT_NE(plain.encode(escaped).ids, plain.encode(meant).ids);
  EXPECT_EQ(again.encode("  A \t\n B ").ids, plain.encode("a b").ids);
  write("tokenizer_config.json", R"({"text_cleaning": "ftfy"})");
  for (const char* name : {"vocab.json", "merges.txt"}) fs::copy_file(kGolden + "clip_small/" + name, folder_ / name);
  SF_EXPECT_ERROR(ValueError, "text_cleaning: must be transformers or openai, got 'ftfy'",
                  CLIPTokenizer::from_pretrained(folder_.string()));
}

TEST_F(CLIPTokenizerTest, reads_tokenizer_json_and_its_own_files_alike) {
  CLIPTokenizer first = CLIPTokenizer::from_pretrained(kGolden + "clip_small");
  first.add_tokens({{.content = "<cat-toy>", .normalized = false}});
  first.save_pretrained(path("saved"));
  CLIPTokenizer second = CLIPTokenizer::from_pretrained(path("saved"));
  std::string vocab = io::TestFolder::bytes_of(path("saved/vocab.json")), merges = bytes_of(path("saved/merges.txt"));
  Json list = Json::array();
  std::istringstream lines(merges);
  std::string line;
  for (std::getline(lines, line); std::getline(lines, line);) list.push_back(line);
  Json document{
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<|endoftext|>"},
        {"end_of_word_suffix", "</w>"},
        {"vocab", Json::parse(vocab)},
        {"merges", list}}},
      {"added_tokens", {{{"id", 1014}, {"content", "<cat-toy>"}, {"normalized", false}, {"special", false}}}}};
  write("tokenizer.json", document.dump());
  CLIPTokenizer third = CLIPTokenizer::from_pretrained(folder_.string());
  for (const char* text : {"A photo of <cat-toy>!", "caf\xC3\xA9 <|endoftext|> 12"}) {
    EXPECT_EQ(second.encode(text).ids, first.encode(text).ids);
    EXPECT_EQ(third.encode(text).ids, first.encode(text).ids);
  }
  EXPECT_EQ(second.vocabulary(), first.vocabulary());
  EXPECT_EQ(first.decode(first.encode("a <cat-toy>").ids, true), "a <cat-toy>");
}

TEST_F(CLIPTokenizerTest, wrong_files_are_refused_by_name_and_rule) {
  auto broken = [&](const std::string& vocab, const std::string& merges) {
    return CLIPTokenizer::from_files(write("vocab.json", vocab), write("merges.txt", merges));
  };
  const std::string ends = R"("<|startoftext|>":1,"<|endoftext|>":2)";
  SF_EXPECT_ERROR(RuntimeError, "has neither vocab.json and merges.txt nor tokenizer.json",
                  CLIPTokenizer::from_pretrained(path("nothing")));
  SF_EXPECT_ERROR(ValueError, "vocab.json: the vocabulary has no '<|endoftext|>'", broken("{}", ""));
  SF_EXPECT_ERROR(ValueError, "the vocabulary has no '<|startoftext|>'", broken(R"({"<|endoftext|>":2})", ""));
  SF_EXPECT_ERROR(ValueError, "vocab.json: must be an object of tokens and ids, got array", broken("[]", ""));
  SF_EXPECT_ERROR(ValueError, "merges.txt: line 2 must be two tokens",
                  broken("{" + ends + "}", "#version: 0.2\nabc\n"));
  SF_EXPECT_ERROR(ValueError, "merges.txt: line 1 must be two tokens", broken("{" + ends + "}", "a b c\n"));
  SF_EXPECT_ERROR(ValueError, "merges.txt: merge 0 ('a' 'b') joins a token", broken("{" + ends + "}", "a b\n"));
  SF_EXPECT_ERROR(ValueError, "makes a token that is not in the vocabulary",
                  broken("{\"a\":0,\"b\":3," + ends + "}", "a b\n"));
  write("vocab.json", "{" + ends + "}");
  write("merges.txt", "");
  write("tokenizer_config.json", R"({"model_max_length": "long"})");
  SF_EXPECT_ERROR(ValueError, "tokenizer_config.json.model_max_length: must be a number",
                  CLIPTokenizer::from_pretrained(folder_.string()));
  write("tokenizer_config.json", R"({"padding_side": "up"})");
  SF_EXPECT_ERROR(ValueError, "must be left or right", CLIPTokenizer::from_pretrained(folder_.string()));
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"2": {"content": "x"}}})");
  SF_EXPECT_ERROR(ValueError, "both have id 2", CLIPTokenizer::from_pretrained(folder_.string()));
}

TEST_F(CLIPTokenizerTest, tokens_of_older_files_are_found) {
  for (const char* name : {"vocab.json", "merges.txt"}) fs::copy_file(kGolden + "clip_small/" + name, folder_ / name);
  write("added_tokens.json", R"({"<cat-toy>": 1015, "<dog-toy>": 1014})");
  write("special_tokens_map.json",
        R"({"pad_token": "!", "additional_special_tokens": ["<mask>", {"content": "<dog-toy>"}]})");
  CLIPTokenizer tok = CLIPTokenizer::from_pretrained(folder_.string());
  EXPECT_EQ(tok.encode("<cat-toy><mask> <dog-toy>").ids, (std::vector<int64_t>{1012, 1015, 1016, 1014, 1013}));
  EXPECT_EQ(tok.pad_token_id(), 0);
  write("added_tokens.json", R"({"<cat-toy>": 5})");
  SF_EXPECT_ERROR(ValueError, "and '<cat-toy>' both have id 5", CLIPTokenizer::from_pretrained(folder_.string()));
}

TEST_F(CLIPTokenizerTest, threads_share_one) {
  CLIPTokenizer tok = CLIPTokenizer::from_pretrained(kGolden + "clip_small");
  std::vector<std::string> texts;
  for (int i = 0; i < 200; ++i)
    texts.push_back("a photo of cat number " + std::to_string(i * 7919) + " caf\xC3\xA9 " +
                    std::string(size_t(i % 30), 'z'));
  CLIPTokenizer other = CLIPTokenizer::from_pretrained(kGolden + "clip_small");
  auto want = other.encode_batch(texts);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int n = 0; n < 4; ++n)
    threads.emplace_back([&] {
      for (size_t i = 0; i < texts.size(); ++i) wrong += tok.encode(texts[i]).ids != want[i].ids;
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

// Code points of every plane, marks, joiners, spaces, quotes and pieces of special tokens, in lengths up to 60.
std::string random_text(std::mt19937& rng) {
  auto pick = [&](uint32_t n) { return uint32_t(rng() % n); };
  std::string out;
  auto append = [&](uint32_t c) {
    if (c >= 0xD800 && c < 0xE000) c = 0xFFFD;
    if (c < 0x80) {
      out += char(c);
    } else if (c < 0x800) {
      out += char(0xC0 | (c >> 6)), out += char(0x80 | (c & 63));
    } else if (c < 0x10000) {
      out += char(0xE0 | (c >> 12)), out += char(0x80 | ((c >> 6) & 63)), out += char(0x80 | (c & 63));
    } else {
      out += char(0xF0 | (c >> 18)), out += char(0x80 | ((c >> 12) & 63)), out += char(0x80 | ((c >> 6) & 63)),
          out += char(0x80 | (c & 63));
    }
  };
  for (uint32_t n = pick(60); n > 0; --n) {
    switch (pick(9)) {
      case 0: append(pick(0x110000)); break;
      case 1: append(0x300 + pick(0x70)); break;
      case 2: out += "'s"; break;
      case 3: append(0x2000 + pick(0x70)); break;
      case 4: out += pick(8) ? "<|" : "<|endoftext|>"; break;
      case 5: append(pick(0x3000)); break;
      default: append(pick(0x80)); break;
    }
  }
  return out;
}

TEST_F(CLIPTokenizerTest, takes_any_unicode_text) {
  const char* set = std::getenv("SF_TOKENIZER_TEXTS");
  long count = set ? std::atol(set) : 3000;
  std::string source = whole_vocabulary();
  CLIPTokenizer tok = CLIPTokenizer::from_pretrained(source.empty() ? kGolden + "clip_small" : source);
  auto size = int64_t(tok.size());
  std::mt19937 rng(1);
  for (long i = 0; i < count; ++i) {
    std::string text = random_text(rng);
    auto e = tok.encode(text);
    ASSERT_EQ(e.ids.front(), tok.bos_token_id()) << Json(text);
    ASSERT_EQ(e.ids.back(), tok.eos_token_id()) << Json(text);
    for (auto id : e.ids) ASSERT_TRUE(id >= 0 && id < size) << Json(text);
    ASSERT_EQ(tok.encode(text, tok.fixed_length()).ids.size(), 77u);
    require_utf8(tok.decode(e.ids, true), "decode");
  }
}

// Of the processor's time, which other programs do not lengthen: ten times the text may take forty times as long, where
// merging in quadratic time takes a hundred.
TEST_F(CLIPTokenizerTest, long_texts_take_time_in_proportion) {
  CLIPTokenizer tok = CLIPTokenizer::from_pretrained(kGolden + "clip_small");
  auto ticks = [&](const std::string& text) {
    std::clock_t least = 0;
    for (int i = 0; i < 3; ++i) {
      const std::clock_t start = std::clock();
      tok.encode(text);
      const std::clock_t taken = std::clock() - start;
      least = i == 0 ? taken : std::min(least, taken);
    }
    return double(least);
  };
  std::string words;
  while (words.size() < 200'000) words += "a photo of " + std::to_string(words.size() % 977) + " astronauts, ";
  EXPECT_LT(ticks(words), 40 * ticks(words.substr(0, 20'000)));
  EXPECT_LT(ticks(std::string(200'000, 'e')), 40 * ticks(std::string(20'000, 'e'))) << "merging must not be quadratic";
}

std::vector<std::string> captions() {
  std::vector<std::string> out;
  const char* words[] = {"a",         "photo",    "of",     "the",  "cat",   "dog",         "sitting", "running",
                         "beautiful", "mountain", "sunset", "over", "ocean", "caf\xC3\xA9", "don't",   "1990"};
  std::mt19937 rng(5);
  for (int i = 0; i < 400; ++i) {
    std::string s;
    for (uint32_t n = 3 + uint32_t(rng() % 8); n > 0; --n)
      s += std::string(words[rng() % 16]) + (rng() % 5 ? " " : ", ");
    out.push_back(s);
  }
  return out;
}

TEST_F(CLIPTokenizerTest, training_gives_the_same_files_for_the_same_texts) {
  auto texts = captions();
  CLIPTokenizer tok = train_bpe(texts, {.vocab_size = 560});
  EXPECT_EQ(tok.size(), 560u);
  EXPECT_EQ(tok.bos_token_id(), 558);
  EXPECT_EQ(tok.eos_token_id(), 559);
  tok.save_pretrained(path("first"));
  std::reverse(texts.begin(), texts.end());
  train_bpe(texts, {.vocab_size = 560}).save_pretrained(path("second"));
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json"})
    EXPECT_EQ(bytes_of(path("first") + "/" + name), bytes_of(path("second") + "/" + name)) << name;
  CLIPTokenizer again = CLIPTokenizer::from_pretrained(path("first"));
  for (auto& text : texts) {
    EXPECT_EQ(again.encode(text).ids, tok.encode(text).ids);
  }
  EXPECT_EQ(again.decode(again.encode("A photo of the caf\xC3\xA9, don't!").ids, true),
            "a photo of the caf\xC3\xA9 , don 't !");
  EXPECT_LT(again.encode("a photo of the cat").ids.size(), 12u) << "frequent words are few tokens";
}

TEST_F(CLIPTokenizerTest, training_merges_the_most_frequent_pair_first) {
  CLIPTokenizer tok = train_bpe({"abab abab abab", "cd cd", "ef"}, {.vocab_size = 600, .min_frequency = 2});
  tok.save_pretrained(path("t"));
  // ab: 3 words (the second ab of a word ends in </w>); then abab, as frequent; cd: 2; ef is too rare.
  EXPECT_EQ(bytes_of(path("t/merges.txt")), "#version: 0.2\na b\na b</w>\nab ab</w>\nc d</w>\n");
  SF_EXPECT_ERROR(ValueError, "vocab_size must be between 514 and", train_bpe({"a"}, {.vocab_size = 513}));
  SF_EXPECT_ERROR(ValueError, "min_frequency must be at least 1", train_bpe({"a"}, {.min_frequency = 0}));
  SF_EXPECT_ERROR(ValueError, "train_bpe: text must be UTF-8", train_bpe({"\xFF"}));
  EXPECT_EQ(train_bpe({}).size(), 514u);
}

}  // namespace
}  // namespace sf::tokenizers
