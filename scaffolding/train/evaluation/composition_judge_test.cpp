#include "scaffolding/train/evaluation/composition_judge.h"

#include <gtest/gtest.h>

#include <set>

#include "scaffolding/core/error.h"
#include "scaffolding/data/test_tar.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/train/evaluation/test_outlines.h"

namespace sf::train {
namespace {

// Pictures with transparency, each of another outline; each second one is red, the others are blue.
std::string drawing(int64_t kind) {
  constexpr int64_t kSide = 64;
  Tensor t = zeros({4, kSide, kSide}, kUInt8);
  auto* p = t.data<uint8_t>();
  for (int64_t y = 0; y < kSide; ++y)
    for (int64_t x = 0; x < kSide; ++x) {
      const double u = double(x) / kSide - 0.5, v = double(y) / kSide - 0.5;
      if (!test::in_outline(kind, u, v)) continue;
      p[(kind % 2 ? 2 : 0) * kSide * kSide + y * kSide + x] = 215;
      p[kSide * kSide + y * kSide + x] = 40;
      p[3 * kSide * kSide + y * kSide + x] = 255;
    }
  return io::encode_image(t, io::ImageFormat::PNG);
}

class CompositionJudgeTest : public io::TestFolder {
 protected:
  std::shared_ptr<const data::ComposedIcons> composed() {
    static const char* const kNames[]{"disc",  "square", "diamond", "cone",  "ring",  "post",
                                      "plank", "cross",  "dome",    "wedge", "slash", "gate"};
    std::string rows, pictures;
    for (int64_t i = 0; i < 12; ++i) {
      const std::string file = std::to_string(i) + ".png";
      rows += R"({"file_name": ")" + file + R"(", "caption": ")" + kNames[i] +
              R"(", "style": "drawn", "split": "train"})" + "\n";
      pictures += data::tar_entry(file, drawing(i));
    }
    rows += R"({"file_name": "12.png", "caption": "red disc", "style": "drawn", "split": "other"})";
    pictures += data::tar_entry("12.png", drawing(0));
    data::IconOptions reading;
    reading.background_probability = reading.keyword_probability = reading.style_dropout = 0;
    return std::make_shared<data::ComposedIcons>(std::make_shared<data::IconDataset>(
        write("icons.tar", data::tar_entry("metadata.jsonl", rows) + pictures + data::kTarEnd), reading));
  }
};

TEST_F(CompositionJudgeTest, prompts_ask_for_what_no_icon_is) {
  auto data = composed();
  const auto prompts = composition_prompts(data->icons(), 8, 3);
  std::map<std::string, int64_t> sets;
  for (auto& p : prompts) {
    ++sets[p.set];
    if (p.set == "colours") {
      const bool is_red = p.parts[0].icon % 2 == 0;
      EXPECT_NE(p.parts[0].colour, is_red ? "red" : "blue") << p.prompt;
      EXPECT_NE(p.parts[0].colour, "white");
      EXPECT_TRUE(p.prompt.starts_with(p.parts[0].colour + " ")) << p.prompt;
    } else if (p.set == "pairs") {
      EXPECT_NE(p.parts[0].icon, p.parts[1].icon);
      EXPECT_NE(p.prompt.find(" and "), std::string::npos);
    } else if (p.set == "counts") {
      EXPECT_TRUE(p.prompt.starts_with(p.parts.size() == 2 ? "two " : "three ")) << p.prompt;
    }
  }
  EXPECT_EQ(sets, (std::map<std::string, int64_t>{{"colours", 8}, {"pairs", 8}, {"counts", 8}, {"seeds", 8}}));
  EXPECT_TRUE(composition_prompts(data->icons(), 0, 3).empty());
  EXPECT_THROW(composition_prompts(data->icons(), -1, 3), ValueError);
}

TEST_F(CompositionJudgeTest, composed_icons_are_found_and_others_are_not) {
  const CompositionJudge judge(composed());
  const auto prompts = composition_prompts(judge.composed().icons(), 10, 1);
  const auto rows = composition_check(judge, prompts, 1, [](const Tensor& x) { return x; });
  ASSERT_EQ(rows.size(), 3u);
  const auto& real = rows[0].figures;
  EXPECT_EQ(real.colours, 10);
  EXPECT_EQ(real.pairs, 10);
  EXPECT_EQ(real.counts, 10);
  EXPECT_EQ(real.seeds, 2);
  EXPECT_GE(real.right_colour, 0.95);
  EXPECT_GE(real.thing, 0.95);
  EXPECT_GE(real.both_found, 0.95);
  EXPECT_GE(real.all_found, 0.95);
  EXPECT_GT(real.seed_distance, 0);
  EXPECT_EQ(rows[1].figures.both_found, real.both_found);
  EXPECT_LE(rows[2].change == "by chance" ? rows[2].figures.right_colour : 1, 0.3);
  EXPECT_LT(rows[2].figures.both_found, 0.8);  // five of twelve are near enough
}

TEST_F(CompositionJudgeTest, one_of_two_things_is_one) {
  const CompositionJudge judge(composed());
  data::SampleRandom random(5);
  const auto pair = judge.composed().row({{1}, {7}}, {}, random);
  EXPECT_EQ(judge.found(*pair, {1, 7}), 2);
  EXPECT_EQ(judge.found(*pair, {7, 1}), 2);  // in any order
  const auto alone = judge.composed().single({1}, {}, false, random);
  int64_t taken_for_two = 0;  // five of twelve are near enough for a piece, so some are
  for (int64_t other = 0; other < 12; ++other) taken_for_two += other != 1 && judge.found(*alone, {1, other}) == 2;
  EXPECT_LE(taken_for_two, 6);
  const Tensor nothing = full({3, 128, 128}, 255, kUInt8);
  EXPECT_EQ(judge.found(nothing, {1, 7}), 0);
  EXPECT_EQ(CompositionJudge::colour(nothing), "");
  EXPECT_THROW(judge.found(nothing, {1, 2, 3, 4}), ValueError);
}

TEST_F(CompositionJudgeTest, colours_are_called_by_their_names_and_things_told_by_their_outlines) {
  const CompositionJudge judge(composed());
  data::SampleRandom random(5);
  const auto turned = judge.composed().single({3, "green"}, {}, false, random);
  EXPECT_EQ(CompositionJudge::colour(*turned), "green");
  EXPECT_TRUE(judge.is_thing(*turned, 3));
  const auto named = named_colours_check(judge.composed().icons());
  EXPECT_EQ(named.pictures, 1);
  EXPECT_EQ(named.right, 1);
}

TEST_F(CompositionJudgeTest, what_is_alike_is_near) {
  const CompositionJudge judge(composed());
  data::SampleRandom random(5);
  const auto a = judge.composed().single({3}, {}, false, random), b = judge.composed().single({3}, {}, true, random),
             c = judge.composed().single({4}, {}, false, random);
  EXPECT_NEAR(judge.distance(*a, *a), 0, 1e-5);
  EXPECT_GT(judge.distance(*a, *b), 1e-3);
  EXPECT_GT(judge.distance(*a, *c), judge.distance(*a, *b));
  EXPECT_GT(distance_of_others(judge, 12, 1), 0.5);
}

}  // namespace
}  // namespace sf::train
