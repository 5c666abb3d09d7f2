#include "scaffolding/train/text_to_video/clips.h"

#include <gtest/gtest.h>

#include "scaffolding/ops/ops.h"
#include "scaffolding/train/text_to_video/test_clips.h"

namespace sf::train {

using AutoencoderClipsTest = TestClips;

TEST_F(AutoencoderClipsTest, PartsShowWhatMovesFromAnywhereInTheClip) {
  ClipAutoencoderRecipe recipe;
  recipe.num_frames = 3;
  recipe.crop = 32;
  const AutoencoderClips parts(clips(0, 0), recipe, false);
  int64_t moved = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    data::SampleRandom random(seed, 0, 0);
    const Tensor part = parts.get(0, random).image;
    ASSERT_EQ(part.shape(), (Shape{3, 3, 32, 32}));
    EXPECT_GT(sum(lt(part.select(0, 0), wrapped(0)).to(kFloat32)).item(), 30) << seed;  // pixels of blue in it
    moved += amax(abs(part.select(1, 2) - part.select(1, 0))).item() > 0;
  }
  EXPECT_GT(moved, 6);
}

TEST_F(AutoencoderClipsTest, FlowIsAsLargeAsFrames) {
  ClipAutoencoderRecipe recipe;
  recipe.num_frames = 5;
  recipe.flow_share = 1;
  const AutoencoderClips parts(clips(0, 0), recipe, true);
  data::SampleRandom random(3, 0, 0);
  const Tensor flow = parts.get(0, random).image;
  EXPECT_EQ(flow.shape(), (Shape{3, 5, 64, 64}));
  EXPECT_LT(amin(flow).item(), 0.9);  // colours, where it moves
}

}  // namespace sf::train
