#include "scaffolding/train/text_to_video/recipe.h"

#include <gtest/gtest.h>

#include "scaffolding/core/source_dir.h"

namespace sf::train {

TEST(VideoRecipe, TheOneOfTheModelThatShipsIsRead) {
  const std::string path = std::string(SF_SOURCE_DIR) + "/models/emoji-video/train.json";
  ASSERT_TRUE(VideoRecipe::recognises(path));
  const VideoRecipe recipe = VideoRecipe::read(path);
  EXPECT_TRUE(recipe.steered());
  EXPECT_TRUE(recipe.data.has_icons);
  EXPECT_EQ(recipe.data.num_frames, 17);
  EXPECT_EQ(recipe.data.height, 64);
  EXPECT_FALSE(recipe.denoiser.sample_trajectories.empty());
}

}  // namespace sf::train
