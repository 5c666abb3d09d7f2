#include "scaffolding/data/icon_dataset.h"

#include <cstring>
#include <set>

#include "scaffolding/data/test_tar.h"
#include "scaffolding/io/test_folder.h"

namespace sf::data {
namespace {

// A picture whose left half is opaque red and whose right half is transparent.
std::string half_red(int64_t size) {
  Tensor t = empty({4, size, size}, kUInt8);
  auto* p = t.data<uint8_t>();
  for (int64_t i = 0; i < size * size; ++i)
    p[i] = 255, p[size * size + i] = p[2 * size * size + i] = 0, p[3 * size * size + i] = i % size < size / 2 ? 255 : 0;
  return io::encode_image(t, io::ImageFormat::PNG);
}

class IconDatasetTest : public io::TestFolder {
 protected:
  std::string tar(const std::string& metadata) {
    return write("icons.tar", tar_entry("metadata.jsonl", metadata) + tar_entry("noto/a.png", half_red(8)) +
                                  tar_entry("flat/b.png", half_red(16)) + kTarEnd);
  }
  const std::string rows_ =
      R"({"file_name": "noto/a.png", "caption": "red bar", "keywords": ["bar", "red", "stripe"], )"
      R"("style": "noto", "group": "Objects", "split": "train"})"
      "\n"
      R"({"file_name": "flat/b.png", "caption": "red bar", "keywords": [], "style": "fluent flat", )"
      R"("group": "Symbols", "split": "heldout_combo"})"
      "\n";
};

TEST_F(IconDatasetTest, PicturesStandOnTheNamedBackground) {
  IconDataset icons(tar(rows_),
                    {.size = 16, .background_probability = 1, .keyword_probability = 0, .style_dropout = 0});
  ASSERT_EQ(icons.size(), 2);
  std::set<std::string> prompts;
  for (uint64_t seed = 0; seed < 64; ++seed) {
    SampleRandom random(seed);
    Sample s = icons.get(0, random);
    ASSERT_EQ(s.image.shape(), (Shape{3, 16, 16}));
    prompts.insert(s.caption);
    ASSERT_TRUE(s.caption.starts_with("red bar, noto, on a ")) << s.caption;
    for (auto& colour : background_colours()) {
      if (s.caption != icon_prompt("red bar", "noto", colour.name)) continue;
      Tensor right = s.image.contiguous();
      for (int64_t c = 0; c < 3; ++c)
        EXPECT_NEAR(right.data<float>()[c * 256 + 15], double(colour.rgb[size_t(c)]) / 127.5 - 1, 1e-5);
      EXPECT_NEAR(right.data<float>()[0], 1, 1e-5);
    }
  }
  EXPECT_GT(prompts.size(), 8u);
}

TEST_F(IconDatasetTest, PromptsVary) {
  IconDataset icons(tar(rows_), {.background_probability = 0, .keyword_probability = 0.5, .style_dropout = 0.5});
  std::set<std::string> prompts;
  SampleRandom random(1);
  for (int i = 0; i < 200; ++i) prompts.insert(icons.prompt(0, "", random));
  EXPECT_TRUE(prompts.count("red bar, noto") && prompts.count("red bar") && prompts.count("stripe, noto"))
      << prompts.size();
  EXPECT_TRUE(prompts.count("stripe, red, bar"));
  prompts.clear();
  for (int i = 0; i < 50; ++i) prompts.insert(icons.prompt(1, "blue", random));  // without keywords the caption stays
  EXPECT_EQ(prompts,
            (std::set<std::string>{"red bar, fluent flat, on a blue background", "red bar, on a blue background"}));
}

TEST_F(IconDatasetTest, SplitsAndGroups) {
  EXPECT_EQ(IconDataset(tar(rows_), {.splits = {"train"}}).size(), 1);
  IconDataset without_symbols(tar(rows_), {.left_out_groups = {"Symbols"}});
  EXPECT_EQ(without_symbols.icon(0).style, "noto");
  EXPECT_EQ(without_symbols.size(), 1);
  SF_EXPECT_ERROR(ValueError, "no pictures of these splits", IconDataset(tar(rows_), {.splits = {"test"}}));
  SF_EXPECT_ERROR(ValueError, "must have a text 'style'",
                  IconDataset(tar(R"({"file_name": "noto/a.png", "caption": "red bar"})")));
  SF_EXPECT_ERROR(IndexError, "there are 1 icons", without_symbols.icon(1));
}

TEST_F(IconDatasetTest, DrawingsAreKeptAsFarAsThereIsRoom) {
  const auto path = tar(rows_);
  IconDataset all(path), one(path, {.kept_bytes = 4 * 16 * 16}), none(path, {.kept_bytes = 0});
  const auto keeps = [](const IconDataset& icons, int64_t i) {
    const Tensor first = icons.drawing(i);
    return first.data_ptr() == icons.drawing(i).data_ptr();
  };
  EXPECT_TRUE(keeps(all, 0) && keeps(all, 1));
  EXPECT_TRUE(keeps(one, 0) && !keeps(one, 1));
  EXPECT_FALSE(keeps(none, 0) || keeps(none, 1));
  EXPECT_EQ(none.drawing(1).to_vector(), all.drawing(1).to_vector());
}

TEST_F(IconDatasetTest, TextsHoldEveryWordOfAPrompt) {
  std::string all;
  for (auto& text : IconDataset(tar(rows_)).texts()) all += text + "\n";
  for (const char* word : {"stripe", "red bar, fluent flat", "on a purple background"})
    EXPECT_NE(all.find(word), std::string::npos) << word;
}

}  // namespace
}  // namespace sf::data
