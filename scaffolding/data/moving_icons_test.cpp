#include "scaffolding/data/moving_icons.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "scaffolding/data/dataloader.h"
#include "scaffolding/data/test_tar.h"
#include "scaffolding/io/test_folder.h"

namespace sf::data {
namespace {

// An opaque blue rectangle, right of the middle of a transparent picture.
std::string bar(int64_t size) {
  Tensor t = zeros({4, size, size}, kUInt8);
  auto* p = t.data<uint8_t>();
  for (int64_t y = size / 4; y < size * 3 / 4; ++y)
    for (int64_t x = size / 2; x < size; ++x) p[(2 * size + y) * size + x] = p[(3 * size + y) * size + x] = 255;
  return io::encode_image(t, io::ImageFormat::PNG);
}

struct Centre {
  double x, y;
};
// The mean place of the pixels of a frame that are not white.
Centre centre_of(const Tensor& clip, int64_t frame) {
  const Tensor picture = clip.select(1, frame).contiguous();
  const int64_t size = picture.size(1);
  const auto* p = picture.data<uint8_t>();
  double sum = 0, x = 0, y = 0;
  for (int64_t i = 0; i < size * size; ++i) {
    const double weight = 255 - p[i];  // its red
    sum += weight, x += weight * double(i % size), y += weight * double(i / size);
  }
  return {x / sum, y / sum};
}

class MovingIconsTest : public io::TestFolder {
 protected:
  std::shared_ptr<const IconDataset> icons(double background = 0) {
    IconOptions options;
    options.background_probability = background;
    options.keyword_probability = options.style_dropout = 0;
    options.styles = {"noto"};
    return std::make_shared<IconDataset>(
        write("icons.tar",
              tar_entry("metadata.jsonl", R"({"file_name": "a.png", "caption": "bar", "style": "noto"})"
                                          "\n"
                                          R"({"file_name": "b.png", "caption": "bar", "style": "fluent flat"})") +
                  tar_entry("a.png", bar(32)) + tar_entry("b.png", bar(32)) + kTarEnd),
        options);
  }
};

TEST_F(MovingIconsTest, an_icon_is_where_its_trajectory_says) {
  MovingIcons clips(icons(), {.gradient_probability = 0});
  ASSERT_EQ(clips.size(), 1);  // of the style that was asked for
  std::set<float> starts;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    SampleRandom random(seed);
    const Sample s = clips.get(0, random);
    ASSERT_EQ(s.image.shape(), (Shape{3, 17, 64, 64}));
    ASSERT_EQ(s.target.shape(), (Shape{1, 17, 2}));
    EXPECT_EQ(s.caption, "bar, noto");
    const auto* point = s.target.data<float>();
    starts.insert(point[0]);
    for (int64_t frame = 0; frame < 17; ++frame) {
      const Centre found = centre_of(s.image, frame);
      EXPECT_NEAR(found.x, point[2 * frame], 0.75) << "seed " << seed << ", frame " << frame;
      EXPECT_NEAR(found.y, point[2 * frame + 1], 0.75) << "seed " << seed << ", frame " << frame;
      EXPECT_EQ(point[2 * frame], std::trunc(point[2 * frame]));
    }
  }
  EXPECT_GT(starts.size(), 8u);
}

TEST_F(MovingIconsTest, the_random_numbers_of_a_sample_make_all_of_it) {
  MovingIcons clips(icons(0.5), {.num_frames = 5, .size = 32, .smallest_icon = 8, .largest_icon = 16});
  SampleRandom one(3), same(3), other(4);
  const Sample a = clips.get(0, one), b = clips.get(0, same), c = clips.get(0, other);
  auto equal = [](const Tensor& x, const Tensor& y) {
    return std::equal(x.data<uint8_t>(), x.data<uint8_t>() + x.numel(), y.data<uint8_t>());
  };
  EXPECT_TRUE(equal(a.image, b.image) && a.caption == b.caption);
  EXPECT_FALSE(equal(a.image, c.image));
}

TEST_F(MovingIconsTest, backgrounds_are_as_the_caption_says) {
  MovingIcons clips(icons(0.4),
                    {.num_frames = 2, .size = 32, .smallest_icon = 8, .largest_icon = 8, .gradient_probability = 0.4});
  int64_t white = 0, plain = 0, gradients = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SampleRandom random(seed);
    const Sample s = clips.get(0, random);
    const auto* p = s.image.data<uint8_t>();
    bool named = false;
    for (auto& top : background_colours())
      for (auto& bottom : background_colours()) {
        const bool one = top.name == bottom.name;
        const std::string name = one ? top.name : std::string(top.name) + " to " + bottom.name;
        if (s.caption != icon_prompt("bar", "noto", name)) continue;
        named = true, ++(one ? plain : gradients);
        // The corners are free but where the icon lies in one: one side of the frame is.
        int64_t matching = 0;
        for (int64_t x : {0, 31}) {
          bool same = true;
          for (int64_t c = 0; c < 3; ++c)
            same &= p[c * 2048 + x] == top.rgb[size_t(c)] && p[c * 2048 + 31 * 32 + x] == bottom.rgb[size_t(c)];
          matching += same;
        }
        EXPECT_GT(matching, 0) << s.caption;
      }
    white += !named && s.caption == "bar, noto";
  }
  EXPECT_EQ(white + plain + gradients, 200);
  EXPECT_TRUE(white > 15 && plain > 50 && gradients > 50) << white << " " << plain << " " << gradients;
}

TEST_F(MovingIconsTest, a_loader_stacks_clips_and_trajectories) {
  auto clips = std::make_shared<MovingIcons>(icons(), MovingIconOptions{.num_frames = 5});
  DataLoader loader(clips, {.batch_size = 1});
  for (Batch& batch : loader) {
    EXPECT_EQ(batch.image.shape(), (Shape{1, 3, 5, 64, 64}));
    EXPECT_EQ(batch.target.shape(), (Shape{1, 1, 5, 2}));
  }
}

TEST_F(MovingIconsTest, a_clip_of_places_that_are_given) {
  MovingIcons clips(icons());
  const Tensor clip = clips.clip(0, 16, {{20, 30}, {40, 12}, {0, 63}}, {255, 255, 255}, {255, 255, 255});
  ASSERT_EQ(clip.shape(), (Shape{3, 3, 64, 64}));
  EXPECT_NEAR(centre_of(clip, 0).x, 20, 0.6);
  EXPECT_NEAR(centre_of(clip, 1).y, 12, 0.6);
  EXPECT_LT(centre_of(clip, 2).x, 8);  // cut off, not wrapped round
  EXPECT_GT(centre_of(clip, 2).y, 56);
}

TEST_F(MovingIconsTest, what_is_refused) {
  SF_EXPECT_ERROR(ValueError, "needs icons", MovingIcons(nullptr));
  SF_EXPECT_ERROR(ValueError, "num_frames must be 1 to", MovingIcons(icons(), {.num_frames = 0}));
  SF_EXPECT_ERROR(ValueError, "size must be 1 to 4096, got 5000", MovingIcons(icons(), {.size = 5000}));
  SF_EXPECT_ERROR(ValueError, "icons must be 1 to size = 16 pixels wide, got 20 to 28",
                  MovingIcons(icons(), {.size = 16}));
  SF_EXPECT_ERROR(ValueError, "margin must be 0 or above and below half of size = 64, got 32",
                  MovingIcons(icons(), {.margin = 32}));
  SF_EXPECT_ERROR(ValueError, "gradient_probability must be 0 to 1",
                  MovingIcons(icons(), {.gradient_probability = 1.5}));
  SF_EXPECT_ERROR(ValueError, "must be 1 at most together", MovingIcons(icons(0.9), {.gradient_probability = 0.5}));
  MovingIcons clips(icons());
  SF_EXPECT_ERROR(ValueError, "places must be in a frame of 64x64, got (64, 1)",
                  clips.clip(0, 8, {{64, 1}}, {0, 0, 0}, {0, 0, 0}));
  SF_EXPECT_ERROR(ValueError, "a clip has 1 to", clips.clip(0, 8, {}, {0, 0, 0}, {0, 0, 0}));
  SF_EXPECT_ERROR(IndexError, "there are 1 icons", clips.clip(1, 8, {{1, 1}}, {0, 0, 0}, {0, 0, 0}));
}

}  // namespace
}  // namespace sf::data
