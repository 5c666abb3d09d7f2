#include "scaffolding/train/text_to_video/caption_drawer.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/optim/optim.h"
#include "scaffolding/train/text_to_video/test_clips.h"
#include "scaffolding/train/text_to_video/test_text_encoder.h"

namespace sf::train {

namespace {

CaptionDrawer small_drawer() { return CaptionDrawer(small_text_encoder(32)); }

using DrawnIconsTest = TestClips;

}  // namespace

// Without attention a token draws nothing but its own patch.
TEST(CaptionDrawer, TokensDrawPatchesRowByRow) {
  autograd::NoGrad no_grad;
  manual_seed(1);
  CaptionDrawer model = small_drawer();
  for (auto& p : nn::named_parameters(model))
    if (p.name.find("SelfAttention.o.") != std::string::npos) p.tensor.zero_();
  Tensor ids = full({1, 17}, 5, kInt64);
  const CaptionDrawer::Drawing before = model.draw(ids);
  ids[0][6].fill_(7);
  const CaptionDrawer::Drawing after = model.draw(ids);
  ASSERT_EQ(before.patches.shape(), (Shape{1, 4, 24, 24}));
  EXPECT_EQ(before.whole.shape(), (Shape{1, 4, 24, 24}));
  EXPECT_EQ(before.grounds.shape(), (Shape{1, 6}));
  Tensor changed = abs(after.patches - before.patches);
  EXPECT_GT(amin(changed.narrow(2, 6, 6).narrow(3, 12, 6)).item(), 0);
  changed.narrow(2, 6, 6).narrow(3, 12, 6).zero_();
  EXPECT_EQ(amax(changed).item(), 0);
}

TEST(CaptionDrawer, LearnsWhatCaptionsLookLike) {
  manual_seed(1);
  CaptionDrawer model = small_drawer();
  const Tensor ids = randint(2, 20, {6, 16}), pictures = rand({6, 4, 24, 24}) * 2 - 1, grounds = rand({6, 6}) * 2 - 1;
  optim::AdamW optimizer(nn::parameters(model), {.lr = 3e-3});
  double first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    Tensor loss = model(ids, pictures, grounds);
    loss.backward();
    optimizer.step();
    last = loss.item();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, 0.5 * first);
}

TEST(CaptionDrawer, RefusesTooFewTokens) {
  const CaptionDrawer model = small_drawer();
  SF_EXPECT_ERROR(Error, "16 tokens or more", model.draw(ones({1, 15}, kInt64)));
}

TEST_F(DrawnIconsTest, CaptionsNameTheGroundThatIsDrawn) {
  const DrawnIcons icons(clips(0.5, 0.5));
  ASSERT_EQ(icons.size(), 1);
  const auto& colours = data::background_colours();
  int plain = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    data::SampleRandom random(seed, 0, 0);
    const data::Sample sample = icons.get(0, random);
    const Tensor levels = (sample.target + 1) * 127.5;
    std::string names[2];
    for (int64_t end = 0; end < 2; ++end)
      for (auto& colour : colours) {
        bool same = true;
        for (int64_t c = 0; c < 3; ++c)
          same = same && std::abs(levels[end * 3 + c].item() - colour.rgb[size_t(c)]) < 0.01;
        if (same) names[end] = colour.name;
      }
    const bool one = names[0] == names[1];
    plain += one;
    EXPECT_EQ(sample.caption, "bar, noto, on a " + (one ? names[0] : names[0] + " to " + names[1]) + " background");
  }
  EXPECT_TRUE(plain > 0 && plain < 20);
}

TEST_F(DrawnIconsTest, PicturesAreColoursTimesOpacityAndOpacity) {
  const DrawnIcons icons(clips(0, 0));
  data::SampleRandom random(0, 0, 0);
  const data::Sample sample = icons.get(0, random);
  EXPECT_EQ(sample.caption, "bar, noto");
  ASSERT_EQ(sample.image.shape(), (Shape{4, 24, 24}));
  const auto at = [&](int64_t y, int64_t x) { return sample.image.narrow(1, y, 1).narrow(2, x, 1).to_vector(); };
  EXPECT_EQ(at(2, 2), (std::vector<double>{0, 0, 0, -1}));
  EXPECT_EQ(at(12, 20), (std::vector<double>{-1, -1, 1, 1}));
}

TEST_F(DrawnIconsTest, ADamagedPictureIsNamed) {
  SF_EXPECT_ERROR(Error, "a.png: is no PNG, JPEG or WebP picture", DrawnIcons(clips(0, 0, true)));
}

}  // namespace sf::train
