#include "scaffolding/train/text_to_image/text_encoder_stage.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/ops/ops.h"

namespace sf::train {

static models::CLIPTextConfig small_text() {
  models::CLIPTextConfig c;
  c.vocab_size = 40;
  c.hidden_size = 16;
  c.intermediate_size = 32;
  c.num_hidden_layers = 2;
  c.num_attention_heads = 2;
  c.max_position_embeddings = 20;
  c.bos_token_id = 38;
  c.eos_token_id = 39;
  return c;
}

// Attention is causal: another last token changes the patch of the last place and nothing else.
TEST(TextToLatents, EachOfTheLastTokensSaysOnePatch) {
  autograd::NoGrad no_grad;
  manual_seed(3);
  TextToLatents model(small_text(), 2, 8);
  std::vector<int64_t> ids(20, 39);
  ids[0] = 38, ids[1] = 5, ids[2] = 6;
  auto before = model(tensor(ids, {1, 20}));
  ids.back() = 7;
  auto after = model(tensor(ids, {1, 20}));
  EXPECT_EQ(before[0].shape(), (Shape{1, 2, 8, 8}));
  EXPECT_EQ(before[1].shape(), (Shape{1, 2, 8, 8}));
  EXPECT_EQ(amax(abs(after[0] - before[0])).item(), 0);  // the first end token sums up what stands before it
  Tensor changed = abs(after[1] - before[1]);
  EXPECT_GT(amin(changed.narrow(2, 6, 2).narrow(3, 6, 2)).item(), 0);
  EXPECT_EQ(amax(changed.narrow(2, 0, 6)).item(), 0);
  EXPECT_EQ(amax(changed.narrow(3, 0, 6)).item(), 0);
}

TEST(TextToLatents, RefusesPromptsShorterThanItsPatchesAndSidesThatDoNotDivide) {
  auto text = small_text();
  EXPECT_THROW(TextToLatents(text, 2, 6), Error);
  text.max_position_embeddings = 15;
  EXPECT_THROW(TextToLatents(text, 2, 8), Error);
}

}  // namespace sf::train
