#include "scaffolding/models/text_encoders/clip.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/io/checkpoint.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/models/model_files.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

CLIPTextConfig small() {
  CLIPTextConfig c;
  c.vocab_size = 50;
  c.hidden_size = 16;
  c.intermediate_size = 24;
  c.num_hidden_layers = 2;
  c.num_attention_heads = 2;
  c.max_position_embeddings = 8;
  c.eos_token_id = 49;
  c.projection_dim = 12;
  return c;
}

double largest(const Tensor& t) { return amax(abs(t)).item(); }

TEST(CLIP, ShapesOfItsOutputs) {
  autograd::NoGrad off;
  Tensor ids = tensor(std::vector<int64_t>{0, 7, 49, 1, 1, 0, 3, 4, 5, 49}, {2, 5});
  CLIPTextModel model(small());
  Tensors out = model.forward(ids);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].shape(), (Shape{2, 5, 16}));
  EXPECT_EQ(largest(out[1][0] - out[0][0][2]), 0);  // pooled at the first end of text
  EXPECT_EQ(largest(out[1][1] - out[0][1][4]), 0);
  out = model.forward(ids, {}, {}, true);
  ASSERT_EQ(out.size(), 5u);
  EXPECT_EQ(largest(model.text_model.final_layer_norm(out.back()) - out[0]), 0);
  CLIPTextModelWithProjection projecting(small());
  EXPECT_EQ(projecting.forward(ids)[0].shape(), (Shape{2, 12}));
}

TEST(CLIP, WhatComesLaterChangesNothingBefore) {
  autograd::NoGrad off;
  CLIPTextModel model(small());
  Tensor ids = randint(0, 49, {1, 6}), other = ids.clone();
  other.select(1, 5).fill_(48);
  Tensor a = model.forward(ids)[0], b = model.forward(other)[0];
  EXPECT_EQ(largest(a.narrow(1, 0, 5) - b.narrow(1, 0, 5)), 0);
  Tensor mask = ones({1, 6}, kInt64);
  EXPECT_LT(largest(model.forward(ids, mask)[0] - a), 1e-5);
  mask.select(1, 2).fill_(0);
  Tensor masked = model.forward(ids, mask)[0];
  EXPECT_LT(largest((masked - a).narrow(1, 0, 2)), 1e-5);
  EXPECT_GT(largest((masked - a).narrow(1, 3, 3)), 1e-4);
}

class CLIPFiles : public io::TestFolder {};

TEST_F(CLIPFiles, AreLoadedByTheNameOfTheirArchitecture) {
  CLIPTextModelWithProjection model(small());
  save_model(model, path("model"));
  auto loaded = load_model(path("model"));
  EXPECT_STREQ(loaded->type(), "CLIPTextModelWithProjection");
  EXPECT_EQ(dynamic_cast<CLIPTextModelWithProjection&>(*loaded).options.projection_dim, 12);
  auto without = load_model(path("model"), {}, "CLIPTextModel");  // the projection is not used
  EXPECT_EQ(nn::state_dict(*without).size() + 1, nn::state_dict(model).size());
}

TEST_F(CLIPFiles, ConfigsFromWeightsNeedAKnownWidth) {
  std::vector<io::CheckpointEntry> tensors{{"text_model.embeddings.token_embedding.weight", "F32", {50, 1024}},
                                           {"text_model.embeddings.position_embedding.weight", "F32", {77, 1024}},
                                           {"text_model.encoder.layers.0.mlp.fc1.weight", "F32", {4096, 1024}}};
  for (int i = 0; i < 23; ++i)
    tensors.push_back({"text_model.encoder.layers." + std::to_string(i) + ".layer_norm1.weight", "F32", {1024}});
  CLIPTextConfig c = clip_text_config(tensors);
  EXPECT_EQ(c.num_hidden_layers, 23);
  EXPECT_EQ(c.num_attention_heads, 16);
  EXPECT_EQ(c.hidden_act, "gelu");
  tensors[0].shape = {50};
  SF_EXPECT_ERROR(ValueError, "must have 2 dimensions, got [50]", clip_text_config(tensors));
  tensors[0].shape = {50, 600};
  SF_EXPECT_ERROR(ValueError, "512, 768, 1024 or 1280 channels, got 600", clip_text_config(tensors));
}

}  // namespace
}  // namespace sf::models
