#include "scaffolding/models/model.h"

#include "scaffolding/io/checkpoint.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/models/autoencoders/autoencoder_tiny.h"
#include "scaffolding/models/model_files.h"
#include "scaffolding/models/parts/embeddings.h"
#include "scaffolding/nn/quantize.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

AutoencoderTinyConfig small() {
  AutoencoderTinyConfig c;
  c.encoder_block_out_channels = c.decoder_block_out_channels = {8, 8};
  c.num_encoder_blocks = {1, 1};
  c.num_decoder_blocks = {1, 1};
  return c;
}

float largest(const Tensor& t) { return float(amax(abs(t)).item()); }

class ModelFiles : public io::TestFolder {
 protected:
  std::string saved(const SaveModelOptions& options = {}) {
    AutoencoderTiny model(small());
    values_ = model.encode(input_).detach();
    save_model(model, path("model"), options);
    return path("model");
  }
  void expect_same(Model& loaded) {
    EXPECT_EQ(largest(dynamic_cast<AutoencoderTiny&>(loaded).encode(input_).detach() - values_), 0);
  }
  Tensor input_ = randn({1, 3, 16, 16}), values_;
};

TEST_F(ModelFiles, WhatIsSavedIsLoaded) {
  std::string folder = saved();
  auto model = load_model(folder);
  EXPECT_STREQ(model->type(), "AutoencoderTiny");
  EXPECT_FALSE(model->training);
  EXPECT_TRUE(nn::parameters(*model)[0].requires_grad());
  expect_same(*model);
}

TEST_F(ModelFiles, ShardsAndTorchFilesAndVariants) {
  saved({.max_shard_size = 4000});
  EXPECT_TRUE(std::filesystem::exists(path("model/diffusion_pytorch_model.safetensors.index.json")));
  expect_same(*load_model(path("model")));
  std::filesystem::remove_all(path("model"));
  saved({.variant = "fp16", .safe_serialization = false});
  EXPECT_TRUE(std::filesystem::exists(path("model/diffusion_pytorch_model.fp16.bin")));
  expect_same(*load_model(path("model"), {.variant = "fp16"}));
  SF_EXPECT_ERROR(ValueError, "looked for diffusion_pytorch_model.safetensors", load_model(path("model")));
  SF_EXPECT_ERROR(ValueError, "diffusion_pytorch_model.fp16.safetensors",
                  load_model(path("model"), {.variant = "fp16", .use_safetensors = true}));
}

TEST_F(ModelFiles, InAnotherDtype) {
  auto model = load_model(saved(), {.dtype = kFloat16});
  EXPECT_EQ(model->dtype(), kFloat16);
  for (auto& t : nn::parameters(*model)) EXPECT_EQ(t.dtype(), kFloat16);
}

TEST_F(ModelFiles, WeightsBecomeFewBitsWhileTheyAreRead) {
  const std::string folder = saved();
  auto quantised = [](const std::string& format, std::vector<nn::QuantizeRule> rules = {}) {
    return std::make_shared<nn::QuantizeConfig>(nn::QuantizeConfig{format, {.rules = std::move(rules)}});
  };
  auto model = load_model(folder, {.quantize = quantised("q8_0")});
  int64_t layers = 0;
  for (auto& m : nn::named_modules(*model)) layers += nn::is_quantized(*m.module);
  EXPECT_GT(layers, 4);
  const Tensor got = dynamic_cast<AutoencoderTiny&>(*model).encode(input_).detach();
  const float error = largest(got - values_) / largest(values_);
  EXPECT_TRUE(error > 0 && error < 0.05) << error;
  // What quantising after loading makes.
  auto after = load_model(folder);
  nn::quantize_(*after, "q8_0", {.rules = {}});
  EXPECT_EQ(largest(dynamic_cast<AutoencoderTiny&>(*after).encode(input_).detach() - got), 0);
  SF_EXPECT_ERROR(ValueError, "a AutoencoderTiny has no layer that it is for",
                  load_model(folder, {.quantize = quantised("nf4")}));
  SF_EXPECT_ERROR(ValueError, "a rule: format must be one of",
                  load_model(folder, {.quantize = quantised("q8_0", {{"*", "q9"}})}));
}

TEST_F(ModelFiles, ConfigsAreCheckedAndOverridden) {
  std::string folder = saved();
  io::Object overrides = io::Object::container(io::Object::Dict, {"scaling_factor", 2.5});
  EXPECT_EQ(dynamic_cast<AutoencoderTiny&>(*load_model(folder, {.overrides = overrides})).options.scaling_factor, 2.5);
  overrides.items()[1] = "much";
  SF_EXPECT_ERROR(TypeError, "AutoencoderTiny: scaling_factor must be a number, got a string",
                  load_model(folder, {.overrides = overrides}));
  write("model/config.json", R"({"_class_name": "AutoencoderTinny"})");
  SF_EXPECT_ERROR(ValueError, "no model 'AutoencoderTinny' (closest: 'AutoencoderTiny')", load_model(folder));
  write("model/config.json", R"({"in_channels": 3})");
  SF_EXPECT_ERROR(ValueError, "names no class", load_model(folder));
  std::filesystem::remove(path("model/config.json"));
  SF_EXPECT_ERROR(ValueError, "there is no file " + path("model/config.json"), load_model(folder));
}

TEST_F(ModelFiles, AConfigThatWasReadIsNotReadAgain) {
  const std::string folder = saved();
  const io::Object config = load_model_config(folder);
  std::filesystem::remove(path("model/config.json"));
  expect_same(*load_model(folder, {.config = config}));
}

TEST_F(ModelFiles, UnfamiliarFieldsAreKept) {
  std::string folder = saved();
  write(
      "model/config.json",
      R"({"_class_name": "AutoencoderTiny", "encoder_block_out_channels": [8, 8], "decoder_block_out_channels": [8, 8],
        "num_encoder_blocks": [1, 1], "num_decoder_blocks": [1, 1], "colour": "blue"})");
  auto model = load_model(folder);
  ASSERT_TRUE(model->config().find("colour"));
  save_model(*model, path("again"));
  EXPECT_TRUE(load_model_config(path("again")).find("colour"));
}

TEST_F(ModelFiles, KeysThatDoNotFitAreNamed) {
  std::string folder = saved();
  auto state = io::load_checkpoint(folder + "/diffusion_pytorch_model.safetensors");
  state["encoder.layers.0.wait"] = state["encoder.layers.0.weight"];
  state.erase("encoder.layers.0.weight");
  io::save_safetensors(state, folder + "/diffusion_pytorch_model.safetensors");
  std::string what = io::error_of<RuntimeError>([&] { load_model(folder); });
  EXPECT_NE(what.find("Missing key(s) in state_dict: \"encoder.layers.0.weight\""), std::string::npos) << what;
  EXPECT_NE(what.find("Unexpected key(s) in state_dict: \"encoder.layers.0.wait\""), std::string::npos) << what;
}

TEST(Model, CheckpointingGivesTheSameGradients) {
  manual_seed(0);
  AutoencoderTiny model(small());
  Tensor x = randn({1, 3, 16, 16});
  auto gradients = [&] {
    nn::zero_grad(model);
    mean(square(model.decode(model.encode(x)))).backward();
    Tensors out;
    for (auto& p : nn::parameters(model)) out.push_back(p.grad().clone());
    return out;
  };
  Tensors plain = gradients();
  model.enable_gradient_checkpointing();
  EXPECT_TRUE(model.is_gradient_checkpointing());
  Tensors again = gradients();
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(largest(plain[i] - again[i]), 0);
  model.enable_gradient_checkpointing(false);
  EXPECT_FALSE(model.is_gradient_checkpointing());
}

TEST(Model, TimestepEmbeddingChecksItsArguments) {
  SF_EXPECT_ERROR(ValueError, "timestep_embedding: timesteps must have one dimension",
                  timestep_embedding(zeros({2, 2}), 8));
  SF_EXPECT_ERROR(ValueError, "timestep_embedding: embedding_dim must be above 1", timestep_embedding(zeros({2}), 1));
  SF_EXPECT_ERROR(ValueError, "downscale_freq_shift must not be half of embedding_dim, got 1 and 2",
                  timestep_embedding(zeros({2}), 2));
  SF_EXPECT_ERROR(ValueError, "max_period must be positive", timestep_embedding(zeros({2}), 4, {.max_period = 0}));
  EXPECT_EQ(timestep_embedding(zeros({2}), 5).shape(), (Shape{2, 5}));
}

}  // namespace
}  // namespace sf::models
