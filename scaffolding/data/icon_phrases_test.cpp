#include "scaffolding/data/icon_phrases.h"

#include <gtest/gtest.h>

namespace sf::data {
namespace {

Icon icon(const std::string& caption, const std::string& group = "Objects") {
  return {caption, "noto", group, "train", {}, 0};
}

TEST(IconPhrases, plurals) {
  const std::pair<const char*, const char*> known[]{{"cat face", "cat faces"},
                                                    {"glass of milk", "glasses of milk"},
                                                    {"cherry blossom", "cherry blossoms"},
                                                    {"berry", "berries"},
                                                    {"key", "keys"},
                                                    {"knife", "knives"},
                                                    {"octopus", "octopuses"},
                                                    {"mouse", "mice"},
                                                    {"fish", "fish"},
                                                    {"tropical fish", "tropical fish"},
                                                    {"face with tongue", "faces with tongue"},
                                                    {"box", "boxes"},
                                                    {"ring", "rings"}};
  for (auto& [one, several] : known) EXPECT_EQ(plural(one).value_or("none"), several);
  for (const char* none : {"grapes", "person: red hair", "woman and man holding hands", "man running", "keycap 3", ""})
    EXPECT_FALSE(plural(none)) << none;
  EXPECT_EQ(counted(3, "red apple").value(), "three red apples");
  EXPECT_FALSE(counted(1, "apple") || counted(5, "apple") || counted(2, "grapes"));
}

TEST(IconPhrases, a_colour_takes_the_place_of_another) {
  EXPECT_EQ(coloured("blue", "cat").value(), "blue cat");
  EXPECT_EQ(coloured("blue", "red apple").value(), "blue apple");
  EXPECT_EQ(coloured("blue", "grey heart").value(), "blue heart");
  EXPECT_FALSE(coloured("blue", "mahjong red dragon"));
  EXPECT_FALSE(coloured("blue", "red"));
  EXPECT_EQ(coloured("red", "orangutan").value(), "red orangutan");  // words, not letters
  EXPECT_TRUE(has_colour("green salad") && !has_colour("greenhouse"));
}

TEST(IconPhrases, what_a_caption_can_do_without) {
  EXPECT_EQ(without_details(icon("grinning face with big eyes", "Smileys & Emotion")), "grinning face");
  EXPECT_EQ(without_details(icon("cat face", "Animals & Nature")), "cat");
  EXPECT_EQ(without_details(icon("winking face", "Smileys & Emotion")), "winking face");
  EXPECT_EQ(without_details(icon("red apple")), "apple");
  EXPECT_EQ(without_details(icon("rocket")), "rocket");
}

TEST(IconPhrases, what_can_be_done_to_which) {
  EXPECT_TRUE(can_be_paired(icon("cat")) && can_be_coloured(icon("cat")) && can_be_flipped(icon("cat")));
  EXPECT_FALSE(can_be_paired(icon("bread and butter")));
  EXPECT_FALSE(can_be_paired(icon("man cook", "People & Body")) || can_be_coloured(icon("man cook", "People & Body")));
  EXPECT_FALSE(can_be_coloured(icon("sunset")) || can_be_coloured(icon("rainbow")));
  EXPECT_FALSE(can_be_flipped(icon("left speech bubble")) || can_be_flipped(icon("one o'clock")));
  EXPECT_FALSE(can_be_flipped(icon("soccer ball", "Symbols")));
}

}  // namespace
}  // namespace sf::data
