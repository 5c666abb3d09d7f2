#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/models/transformers/tora_transformer_3d.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

ToraTransformer3DConfig tiny() {
  ToraTransformer3DConfig c;
  c.num_attention_heads = 2, c.attention_head_dim = 16, c.in_channels = 4, c.out_channels = 4;
  c.time_embed_dim = 8, c.text_embed_dim = 10, c.num_layers = 2;
  c.flow_in_channels = 3, c.flow_channels = 8;
  return c;
}

TEST(Tora, ATrainedFuserSteersAndANewOneDoesNot) {
  manual_seed(5);
  autograd::NoGrad off;
  ToraTransformer3DModel model(tiny());
  model.eval();
  const Tensor x = randn({2, 3, 4, 4, 6}), text = randn({2, 5, 10}), t = full({}, 17), flow = randn({1, 3, 3, 4, 6});
  const std::vector<double> plain = model(x, text, t).to_vector();
  EXPECT_EQ(model(x, text, t, flow).to_vector(), plain);
  ASSERT_EQ(model.fuser.size(), 2u);
  model.fuser[1].flow_beta_temporal.bias.fill_(0.5);  // the one that the block calls
  EXPECT_EQ(model(x, text, t).to_vector(), plain);
  EXPECT_NE(model(x, text, t, flow).to_vector(), plain);
  SF_EXPECT_ERROR(ValueError, "video_flow must be [2, 3, 3, 4, 6] or one sample of that, got [2, 2, 3, 4, 6]",
                  model(x, text, t, randn({2, 2, 3, 4, 6})));
}

TEST(Tora, WhatIsTrained) {
  ToraTransformer3DModel model(tiny());
  auto trained = [&] {
    std::vector<std::string> first_parts;
    for (auto& p : nn::named_parameters(model))
      if (const std::string part = p.name.substr(0, p.name.find('.'));
          p.tensor.requires_grad() && (first_parts.empty() || first_parts.back() != part))
        first_parts.push_back(part);
    return first_parts;
  };
  model.set_trainable("tora");
  EXPECT_EQ(trained(), (std::vector<std::string>{"traj_extractor", "fuser"}));
  model.set_trainable("none");
  EXPECT_TRUE(trained().empty());
  model.set_trainable("all");
  EXPECT_EQ(trained().size(), 8u);
  SF_EXPECT_ERROR(ValueError, "set_trainable takes 'tora', 'all' or 'none', got 'fuser'", model.set_trainable("fuser"));
}

}  // namespace
}  // namespace sf::models
