#include "scaffolding/models/names/adapter_names.h"

#include <nlohmann/json.hpp>

#include "scaffolding/core/default_device.h"
#include "scaffolding/core/source_dir.h"
#include "scaffolding/io/config.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/io/test_packed.h"
#include "scaffolding/models/model.h"
#include "scaffolding/nn/linear.h"

namespace sf::models {
namespace {

std::unique_ptr<Model> tiny(const char* class_name, const char* config) {
  DefaultDevice nowhere{Device(Device::Meta)};
  return make_model(class_name, io::parse_config(config, "test"));
}

AdapterStems unet_stems(const char* component = "unet") {
  auto unet = tiny(
      "UNet2DConditionModel",
      R"({"block_out_channels": [32, 64], "cross_attention_dim": 16, "layers_per_block": 2, "attention_head_dim": 8,
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"]})");
  return adapter_stems(*unet, "UNet2DConditionModel", component);
}

AdapterStems text_stems(const char* class_name, const char* component) {
  auto text = tiny(class_name,
                   R"({"hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 2, "num_hidden_layers": 2,
    "vocab_size": 20})");
  return adapter_stems(*text, class_name, component);
}

// The one module that a stem is all of.
std::string whole(const AdapterStems& stems, const std::string& stem) {
  const AdaptedWeight* found = stems.find(stem);
  if (!found) return "nothing";
  return found->targets.size() == 1 && found->targets[0].whole() ? found->targets[0].module : "parts";
}

TEST(AdapterNames, OfAUNet) {
  auto stems = unet_stems();
  const std::string to_q = "down_blocks.0.attentions.1.transformer_blocks.0.attn1.to_q",
                    out = "up_blocks.1.attentions.2.transformer_blocks.0.attn2.to_out.0";
  for (const char* stem : {"lora_unet_down_blocks_0_attentions_1_transformer_blocks_0_attn1_to_q",
                           "lora_unet_input_blocks_2_1_transformer_blocks_0_attn1_to_q",
                           "unet.down_blocks.0.attentions.1.transformer_blocks.0.attn1.to_q",
                           "down_blocks.0.attentions.1.transformer_blocks.0.attn1.to_q",
                           "base_model.model.down_blocks.0.attentions.1.transformer_blocks.0.attn1.to_q",
                           "diffusion_model.input_blocks.2.1.transformer_blocks.0.attn1.to_q",
                           "unet.down_blocks.0.attentions.1.transformer_blocks.0.attn1.processor.to_q_lora"})
    EXPECT_EQ(whole(stems, stem), to_q) << stem;
  for (const char* stem : {"lora_unet_up_blocks_1_attentions_2_transformer_blocks_0_attn2_to_out_0",
                           "lora_unet_output_blocks_5_1_transformer_blocks_0_attn2_to_out_0",
                           "up_blocks.1.attentions.2.transformer_blocks.0.attn2.processor.to_out_lora"})
    EXPECT_EQ(whole(stems, stem), out) << stem;
  EXPECT_EQ(whole(stems, "lora_unet_mid_block_resnets_1_conv1"), "mid_block.resnets.1.conv1");
  EXPECT_EQ(whole(stems, "lora_unet_middle_block_2_in_layers_2"), "mid_block.resnets.1.conv1");
  EXPECT_EQ(whole(stems, "lora_unet_input_blocks_3_0_op"), "down_blocks.0.downsamplers.0.conv");
  EXPECT_EQ(whole(stems, "lora_unet_output_blocks_2_1_conv"), "up_blocks.0.upsamplers.0.conv");
  EXPECT_EQ(whole(stems, "lora_unet_time_embed_0"), "time_embedding.linear_1");
  EXPECT_EQ(whole(stems, "lora_unet_down_blocks_0_attentions_1_norm"), "nothing")
      << "a norm's weight has one dimension";
  EXPECT_EQ(whole(stems, "lora_te_down_blocks_0_attentions_1_proj_in"), "nothing");
  EXPECT_EQ(whole(unet_stems("transformer"), "lora_transformer_conv_in"), "conv_in");
}

TEST(AdapterNames, OfTextEncoders) {
  auto first = text_stems("CLIPTextModel", "text_encoder"),
       second = text_stems("CLIPTextModelWithProjection", "text_encoder_2");
  const std::string fc1 = "text_model.encoder.layers.1.mlp.fc1";
  for (const char* stem :
       {"lora_te_text_model_encoder_layers_1_mlp_fc1", "lora_te1_text_model_encoder_layers_1_mlp_fc1",
        "lora_te_encoder_layers_1_mlp_fc1", "text_encoder.text_model.encoder.layers.1.mlp.fc1",
        "text_encoder.encoder.layers.1.mlp.fc1", "base_model.model.text_model.encoder.layers.1.mlp.fc1",
        "lora_te1_transformer_resblocks_1_mlp_c_fc"})
    EXPECT_EQ(whole(first, stem), fc1) << stem;
  const std::string attention = "text_model.encoder.layers.1.self_attn.";
  EXPECT_EQ(whole(first, "text_encoder." + attention + "to_out_lora"), attention + "out_proj");
  EXPECT_EQ(whole(first, "text_encoder.encoder.layers.1.self_attn.to_q_lora"), attention + "q_proj");
  EXPECT_EQ(whole(second, "lora_te2_text_model_encoder_layers_1_mlp_fc1"), fc1);
  EXPECT_EQ(whole(second, "text_encoder_2.text_model.encoder.layers.1.mlp.fc1"), fc1);
  EXPECT_EQ(whole(second, "text_encoder_2.text_projection"), "text_projection");
  EXPECT_EQ(whole(second, "lora_te_text_model_encoder_layers_1_mlp_fc1"), "nothing");
  EXPECT_EQ(whole(first, "lora_te2_text_model_encoder_layers_1_mlp_fc1"), "nothing");
}

// What diffusers makes of kohya's keys in diffusers' and in CompVis' names (tests/golden/make_golden_adapter_names.py).
TEST(AdapterNames, AgreeWithDiffusers) {
  const auto golden = nlohmann::json::parse(test::unpacked(SF_SOURCE_DIR "/tests/golden/adapter_names.json.xz"));
  for (auto& [part, class_name] : {std::pair{"unet", "UNet2DConditionModel"}, {"text_encoder", "CLIPTextModel"}}) {
    auto model = tiny(class_name, golden["configs"][part].dump().c_str());
    auto stems = adapter_stems(*model, class_name, part);
    EXPECT_GE(golden[part].size(), 24u);
    for (auto& [stem, module] : golden[part].items()) EXPECT_EQ(whole(stems, stem), module.get<std::string>()) << stem;
  }
}

TEST(AdapterNames, OfJoinedTensors) {
  auto stems = text_stems("CLIPTextModel", "text_encoder");
  const AdaptedWeight* joined = stems.find("text_encoder.transformer.resblocks.1.attn.in_proj");
  ASSERT_TRUE(joined);
  EXPECT_EQ(joined->shape, (Shape{24, 8}));
  const auto& targets = joined->targets;
  ASSERT_EQ(targets.size(), 3u);
  const char* const names[] = {"q_proj", "k_proj", "v_proj"};
  for (size_t i = 0; i < 3; ++i) {
    AdapterTarget expected{
        std::string("text_model.encoder.layers.1.self_attn.") + names[i], 8, 0, 8, int64_t(8 * i), 24};
    EXPECT_TRUE(targets[i] == expected) << targets[i].module << " at " << targets[i].adapter_row;
    EXPECT_FALSE(targets[i].whole());
  }
}

TEST(AdapterNames, OfUnequalPartsAndHalves) {
  TensorList model({{"attn.to_q.weight", {4, 4}},
                    {"proj_mlp.weight", {9, 4}},
                    {"norm_out.linear.weight", {8, 4}},
                    {"ff.weight", {6, 4}}});
  NameRules rules = NameRules()
                        .join({"attn.to_q", "proj_mlp"}, "linear1")
                        .swap_halves("norm_out.linear", "final.1")
                        .split("ff", {"w1", "w3"});
  AdapterStems stems("transformer");
  stems.add(NameTable(model, rules, "Net as 'other'"));
  using Targets = std::vector<AdapterTarget>;
  EXPECT_TRUE((stems.find("lora_unet_linear1")->targets ==
               Targets{{"attn.to_q", 4, 0, 4, 0, 13}, {"proj_mlp", 9, 0, 9, 4, 13}}));
  EXPECT_TRUE((stems.find("lora_transformer_final_1")->targets ==
               Targets{{"norm_out.linear", 4, 4, 8, 0, 8}, {"norm_out.linear", 4, 0, 8, 4, 8}}));
  EXPECT_TRUE((stems.find("diffusion_model.w3")->targets == Targets{{"ff", 3, 3, 6, 0, 3}}));
  EXPECT_FALSE(stems.find("diffusion_model.w3")->targets[0].whole());
}

struct Clash : nn::Module {
  nn::Linear a_b{2, 2};
  struct Inner : nn::Module {
    nn::Linear b{2, 2};
    SF_MODULE(Inner, b)
  } a;
  SF_MODULE(Clash, a_b, a)
};

TEST(AdapterNames, StemsOfTwoModules) {
  Clash clash;
  SF_EXPECT_ERROR(ValueError, "Clash as 'own': an adapter's 'lora_unet_a_b' would be of 'a_b' and of 'a.b'",
                  adapter_stems(clash, "Clash", "unet"));
}

}  // namespace
}  // namespace sf::models
