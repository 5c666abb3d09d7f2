#include <cmath>

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/models/transformers/dit_model.h"
#include "scaffolding/models/transformers/dit_transformer_2d.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

TEST(DiT, EveryParameterHasAGradient) {
  DiTConfig c;
  c.in_channels = 3;
  c.hidden_size = 24;
  c.depth = 2;
  c.num_heads = 2;
  c.context_dim = 5;
  for (bool checkpointing : {false, true}) {
    DiTModel model(c);
    model.enable_gradient_checkpointing(checkpointing);
    Tensor y = model.forward(randn({2, 3, 2, 4, 6}), scalar_tensor(7), randn({2, 3, 5}), ones({2, 3}));
    EXPECT_EQ(y.shape(), (Shape{2, 3, 2, 4, 6}));
    mean(square(y)).backward();
    for (auto& p : nn::named_parameters(model)) EXPECT_TRUE(p.tensor.grad()) << p.name;
  }
}

TEST(DiT, LabelsAndTextsAndSizes) {
  autograd::NoGrad off;
  DiTTransformer2DConfig c;
  c.num_attention_heads = 2;
  c.attention_head_dim = 6;
  c.num_layers = 1;
  c.sample_size = 8;
  c.num_embeds_ada_norm = 3;
  DiTTransformer2DModel labelled(c);
  Tensor labels = tensor(std::vector<int64_t>{0, 3}, {2});
  EXPECT_EQ(labelled.forward(randn({2, 4, 8, 8}), tensor({1.0, 2.0}), labels).shape(), (Shape{2, 4, 8, 8}));
  Tensor channels_last = randn({2, 4, 6, 10}).contiguous(MemoryFormat::ChannelsLast);
  EXPECT_EQ(labelled.forward(channels_last, scalar_tensor(0.5), labels).shape(), (Shape{2, 4, 6, 10}));
}

TEST(DiT, PositionsAreSinesAndCosines) {
  Tensor p = sincos_positions({0, 2}, 4);
  ASSERT_EQ(p.shape(), (Shape{2, 4}));
  auto v = p.to_vector();
  EXPECT_EQ(v[0], 0);
  EXPECT_EQ(v[2], 1);
  EXPECT_NEAR(v[4], std::sin(2.0), 1e-7);
  EXPECT_NEAR(v[5], std::sin(0.02), 1e-7);
  EXPECT_NEAR(v[7], std::cos(0.02), 1e-7);
}

}  // namespace
}  // namespace sf::models
