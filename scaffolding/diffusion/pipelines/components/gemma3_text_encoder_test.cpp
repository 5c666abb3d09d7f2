#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/diffusion/pipelines/stacked_states.h"
#include "scaffolding/models/model_files.h"
#include "scaffolding/models/text_encoders/gemma3.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

std::shared_ptr<models::Gemma3TextModel> small_gemma3() {
  models::Gemma3TextConfig c;
  c.vocab_size = 23, c.hidden_size = 8, c.intermediate_size = 12, c.num_hidden_layers = 3;
  c.num_attention_heads = 2, c.num_key_value_heads = 1, c.head_dim = 4, c.sliding_window = 2;
  c.initializer_range = 0.3;
  auto made = std::make_shared<models::Gemma3TextModel>(c);
  made->eval();
  return made;
}

TEST(Gemma3TextEncoder, StackedStatesAreThoseThatItEncodes) {
  const auto model = small_gemma3();
  const Ref<TextEncoder> encoder = text_encoder(model);
  const Tensor ids = tensor(std::vector<int64_t>{2, 5, 9, 22, 0, 2, 7, 4}, {2, 4}, kInt64),
               mask = tensor(std::vector<int64_t>{1, 1, 1, 1, 0, 1, 1, 1}, {2, 4}, kInt64);
  const autograd::NoGrad no_grad;  // kernels are others where gradients are recorded, and so is what they round
  const auto all = encoder->encode(ids, mask);
  ASSERT_EQ(all.hidden_states.size(), 4u);
  const Tensor want = stack(all.hidden_states, -1).flatten(2), got = stacked_hidden_states(*encoder, ids, mask);
  EXPECT_TRUE((got.shape() == Shape{2, 4, 8 * 4}));
  EXPECT_EQ(got.to_vector(), want.to_vector());
  autograd::EnableGrad on;
  EXPECT_FALSE(stacked_hidden_states(*encoder, ids, mask).requires_grad());
}

TEST(Gemma3TextEncoder, IndexesOfPipelinesNameTheLargerClass) {
  for (const char* larger : {"Gemma3ForConditionalGeneration", "Gemma3Model", "Gemma3ForCausalLM", "Gemma3TextModel"}) {
    ASSERT_TRUE(models::find_model(larger)) << larger;
    EXPECT_EQ(models::find_model(larger)->name, "Gemma3TextModel");
    EXPECT_EQ(models::model_class(larger, io::Object()), "Gemma3TextModel");
  }
  EXPECT_FALSE(models::find_model("Gemma3"));
}

TEST(Gemma3TextEncoder, AHookSeesTheCallThatStackedStatesAreOf) {
  const auto model = small_gemma3();
  const Ref<TextEncoder> encoder = text_encoder(model);
  int calls = 0;
  model->register_forward_hook([&](nn::Module&, const nn::Values&, const Value&) -> Value {
    ++calls;
    return {};
  });
  const Tensor ids = tensor(std::vector<int64_t>{2, 5, 9}, {1, 3}, kInt64);
  stacked_hidden_states(*encoder, ids, {});
  EXPECT_EQ(calls, 1);
}

}  // namespace

}  // namespace sf::diffusion
