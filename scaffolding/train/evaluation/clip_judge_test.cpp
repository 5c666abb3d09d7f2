#include "scaffolding/train/evaluation/clip_judge.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "scaffolding/core/error.h"
#include "scaffolding/data/test_tar.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/train/evaluation/test_outlines.h"

namespace sf::train {
namespace {

// Pictures with transparency, each with another outline and colour.
std::string drawing(int64_t kind) {
  constexpr int64_t kSide = 64;
  Tensor t = zeros({4, kSide, kSide}, kUInt8);
  auto* p = t.data<uint8_t>();
  for (int64_t y = 0; y < kSide; ++y)
    for (int64_t x = 0; x < kSide; ++x) {
      const double u = double(x) / kSide - 0.5, v = double(y) / kSide - 0.5;
      if (!test::in_outline(kind % 8, u, v)) continue;
      const bool stripe = kind >= 8 && (x / 8) % 2 == 0;
      const int levels[3] = {int(kind * 37 % 200), stripe ? 20 : 200 - int(kind * 53 % 200), int(kind * 91 % 220)};
      for (int64_t c = 0; c < 3; ++c) p[(c * kSide + y) * kSide + x] = uint8_t(levels[c]);
      p[(3 * kSide + y) * kSide + x] = 255;
    }
  return io::encode_image(t, io::ImageFormat::PNG);
}

class ClipJudgeTest : public io::TestFolder {
 protected:
  static constexpr int64_t kIcons = 16;
  std::shared_ptr<const data::MovingIcons> clips() {
    std::string rows, pictures;
    for (int64_t i = 0; i < kIcons; ++i) {
      const std::string name = std::to_string(i), split = i < 12 ? "train" : "heldout_combo";
      rows += R"({"file_name": ")" + name + R"(.png", "caption": "thing )" + name +
              R"(", "style": "drawn", "split": ")" + split + "\"}\n";
      pictures += data::tar_entry(name + ".png", drawing(i));
    }
    data::IconOptions reading;
    reading.background_probability = 0.4;
    reading.keyword_probability = reading.style_dropout = 0;
    auto icons = std::make_shared<data::IconDataset>(
        write("icons.tar", data::tar_entry("metadata.jsonl", rows) + pictures + data::kTarEnd), reading);
    return std::make_shared<data::MovingIcons>(icons, data::MovingIconOptions{.gradient_probability = 0.3});
  }
};

Tensors real_ones(const std::vector<ClipPrompt>& prompts) {
  Tensors out;
  for (auto& p : prompts) out.push_back(p.real);
  return out;
}

TEST_F(ClipJudgeTest, real_clips_are_found_where_they_are_and_as_what_they_are) {
  auto data = clips();
  const ClipJudge judge(data);
  const auto prompts = clip_prompts(*data, 12, {"train", "heldout_combo"}, 1);
  ASSERT_EQ(prompts.size(), 16u);
  const ClipFigures f = figures_of(judge.judge(prompts, real_ones(prompts)));
  EXPECT_EQ(f.clips, 16);
  EXPECT_LT(f.distance, 1);
  EXPECT_GT(f.by_chance, 8);
  EXPECT_GT(f.top5, 0.9);
  EXPECT_EQ(f.found, 1);
  EXPECT_LT(f.change, 0.03);
  EXPECT_DOUBLE_EQ(judge.chance_of_top5(), 5.0 / 16);
}

TEST_F(ClipJudgeTest, other_things_and_places_are_not) {
  auto data = clips();
  const ClipJudge judge(data);
  const auto prompts = clip_prompts(*data, 12, {"train"}, 1);
  Tensors others = real_ones(prompts);
  std::rotate(others.begin(), others.begin() + 1, others.end());
  const ClipFigures f = figures_of(judge.judge(prompts, others));
  EXPECT_GT(f.distance, 8);
  EXPECT_LT(f.top1, 0.2);

  // Nothing at all, and something else in each frame.
  Tensors empty_ones, flicker;
  for (size_t i = 0; i < prompts.size(); ++i) {
    empty_ones.push_back(full(prompts[i].real.shape(), 200, kUInt8));
    Tensor mixed = prompts[i].real.clone();
    for (int64_t frame = 1; frame < mixed.size(1); frame += 2)
      mixed.select(1, frame).copy_(255 - prompts[i].real.select(1, frame));
    flicker.push_back(mixed);
  }
  EXPECT_EQ(figures_of(judge.judge(prompts, empty_ones)).found, 0);
  EXPECT_GT(figures_of(judge.judge(prompts, flicker)).change, 0.1);
}

TEST_F(ClipJudgeTest, prompts_are_the_seeds) {
  auto data = clips();
  const auto prompts = clip_prompts(*data, 5, {"train"}, 3), same = clip_prompts(*data, 5, {"train"}, 3),
             other = clip_prompts(*data, 5, {"train"}, 4);
  ASSERT_EQ(prompts.size(), 5u);
  EXPECT_EQ(prompts[2].prompt, same[2].prompt);
  EXPECT_EQ(prompts[2].way, same[2].way);
  EXPECT_NE(prompts[2].way, other[2].way);
  EXPECT_EQ(prompts[0].way.size(), 17u);
  EXPECT_TRUE(prompts[0].prompt.starts_with("thing "));
  SF_EXPECT_ERROR(ValueError, "no icons of the split 'test'", clip_prompts(*data, 5, {"test"}, 3));
  SF_EXPECT_ERROR(ValueError, "count must be above 0", clip_prompts(*data, 0, {"train"}, 3));
  const ClipJudge judge(data);
  SF_EXPECT_ERROR(ValueError, "needs a prompt for each clip, got 5 and 0", judge.judge(prompts, {}));
  SF_EXPECT_ERROR(ValueError, "a frame for each point, got 1 and 17",
                  judge.judge({prompts[0]}, {prompts[0].real.narrow(1, 0, 1)}));
}

TEST(clip_tracker, backgrounds_that_change_evenly_are_seen_through) {
  Tensor clip = empty({3, 4, 48, 64}, kUInt8);
  auto* p = clip.data<uint8_t>();
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t f = 0; f < 4; ++f)
      for (int64_t y = 0; y < 48; ++y)
        for (int64_t x = 0; x < 64; ++x) {
          const bool thing = x >= 10 * f && x < 10 * f + 12 && y >= 20 && y < 32;  // at an edge at first
          p[((c * 4 + f) * 48 + y) * 64 + x] = thing ? uint8_t(c == 0 ? 250 : 10) : uint8_t(60 + 2 * y + x / 2);
        }
  p[(0 * 48 + 3) * 64 + 60] = 255;  // a speck
  const TrackedClip tracked = track(clip);
  ASSERT_EQ(tracked.frames.size(), 4u);
  for (int64_t f = 0; f < 4; ++f) {
    const TrackedFrame& at = tracked.frames[size_t(f)];
    EXPECT_TRUE(at.found);
    EXPECT_NEAR(at.x, 10.0 * double(f) + 5.5, 0.5) << f;
    EXPECT_NEAR(at.y, 25.5, 0.5) << f;
    EXPECT_EQ(at.side, 12);
    const Tensor alone = cut_out(clip, tracked, f);
    EXPECT_EQ(alone.shape(), (Shape{3, 12, 12}));
    EXPECT_EQ(alone.data<uint8_t>()[0], 250);
    EXPECT_EQ(window(clip, tracked, f, 20).shape(), (Shape{3, 20, 20}));
    EXPECT_EQ(window(clip, tracked, f, 20).data<uint8_t>()[0], 255);  // beside it all is white
  }
  SF_EXPECT_ERROR(ValueError, "a clip must be uint8 [3, frames, height, width]", track(zeros({3, 4, 8, 8})));
}

}  // namespace
}  // namespace sf::train
