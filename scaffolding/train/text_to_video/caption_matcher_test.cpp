#include "scaffolding/train/text_to_video/caption_matcher.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/train/text_to_video/test_text_encoder.h"

namespace sf::train {

namespace {

CaptionMatcher small_matcher() { return {small_text_encoder(16), 3}; }

}  // namespace

TEST(CaptionMatcher, VectorsAreOfUnitLength) {
  autograd::NoGrad no_grad;
  manual_seed(1);
  const CaptionMatcher model = small_matcher();
  const Tensor ids = tensor(std::vector<int64_t>{5, 6, 1, 0, 7, 1, 0, 0}, {2, 4});
  for (const Tensor& x : {model.texts(ids), model.clips(randn({2, 3, 3, 8, 8}))}) {
    EXPECT_EQ(x.shape(), (Shape{2, 16}));
    for (double length : sum(square(x), Shape{1}).to_vector()) EXPECT_NEAR(length, 1, 1e-4);
  }
}

// A caption that two clips have belongs to both: which of them is which does not count.
TEST(CaptionMatcher, EqualCaptionsBelongToEachOthersClips) {
  autograd::NoGrad no_grad;
  manual_seed(1);
  const CaptionMatcher model = small_matcher();
  const Tensor ids = tensor(std::vector<int64_t>{5, 1, 5, 1, 7, 1}, {3, 2}), latents = randn({3, 2, 3, 8, 8});
  const Tensor swapped = cat({latents[1].unsqueeze(0), latents[0].unsqueeze(0), latents[2].unsqueeze(0)}, 0);
  const Tensor others = cat({latents[2].unsqueeze(0), latents[1].unsqueeze(0), latents[0].unsqueeze(0)}, 0);
  EXPECT_NEAR(model(ids, latents).item(), model(ids, swapped).item(), 1e-6);
  EXPECT_GT(std::abs(model(ids, latents).item() - model(ids, others).item()), 1e-5);
}

}  // namespace sf::train
