#include "scaffolding/data/recolour.h"

#include <cmath>

#include "scaffolding/data/colour_names.h"
#include "scaffolding/data/icon_dataset.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/ops.h"

namespace sf::data {
namespace {

using Rgb = std::array<uint8_t, 3>;

constexpr int64_t kSide = 32;

// A disc of a colour, darker below, with two white eyes.
Tensor face(const Rgb& colour) {
  Tensor t = zeros({4, kSide, kSide}, kUInt8);
  auto* p = t.data<uint8_t>();
  for (int64_t y = 0; y < kSide; ++y)
    for (int64_t x = 0; x < kSide; ++x) {
      const double u = double(x) - 15.5, v = double(y) - 15.5;
      if (std::hypot(u, v) > 14) continue;
      const bool eye = std::hypot(std::abs(u) - 5, v + 4) < 2.5;
      const double shade = v > 4 ? 0.85 : 1;
      for (size_t c = 0; c < 3; ++c)
        p[(int64_t(c) * kSide + y) * kSide + x] = eye ? 255 : uint8_t(double(colour[c]) * shade);
      p[(3 * kSide + y) * kSide + x] = 255;
    }
  return t;
}

Rgb at(const Tensor& drawing, int64_t y, int64_t x) {
  const Tensor planes = drawing.contiguous();
  const auto* p = planes.data<uint8_t>() + y * kSide + x;
  return {p[0], p[kSide * kSide], p[2 * kSide * kSide]};
}

double farthest(const Tensor& a, const Tensor& b) { return amax(abs(a.to(kFloat32) - b.to(kFloat32))).item(); }

std::string name_of(const Rgb& rgb) {
  const int name = named_colour(oklch_of(rgb));
  return name == kNoColour ? "" : colour_names()[size_t(name)];
}

TEST(ColourNames, backgrounds_are_called_what_prompts_call_them) {
  for (auto& colour : background_colours()) EXPECT_EQ(name_of(colour.rgb), colour.name);
}

TEST(ColourNames, what_emoji_are_called) {
  EXPECT_EQ(name_of({0xf4, 0x43, 0x36}), "red");     // Noto's heart
  EXPECT_EQ(name_of({0xff, 0x82, 0x2d}), "orange");  // Fluent's
  EXPECT_EQ(name_of({0xff, 0xca, 0x28}), "yellow");  // faces
  EXPECT_EQ(name_of({0x42, 0x42, 0x42}), "black");   // which no icon is wholly
  EXPECT_EQ(name_of({0xf0, 0xc8, 0xa0}), "");        // skin has no name
}

TEST(ColourNames, bytes_come_back) {
  for (int r = 0; r < 256; r += 51)
    for (int g = 0; g < 256; g += 51)
      for (int b = 0; b < 256; b += 51) {
        const Rgb rgb{uint8_t(r), uint8_t(g), uint8_t(b)}, again = rgb_of(oklch_of(rgb));
        for (size_t c = 0; c < 3; ++c) EXPECT_NEAR(again[c], rgb[c], 1) << r << " " << g << " " << b;
      }
  const Rgb clipped = rgb_of({0.6f, 0.4f, 145});  // no screen shows such a green: it is as green as can be
  EXPECT_EQ(name_of(clipped), "green");
}

TEST(ColourNames, shares_say_what_most_of_a_drawing_has) {
  const auto shares = colours_of_drawing(face({200, 30, 40}));
  EXPECT_EQ(shares.most(), "red");
  EXPECT_EQ(shares.clearly(), "red");
  EXPECT_GT(shares.share[size_t(named_colour("white"))], 0.03);
  Tensor halves = face({200, 30, 40});
  const Tensor other = face({40, 150, 60});
  halves.narrow(2, 0, 16).copy_(other.narrow(2, 0, 16));
  EXPECT_EQ(colours_of_drawing(halves).clearly(), "");
  EXPECT_EQ(colours_of_drawing(zeros({4, 8, 8}, kUInt8)).most(), "");
  EXPECT_TRUE(is_colour_word("grey") && is_colour_word("pink") && !is_colour_word("pinkish"));
}

TEST(ColourNames, of_a_picture_counts_what_stands_out_of_its_ground) {
  Tensor picture = full({3, 32, 32}, 255, kUInt8);
  picture.narrow(1, 8, 6).narrow(2, 8, 6).copy_(zeros({3, 6, 6}, kUInt8));
  EXPECT_EQ(colours_of_picture(picture, {255, 255, 255}).most(), "black");
  EXPECT_NEAR(colours_of_picture(picture, {255, 255, 255}).share[size_t(named_colour("black"))], 1, 1e-9);
  EXPECT_EQ(colours_of_picture(picture, {0, 0, 0}).most(), "white");
}

TEST(Recolour, what_most_of_a_drawing_has_is_turned_and_the_rest_stays) {
  for (const Rgb& from : {Rgb{220, 40, 40}, Rgb{250, 200, 40}, Rgb{40, 90, 200}, Rgb{130, 130, 130}, Rgb{45, 45, 45}}) {
    const Tensor drawing = face(from);
    for (auto& name : colour_names()) {
      const auto turned = recoloured(drawing, name);
      ASSERT_TRUE(turned) << name << " of " << name_of(from);
      EXPECT_EQ(name_of(at(*turned, 15, 15)), name);
      EXPECT_EQ(colours_of_drawing(*turned).clearly(), name);
      EXPECT_LE(oklch_of(at(*turned, 25, 15)).lightness, oklch_of(at(*turned, 15, 15)).lightness);  // its shade
      EXPECT_EQ(farthest(turned->narrow(0, 3, 1), drawing.narrow(0, 3, 1)), 0);
      EXPECT_EQ(at(*turned, 11, 10), (Rgb{255, 255, 255})) << name << " of " << name_of(from);  // its eye
    }
  }
}

TEST(Recolour, no_drawing_becomes_what_it_would_not_be_called) {
  // Stripes of four colours: no one of them makes it.
  Tensor stripes = full({4, kSide, kSide}, 255, kUInt8);
  const Rgb colours[]{{220, 40, 40}, {40, 160, 60}, {40, 90, 210}, {250, 215, 50}};
  auto* p = stripes.data<uint8_t>();
  for (int64_t y = 0; y < kSide; ++y)
    for (int64_t x = 0; x < kSide; ++x)
      for (size_t c = 0; c < 3; ++c) p[(int64_t(c) * kSide + y) * kSide + x] = colours[x / 8][c];
  for (const char* name : {"purple", "black", "white", "pink"}) EXPECT_FALSE(recoloured(stripes, name)) << name;
  EXPECT_FALSE(recoloured(zeros({4, 8, 8}, kUInt8), "red"));
  SF_EXPECT_ERROR(ValueError, "there is no colour 'mauve'", recoloured(stripes, "mauve"));
  SF_EXPECT_ERROR(ValueError, "must be uint8 [4, H, W]", recoloured(zeros({3, 8, 8}, kUInt8), "red"));
}

TEST(Recolour, hues_turn_and_grays_stay) {
  const Tensor drawing = face({220, 40, 40}), turned = hue_turned(drawing, 120);
  EXPECT_EQ(name_of(at(turned, 15, 15)), "green");
  EXPECT_EQ(at(turned, 11, 10), (Rgb{255, 255, 255}));
  EXPECT_LE(farthest(hue_turned(drawing, 0), drawing), 1);
}

}  // namespace
}  // namespace sf::data
