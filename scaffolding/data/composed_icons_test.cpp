#include "scaffolding/data/composed_icons.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "scaffolding/data/colour_names.h"
#include "scaffolding/data/dataloader.h"
#include "scaffolding/data/icon_canvas.h"
#include "scaffolding/data/icon_phrases.h"
#include "scaffolding/data/test_tar.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/ops.h"

namespace sf::data {
namespace {

constexpr int64_t kSize = 64;

// A block of a colour whose right end is narrower, so that a mirrored one is another.
std::string block(std::array<uint8_t, 3> colour) {
  Tensor t = zeros({4, kSize, kSize}, kUInt8);
  auto* p = t.data<uint8_t>();
  for (int64_t y = 12; y < 52; ++y)
    for (int64_t x = 8; x < (y < 32 ? 56 : 40); ++x) {
      for (size_t c = 0; c < 3; ++c) p[(int64_t(c) * kSize + y) * kSize + x] = colour[c];
      p[(3 * kSize + y) * kSize + x] = 255;
    }
  return io::encode_image(t, io::ImageFormat::PNG);
}

class ComposedIconsTest : public io::TestFolder {
 protected:
  std::shared_ptr<const IconDataset> icons(double background = 0) {
    IconOptions options;
    options.size = kSize;
    options.background_probability = background;
    options.keyword_probability = options.style_dropout = 0;
    return std::make_shared<IconDataset>(
        write("icons.tar",
              tar_entry("metadata.jsonl",
                        R"({"file_name": "a.png", "caption": "block", "style": "noto", "split": "train"})"
                        "\n"
                        R"({"file_name": "b.png", "caption": "yellow brick", "style": "noto", "split": "train"})"
                        "\n"
                        R"({"file_name": "c.png", "caption": "wall", "style": "flat", "split": "train"})") +
                  tar_entry("a.png", block({220, 40, 40})) + tar_entry("b.png", block({250, 205, 45})) +
                  tar_entry("c.png", block({40, 90, 210})) + kTarEnd),
        options);
  }
  static CompositionOptions plain() {
    return {.pair_probability = 0,
            .count_probability = 0,
            .recolour_probability = 0,
            .name_colour_probability = 0,
            .detail_dropout = 0,
            .variation_probability = 0,
            .gradient_probability = 0};
  }
};

Tensor bytes(const Tensor& image) { return clamp(round((image + 1) * 127.5), 0, 255).to(kUInt8); }
double farthest(const Tensor& a, const Tensor& b) { return amax(abs(a.to(kFloat32) - b.to(kFloat32))).item(); }

// Runs of columns in which something stands on white: how many things there are, side by side.
int64_t things(const Tensor& picture) {
  const Tensor darkest = amin(amin(picture.to(kFloat32), {0}), {0}).contiguous();
  int64_t runs = 0;
  bool inside = false;
  for (int64_t x = 0; x < darkest.size(0); ++x) {
    const bool stands = darkest.data<float>()[x] < 200;
    runs += stands && !inside;
    inside = stands;
  }
  return runs;
}

TEST_F(ComposedIconsTest, without_any_of_it_icons_are_as_they_are) {
  auto data = icons(0.5);
  const ComposedIcons composed(data, [] {
    auto o = plain();
    o.background_jitter = 0;
    return o;
  }());
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SampleRandom random(seed);
    const Sample made = composed.get(0, random);
    std::string ground = made.caption.substr(std::min(made.caption.size(), std::string("block, noto").size()));
    auto& colours = background_colours();
    const auto colour = std::find_if(colours.begin(), colours.end(),
                                     [&](auto& c) { return made.caption == icon_prompt("block", "noto", c.name); });
    ASSERT_TRUE(colour != colours.end() || ground.empty()) << made.caption;
    EXPECT_LE(farthest(made.image, data->picture(0, (ground.empty() ? colours[0] : *colour).rgb)), 1e-5);
  }
}

TEST_F(ComposedIconsTest, a_colour_that_is_named_is_the_one_that_is_seen) {
  auto options = plain();
  options.recolour_probability = 1;
  options.variation_probability = 0.5;
  const ComposedIcons composed(icons(0.4), options);
  std::set<std::string> named;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SampleRandom random(seed);
    const Sample made = composed.get(int64_t(seed % 3), random);
    const std::string colour = made.caption.substr(0, made.caption.find(' '));
    ASSERT_TRUE(is_colour_word(colour)) << made.caption;
    if (const size_t ground = made.caption.find(", on a "); ground != std::string::npos) {
      EXPECT_EQ(made.caption.find(colour, ground), std::string::npos) << made.caption;  // it would not be seen
    }
    named.insert(colour);
    const Tensor picture = bytes(made.image).contiguous();
    const auto* p = picture.data<uint8_t>();
    const std::array<uint8_t, 3> corner{p[0], p[kSize * kSize], p[2 * kSize * kSize]};
    EXPECT_EQ(colours_of_picture(picture, corner).most(), colour) << made.caption;
    EXPECT_EQ(made.caption.find("yellow brick") != std::string::npos, colour == "yellow" && seed % 3 == 1);
  }
  EXPECT_GT(named.size(), 9u);
}

TEST_F(ComposedIconsTest, a_colour_that_is_there_is_named_without_a_change) {
  auto options = plain();
  options.name_colour_probability = 1;
  const ComposedIcons composed(icons(), options);
  SampleRandom random(1), again(1);
  const Sample made = composed.get(0, random);
  EXPECT_EQ(made.caption, "red block, noto");
  EXPECT_EQ(farthest(made.image, ComposedIcons(icons(), plain()).get(0, again).image), 0);
}

TEST_F(ComposedIconsTest, pairs_stand_side_by_side_in_the_order_of_their_names) {
  auto options = plain();
  options.pair_probability = 1;
  const ComposedIcons composed(icons(), options);
  std::set<std::string> captions;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SampleRandom random(seed);
    const Sample made = composed.get(0, random);
    captions.insert(made.caption);
    if (made.caption == "block, noto") continue;  // it would have been paired with itself
    const Tensor picture = bytes(made.image).contiguous();
    EXPECT_EQ(things(picture), 2);
    const auto left = colours_of_picture(picture.narrow(2, 0, 16), {255, 255, 255}).most();
    if (!left.empty()) {
      EXPECT_EQ(left == "red", made.caption.starts_with("block and")) << made.caption;
    }
  }
  EXPECT_EQ(captions,
            (std::set<std::string>{"block, noto", "block and yellow brick, noto", "yellow brick and block, noto"}));
}

TEST_F(ComposedIconsTest, without_freedom_a_row_stands_in_the_middles_of_equal_parts) {
  auto options = plain();
  options.row_freedom = options.mirror_probability = 0;
  const ComposedIcons composed(icons(), options);
  std::set<std::vector<uint8_t>> seen;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    SampleRandom random(seed);
    const Tensor row = composed.row({{0}, {0}}, {}, random)->contiguous();
    EXPECT_EQ(farthest(row.narrow(2, 0, kSize / 2), row.narrow(2, kSize / 2, kSize / 2)), 0);
    seen.emplace(row.data<uint8_t>(), row.data<uint8_t>() + row.numel());
    const Tensor seldom = amin(amin(row.to(kFloat32), {0}), {1}).contiguous();  // of each line, the darkest
    const auto* p = seldom.data<float>();
    const auto stands = [](float x) { return x < 200; };
    const auto above = std::find_if(p, p + kSize, stands) - p;
    const auto below = std::find_if(std::reverse_iterator(p + kSize), std::reverse_iterator(p), stands) -
                       std::reverse_iterator(p + kSize);
    EXPECT_NEAR(double(above), double(below), 1);
  }
  EXPECT_EQ(seen.size(), 1u);
}

TEST_F(ComposedIconsTest, as_many_as_are_counted) {
  auto options = plain();
  options.count_probability = 1;
  options.recolour_probability = 0.5;
  const ComposedIcons composed(icons(), options);
  std::set<std::string> numbers;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SampleRandom random(seed);
    const Sample made = composed.get(1, random);
    const std::string number = made.caption.substr(0, made.caption.find(' '));
    numbers.insert(number);
    ASSERT_TRUE(made.caption.ends_with(" bricks, noto")) << made.caption;
    const Tensor picture = bytes(made.image);
    EXPECT_EQ(things(picture), number == "two" ? 2 : 3) << made.caption;
  }
  EXPECT_EQ(numbers, (std::set<std::string>{"two", "three"}));
}

TEST_F(ComposedIconsTest, variations_differ_and_stay_inside) {
  auto options = plain();
  options.variation_probability = 1;
  options.smallest = 0.6;
  const ComposedIcons composed(icons(), options);
  Tensor before;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SampleRandom random(seed), same(seed);
    const Sample made = composed.get(0, random);
    EXPECT_EQ(made.caption, "block, noto");
    EXPECT_EQ(farthest(made.image, composed.get(0, same).image), 0);  // of its random numbers alone
    if (before) {
      EXPECT_GT(farthest(made.image, before), 0.1);
    }
    before = made.image;
    double area = 0;
    for (double share : colours_of_picture(bytes(made.image).contiguous(), {255, 255, 255}).share) area += share;
    EXPECT_GT(area, 0.9);
    for (const Tensor& edge : {made.image.narrow(1, 0, 1), made.image.narrow(1, kSize - 1, 1),
                               made.image.narrow(2, 0, 1), made.image.narrow(2, kSize - 1, 1)})
      EXPECT_GT(mean(edge).item(), 0.5);  // little of it reaches the edge
  }
}

TEST_F(ComposedIconsTest, batches_are_those_of_their_seed_however_many_workers) {
  auto composed = std::make_shared<ComposedIcons>(icons(0.3));
  std::vector<Tensor> first;
  for (int64_t workers : {0, 2}) {
    DataLoader loader(composed, {.batch_size = 3, .shuffle = true, .num_workers = workers});
    manual_seed(7);
    const auto batch = loader.next();
    ASSERT_TRUE(batch);
    if (!first.empty()) {
      EXPECT_EQ(farthest(first[0], batch->image), 0);
    }
    first = {batch->image};
  }
}

TEST_F(ComposedIconsTest, texts_have_the_words_of_compositions) {
  std::string all;
  for (auto& text : ComposedIcons(icons()).texts()) all += text + "\n";
  for (const char* words : {"two blocks and", "three walls and", "white to black", "on a purple background"})
    EXPECT_NE(all.find(words), std::string::npos) << words;
}

TEST_F(ComposedIconsTest, options_that_cannot_be_are_refused) {
  const auto with = [&](auto change) {
    CompositionOptions options;
    change(options);
    return ComposedIcons(icons(0.5), options);
  };
  SF_EXPECT_ERROR(ValueError, "pair_probability must be 0 to 1, got 1.5",
                  with([](auto& o) { o.pair_probability = 1.5; }));
  SF_EXPECT_ERROR(ValueError, "must be 1 at most together", with([](auto& o) { o.count_probability = 0.9; }));
  SF_EXPECT_ERROR(ValueError, "must be 1 at most together", with([](auto& o) { o.gradient_probability = 0.6; }));
  SF_EXPECT_ERROR(ValueError, "smallest must be 0.1 to 1, got 0", with([](auto& o) { o.smallest = 0; }));
  SF_EXPECT_ERROR(ValueError, "row_freedom must be 0 to 1, got 2", with([](auto& o) { o.row_freedom = 2; }));
  SF_EXPECT_ERROR(ValueError, "rotation must be 0 to 180 degrees", with([](auto& o) { o.rotation = -1; }));
  SF_EXPECT_ERROR(ValueError, "background_jitter must be 0 to 255", with([](auto& o) { o.background_jitter = 256; }));
  const ComposedIcons composed(icons());
  SampleRandom random(1);
  SF_EXPECT_ERROR(ValueError, "a row has 1 to 4 icons, got 0", composed.row({}, {}, random));
  SF_EXPECT_ERROR(IndexError, "there are 3 icons", composed.row({{3}}, {}, random));
}

TEST(IconCanvas, turned_by_a_quarter_and_mirrored) {
  Tensor drawing = zeros({4, 8, 8}, kUInt8);
  auto* p = drawing.data<uint8_t>();
  p[1 * 8 + 2] = 255, p[3 * 64 + 1 * 8 + 2] = 255;  // a red pixel in row 1, column 2
  const CutIcon whole = cut_icon(drawing, true), cut = cut_icon(drawing, false);
  EXPECT_EQ(whole.width, 8);
  EXPECT_EQ(cut.width * cut.height, 1);
  const auto red_at = [&](const IconPose& pose) {
    IconCanvas canvas(8, {});
    canvas.put(whole, pose);
    const Tensor picture = canvas.picture().contiguous();
    const auto* q = picture.data<uint8_t>();
    std::pair<int64_t, int64_t> place{-1, -1};
    for (int64_t i = 0; i < 64; ++i)
      if (q[64 + i] < 128) place = {i / 8, i % 8};
    return place;
  };
  EXPECT_EQ(red_at({.x = 4, .y = 4}), (std::pair<int64_t, int64_t>{1, 2}));
  EXPECT_EQ(red_at({.x = 4, .y = 4, .mirrored = true}), (std::pair<int64_t, int64_t>{1, 5}));
  EXPECT_EQ(red_at({.x = 5, .y = 6}), (std::pair<int64_t, int64_t>{3, 3}));
  EXPECT_EQ(red_at({.x = 4, .y = 4, .angle = std::acos(0)}), (std::pair<int64_t, int64_t>{2, 6}));  // clockwise
  IconCanvas canvas(8, {});
  SF_EXPECT_ERROR(ValueError, "scale must be above 0", canvas.put(cut, {.x = 1, .y = 1, .scale = 0}));
  SF_EXPECT_ERROR(ValueError, "IconCanvas: size must be 1 to 4096", IconCanvas(0, {}));
}

}  // namespace
}  // namespace sf::data
