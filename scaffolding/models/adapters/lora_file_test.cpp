#include "scaffolding/models/adapters/lora_file.h"

#include <cmath>
#include <filesystem>
#include <limits>

#include "scaffolding/io/config.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/formats/torch_file.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {
namespace {

AdapterStems stems_of(const char* class_name, const char* config, const char* component) {
  return adapter_stems(class_name, io::parse_config(config, "test"), component);
}

constexpr const char* kUNet =
    R"({"block_out_channels": [32, 64], "cross_attention_dim": 16, "layers_per_block": 1, "attention_head_dim": 8,
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"]})";
constexpr const char* kText =
    R"({"hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 2, "num_hidden_layers": 2,
    "vocab_size": 20})";

struct Stems {
  AdapterStems unet = stems_of("UNet2DConditionModel", kUNet, "unet");
  AdapterStems text = stems_of("CLIPTextModel", kText, "text_encoder");
  AdapterStems text_2 = stems_of("CLIPTextModelWithProjection", kText, "text_encoder_2");
  std::vector<const AdapterStems*> sd{&text, &unet}, xl{&text, &text_2, &unet};
};
const Stems& all() {
  static const Stems stems;
  return stems;
}

const std::string kToQ = "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q";  // [32, 32]
const std::string kFc1 = "text_model.encoder.layers.1.mlp.fc1";                         // [12, 8]
const std::string kConv = "mid_block.resnets.0.conv1";                                  // [64, 64, 3, 3]

Tensor filled(const Shape& shape, double value = 0.5, DType dtype = kFloat16) { return full(shape, value, dtype); }

class LoraFiles : public io::TestFolder {
 protected:
  using Tensors = std::map<std::string, Tensor>;
  std::string save(const Tensors& tensors, const io::Metadata& metadata = {}, const char* name = "lora.safetensors") {
    io::save_safetensors(tensors, path(name), metadata);
    return path(name);
  }
  // to_q of rank 2 and alpha 1 in the names of kohya.
  static Tensors kohya() {
    const std::string stem = "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q";
    return {{stem + ".lora_down.weight", filled({2, 32})},
            {stem + ".lora_up.weight", filled({32, 2})},
            {stem + ".alpha", filled({}, 1)}};
  }
  LoraMatch match(const Tensors& tensors, bool strict = true, const io::Metadata& metadata = {}) {
    return LoraFile(save(tensors, metadata)).match(all().sd, strict);
  }
  template <class E = ValueError> void refused(const Tensors& tensors, const char* why, bool strict = true) {
    const std::string what = io::error_of<E>([&] { match(tensors, strict); });
    EXPECT_NE(what.find(why), std::string::npos) << what;
    EXPECT_EQ(what.find(path("lora.safetensors") + ": "), 0u) << what;
  }
};

// The stem's only layer in a component, or an empty one.
LoraLayer only(const LoraMatch& lora, const char* component) {
  auto found = lora.layers.find(component);
  return found != lora.layers.end() && found->second.size() == 1 ? found->second[0] : LoraLayer();
}

TEST_F(LoraFiles, OfEveryKind) {
  const std::string flat_q = "down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q", unet = "unet." + kToQ,
                    old = "unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.processor.to_q_lora",
                    attention = "text_model.encoder.layers.1.self_attn.";
  struct Kind {
    const char* format;
    std::string stem, down, up;
  };
  const Kind of_unet[] = {
      {"kohya", "lora_unet_" + flat_q, ".lora_down.weight", ".lora_up.weight"},
      {"kohya", "lora_unet_input_blocks_1_1_transformer_blocks_0_attn1_to_q", ".lora_down.weight", ".lora_up.weight"},
      {"diffusers", unet, ".lora_A.weight", ".lora_B.weight"},
      {"diffusers", unet, ".lora_A.default_0.weight", ".lora_B.default_0.weight"},
      {"diffusers", kToQ, ".lora_A.weight", ".lora_B.weight"},
      {"diffusers_old", unet, ".lora.down.weight", ".lora.up.weight"},
      {"diffusers_old", old, ".down.weight", ".up.weight"},
      {"peft", "base_model.model." + kToQ, ".lora_A.weight", ".lora_B.weight"},
      {"comfyui", "diffusion_model.input_blocks.1.1.transformer_blocks.0.attn1.to_q", ".lora_A.weight",
       ".lora_B.weight"}};
  for (auto& kind : of_unet) {
    SCOPED_TRACE(kind.stem + kind.down);
    LoraFile file(save({{kind.stem + kind.down, filled({2, 32})}, {kind.stem + kind.up, filled({32, 2})}}));
    EXPECT_STREQ(file.format(), kind.format);
    const LoraLayer layer = only(file.match(all().sd), "unet");
    EXPECT_EQ(layer.module, kToQ);
    EXPECT_EQ(layer.down.shape(), (Shape{2, 32}));
    EXPECT_EQ(layer.up.shape(), (Shape{32, 2}));
    EXPECT_EQ(layer.down.dtype(), kFloat16);
  }
  const Kind of_text[] = {
      {"kohya", "lora_te_text_model_encoder_layers_1_self_attn_out_proj", ".lora_down.weight", ".lora_up.weight"},
      {"kohya", "lora_te1_text_model_encoder_layers_1_self_attn_out_proj", ".lora_down.weight", ".lora_up.weight"},
      {"diffusers", "text_encoder." + attention + "out_proj", ".lora_A.weight", ".lora_B.weight"},
      {"diffusers", "text_encoder.encoder.layers.1.self_attn.out_proj", ".lora_A.weight", ".lora_B.weight"},
      {"diffusers_old", "text_encoder." + attention + "out_proj", ".lora_linear_layer.down.weight",
       ".lora_linear_layer.up.weight"},
      {"diffusers_old", "text_encoder." + attention + "to_out_lora", ".down.weight", ".up.weight"}};
  for (auto& kind : of_text) {
    SCOPED_TRACE(kind.stem + kind.down);
    LoraFile file(save({{kind.stem + kind.down, filled({2, 8})}, {kind.stem + kind.up, filled({8, 2})}}));
    EXPECT_STREQ(file.format(), kind.format);
    EXPECT_EQ(only(file.match(all().xl), "text_encoder").module, attention + "out_proj");
  }
}

TEST_F(LoraFiles, AlphaAndRank) {
  LoraLayer layer = only(match(kohya()), "unet");
  EXPECT_EQ(layer.rank, 2);
  EXPECT_EQ(layer.alpha, 1);
  EXPECT_EQ(layer.scale, 0.5);
  EXPECT_EQ(layer.row, 0);
  EXPECT_EQ(layer.rows, 32);
  Tensors without = kohya();
  without.erase("lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q.alpha");
  layer = only(match(without, true, {{"ss_network_alpha", "7"}, {"ss_network_dim", "2"}}), "unet");
  EXPECT_EQ(layer.alpha, 2) << "kohya's scripts take the rank, and not their metadata";
  EXPECT_EQ(layer.scale, 1);
}

TEST_F(LoraFiles, Convolutions) {
  const std::string conv = "lora_unet_mid_block_resnets_0_conv1",
                    pixel = "lora_unet_up_blocks_1_resnets_0_conv_shortcut",
                    linear = "lora_unet_time_embedding_linear_1";
  const LoraMatch lora = match({{conv + ".lora_down.weight", filled({2, 64, 3, 3})},
                                {conv + ".lora_up.weight", filled({64, 2, 1, 1})},
                                {pixel + ".lora_down.weight", filled({3, 96})},  // as a linear layer
                                {pixel + ".lora_up.weight", filled({32, 3})},
                                {linear + ".lora_down.weight", filled({1, 32, 1, 1})},  // as a convolution
                                {linear + ".lora_up.weight", filled({128, 1, 1, 1})}});
  std::map<std::string, LoraLayer> layers;
  for (auto& l : lora.layers.at("unet")) layers[l.module] = l;
  ASSERT_EQ(layers.size(), 3u);
  EXPECT_EQ(layers[kConv].down.shape(), (Shape{2, 64, 3, 3}));
  EXPECT_EQ(layers[kConv].up.shape(), (Shape{64, 2, 1, 1}));
  EXPECT_FALSE(layers[kConv].mid.defined());
  EXPECT_EQ(layers["up_blocks.1.resnets.0.conv_shortcut"].down.shape(), (Shape{3, 96, 1, 1}));
  EXPECT_EQ(layers["time_embedding.linear_1"].down.shape(), (Shape{1, 32}));
  EXPECT_EQ(layers["time_embedding.linear_1"].up.shape(), (Shape{128, 1}));
}

TEST_F(LoraFiles, WithLoraMid) {
  const std::string conv = "lora_unet_mid_block_resnets_0_conv1";
  Tensors tensors{{conv + ".lora_down.weight", filled({4, 64, 1, 1})},
                  {conv + ".lora_mid.weight", filled({4, 4, 3, 3})},
                  {conv + ".lora_up.weight", filled({64, 4, 1, 1})}};
  const LoraLayer layer = only(match(tensors), "unet");
  EXPECT_EQ(layer.down.shape(), (Shape{4, 64, 1, 1}));
  EXPECT_EQ(layer.mid.shape(), (Shape{4, 4, 3, 3}));
  tensors[conv + ".lora_mid.weight"] = filled({4, 3, 3, 3});
  refused(tensors, "is [4, 3, 3, 3] and should be [4, 4, 3, 3] for 'mid_block.resnets.0.conv1' of [64, 64, 3, 3]");
  tensors.erase(conv + ".lora_mid.weight");
  refused(tensors, "is [4, 64, 1, 1] and should be [rank, 64, 3, 3]");
}

// open_clip's in_proj is our q, k and v: three layers that share their first half.
TEST_F(LoraFiles, JoinedRows) {
  const std::string stem = "text_encoder.transformer.resblocks.1.attn.in_proj";
  Tensors tensors{{stem + ".lora_A.weight", filled({2, 8})},
                  {stem + ".lora_B.weight", reshape(arange(0, 48, 1, kFloat32), {24, 2})}};
  const LoraMatch lora = match(tensors);
  const auto& layers = lora.layers.at("text_encoder");
  ASSERT_EQ(layers.size(), 3u);
  const char* const names[] = {"q_proj", "k_proj", "v_proj"};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(layers[i].module, std::string("text_model.encoder.layers.1.self_attn.") + names[i]);
    EXPECT_EQ(layers[i].up.shape(), (Shape{8, 2}));
    EXPECT_EQ(layers[i].up.to_vector()[0], 16. * double(i));
    EXPECT_EQ(layers[i].row, 0);
    EXPECT_EQ(layers[i].rows, 8);
  }
  EXPECT_EQ(lora.report.count(LoraKey::Applied), 2u);
  const std::string q = "text_encoder.text_model.encoder.layers.1.self_attn.q_proj";
  tensors[q + ".lora_A.weight"] = filled({2, 8});
  tensors[q + ".lora_B.weight"] = filled({8, 2});
  refused(tensors, "are both for 'text_model.encoder.layers.1.self_attn.q_proj'");
}

TEST_F(LoraFiles, PeftFolder) {
  const std::string q = "base_model.model." + kToQ, conv = "base_model.model." + kConv;
  save({{q + ".lora_A.weight", filled({4, 32})},
        {q + ".lora_B.weight", filled({32, 4})},
        {conv + ".lora_A.weight", filled({2, 64, 3, 3})},
        {conv + ".lora_B.weight", filled({64, 2, 1, 1})}},
       {}, "adapter_model.safetensors");
  auto scales = [&](const std::string& config, const char* file = "") {
    write("adapter_config.json", config);
    std::map<std::string, double> out;
    const LoraMatch lora = LoraFile(path(file)).match(all().sd);
    for (auto& l : lora.layers.at("unet")) out[l.module] = l.scale;
    return out;
  };
  auto both = scales(R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "rank_pattern": {"conv1": 2},
                         "alpha_pattern": {"mid_block.resnets.0.conv1": 3}})");
  EXPECT_EQ(both[kToQ], 2);
  EXPECT_EQ(both[kConv], 1.5);
  both = scales(R"({"r": 4, "lora_alpha": 8, "rank_pattern": {"resnets\\.[01]\\..*": 2}, "use_rslora": true})",
                "adapter_model.safetensors");
  EXPECT_EQ(both[kToQ], 4);
  EXPECT_EQ(both[kConv], 8 / std::sqrt(2.));
  both = scales(R"({"alpha_pattern": {".*conv1": 6, "conv1": 4}})");
  EXPECT_EQ(both[kToQ], 1) << "without lora_alpha it is the rank";
  EXPECT_EQ(both[kConv], 3) << "the first pattern counts";
  SF_EXPECT_ERROR(ValueError, "adapter_config.json: says rank 4 of 'mid_block.resnets.0.conv1', whose tensors have 2",
                  scales(R"({"r": 4})"));
  SF_EXPECT_ERROR(NotSupported, "is of a LOHA adapter", scales(R"({"peft_type": "LOHA"})"));
  SF_EXPECT_ERROR(NotSupported, "DoRA is not supported", scales(R"({"use_dora": true})"));
  SF_EXPECT_ERROR(NotSupported, "'pissa_niter_4' changes the model's own",
                  scales(R"({"init_lora_weights": "pissa_niter_4"})"));
  SF_EXPECT_ERROR(TypeError, "r must be an integer, got a string", scales(R"({"r": "4"})"));
  SF_EXPECT_ERROR(TypeError, "rank_pattern of 'a' must be a number, got None",
                  scales(R"({"rank_pattern": {"a": null}})"));
  SF_EXPECT_ERROR(ValueError, "rank_pattern: regex", scales(R"({"rank_pattern": {"(": 1}})"));
  SF_EXPECT_ERROR(ValueError, "'lora_alpha of " + kToQ + "' is 0", scales(R"({"lora_alpha": 0})"));
  SF_EXPECT_ERROR(ValueError, "is no JSON", scales("{"));
}

TEST_F(LoraFiles, FolderWithAPartForEachComponent) {
  const std::string q = "base_model.model." + kToQ, fc1 = "base_model.model." + kFc1;
  auto part = [&](const char* component, const Tensors& tensors, const std::string& config) {
    const std::string folder = std::string("lora/") + component;
    std::filesystem::create_directories(path(folder));
    save(tensors, {}, (folder + "/adapter_model.safetensors").c_str());
    write(folder + "/adapter_config.json", config);
  };
  const Tensors text = {{fc1 + ".lora_A.weight", filled({2, 8})}, {fc1 + ".lora_B.weight", filled({12, 2})}};
  part("unet", {{q + ".lora_A.weight", filled({4, 32})}, {q + ".lora_B.weight", filled({32, 4})}},
       R"({"r": 4, "lora_alpha": 8})");
  part("text_encoder", text, R"({"r": 2, "lora_alpha": 3, "use_rslora": true})");
  const LoraMatch lora = LoraFile(path("lora")).match(all().sd);
  EXPECT_EQ(only(lora, "unet").scale, 2);
  EXPECT_EQ(only(lora, "text_encoder").scale, 3 / std::sqrt(2.));
  EXPECT_EQ(lora.report.count(LoraKey::Applied), 4u);
  part("text_encoder_2", text, "{}");
  EXPECT_EQ(LoraFile(path("lora")).match(all().xl).layers.size(), 3u);
  SF_EXPECT_ERROR(ValueError, "'text_encoder_2." + kFc1 + ".lora_A.weight' is of a layer that is not there",
                  LoraFile(path("lora")).match(all().sd));
  write("lora/unet/adapter_config.json", R"({"r": 5})");
  SF_EXPECT_ERROR(ValueError, "says rank 5", LoraFile(path("lora")).match(all().xl));
  write("lora/unet/adapter_config.json", "{");
  SF_EXPECT_ERROR(ValueError, "unet/adapter_config.json", LoraFile(path("lora")));
}

TEST_F(LoraFiles, FolderWithoutAUsualName) {
  SF_EXPECT_ERROR(ValueError, "holds no LoRA; it would be", LoraFile(path("")));
  save(kohya(), {}, "mine.safetensors");
  write("optimizer.safetensors", "");
  EXPECT_EQ(LoraFile(path("")).path(), path("mine.safetensors"));
  save(kohya(), {}, "b.safetensors");
  SF_EXPECT_ERROR(ValueError, "2 files that may be the LoRA, such as 'b.safetensors' and 'mine.safetensors'; name one",
                  LoraFile(path("")));
}

TEST_F(LoraFiles, MetadataOfDiffusers) {
  const io::Metadata metadata{{"lora_adapter_metadata",
                               R"({"unet.r": 2, "unet.lora_alpha": 4, "unet.alpha_pattern": {"to_q": 5},
                                   "text_encoder.r": 1, "text_encoder.lora_alpha": 3,
                                   "text_encoder.use_rslora": true})"}};
  Tensors tensors;
  for (auto& [stem, rows, columns, rank] : {std::tuple("unet." + kToQ, 32, 32, 2),
                                            {"unet.time_embedding.linear_1", 128, 32, 2},
                                            {"text_encoder." + kFc1, 12, 8, 1}}) {
    tensors[stem + ".lora_A.weight"] = filled({rank, columns});
    tensors[stem + ".lora_B.weight"] = filled({rows, rank});
  }
  const LoraMatch lora = match(tensors, true, metadata);
  for (auto& l : lora.layers.at("unet")) EXPECT_EQ(l.scale, l.module == kToQ ? 2.5 : 2) << l.module;
  EXPECT_EQ(only(lora, "text_encoder").scale, 3);
}

TEST_F(LoraFiles, TextEncodersOfOneShape) {
  const std::string stem = "base_model.model." + kFc1;
  save({{stem + ".lora_A.weight", filled({2, 8})}, {stem + ".lora_B.weight", filled({12, 2})}}, {},
       "adapter_model.safetensors");
  write("adapter_config.json", "{}");
  EXPECT_EQ(only(LoraFile(path("")).match(all().xl), "text_encoder").module, kFc1);
  write("adapter_config.json", R"({"auto_mapping": {"base_model_class": "CLIPTextModelWithProjection"}})");
  EXPECT_EQ(only(LoraFile(path("")).match(all().xl), "text_encoder_2").module, kFc1);
}

TEST_F(LoraFiles, PytorchFiles) {
  std::vector<io::Object> items;
  for (auto& [name, t] : kohya()) items.insert(items.end(), {io::Object(std::string_view(name)), io::Object(t)});
  const io::Object dict = io::Object::container(io::Object::Dict, items);
  io::save_torch(dict, path("lora.pt"));
  EXPECT_EQ(only(LoraFile(path("lora.pt")).match(all().sd), "unet").scale, 0.5);
  io::save_torch(io::Object::container(io::Object::Dict, {"state_dict", dict}), path("nested.pt"));
  EXPECT_EQ(only(LoraFile(path("nested.pt")).match(all().sd), "unet").module, kToQ);
  // one row, twice: a small file may claim any size so
  for (size_t i = 1; i < items.size(); i += 2)
    if (items[i].tensor().shape() == Shape{2, 32}) items[i] = io::Object(expand(filled({1, 32}), {2, 32}));
  io::save_torch(io::Object::container(io::Object::Dict, items), path("repeated.pt"));
  SF_EXPECT_ERROR(ValueError, "repeats values", LoraFile(path("repeated.pt")).match(all().sd));
}

TEST_F(LoraFiles, ReportsEveryKeyOnce) {
  Tensors tensors = kohya();
  tensors["lora_unet_nowhere_to_q.lora_down.weight"] = filled({2, 32});
  tensors["lora_unet_nowhere_to_q.lora_up.weight"] = filled({32, 2});
  tensors["lora_unet_mid_block_resnets_0_conv1.alpha"] = filled({}, 1);
  tensors["lora_te_text_model_encoder_layers_1_mlp_fc1.lora_down.weight"] = filled({2, 9});
  tensors["lora_te_text_model_encoder_layers_1_mlp_fc1.lora_up.weight"] = filled({12, 2});
  tensors["lora_unet_conv_in.hada_w1_a"] = filled({2, 2});
  tensors["lora_unet_conv_in.alpha"] = filled({}, 1);
  tensors["something.else"] = filled({1});
  const LoraMatch lora = match(tensors, false);
  EXPECT_EQ(only(lora, "unet").module, kToQ);
  EXPECT_EQ(lora.layers.count("text_encoder"), 0u);
  std::map<std::string, LoraKey> keys;
  for (auto& k : lora.report.keys) EXPECT_TRUE(keys.emplace(k.key, k).second) << k.key << " twice";
  EXPECT_EQ(keys.size(), tensors.size());
  EXPECT_EQ(lora.report.count(LoraKey::Applied), 3u);
  EXPECT_EQ(lora.report.count(LoraKey::WrongShape), 2u);
  EXPECT_EQ(lora.report.count(LoraKey::Unused), 6u);
  EXPECT_EQ(keys["lora_unet_nowhere_to_q.lora_up.weight"].why, "is of a layer that is not there");
  EXPECT_EQ(keys["lora_unet_mid_block_resnets_0_conv1.alpha"].why, "is an alpha without weights");
  EXPECT_EQ(keys["lora_unet_conv_in.alpha"].why, "is of LoHa, which is not supported yet");
  EXPECT_EQ(keys["something.else"].why, "is no part of an adapter");
  auto& wrong = keys["lora_te_text_model_encoder_layers_1_mlp_fc1.lora_down.weight"];
  EXPECT_EQ(wrong.module, kFc1);
  EXPECT_EQ(wrong.component, "text_encoder");
  EXPECT_EQ(wrong.why, "is [2, 9] and should be [rank, 8] for 'text_model.encoder.layers.1.mlp.fc1' of [12, 8]");
  EXPECT_EQ(keys["lora_te_text_model_encoder_layers_1_mlp_fc1.lora_up.weight"].why,
            "goes with 'lora_te_text_model_encoder_layers_1_mlp_fc1.lora_down.weight'");
}

TEST_F(LoraFiles, StrictlyAllOrNothing) {
  Tensors tensors = kohya();
  tensors["lora_unet_nowhere.lora_down.weight"] = filled({2, 32});
  tensors["lora_unet_nowhere.lora_up.weight"] = filled({32, 2});
  refused(
      tensors,
      "2 of its 5 keys do not fit this model: 'lora_unet_nowhere.lora_down.weight' is of a layer that is not there, "
      "'lora_unet_nowhere.lora_up.weight' is of a layer that is not there; strict=False leaves them out");
  tensors = kohya();
  const std::string stem = "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q";
  tensors[stem + ".lora_up.weight"] = filled({31, 2});
  for (bool strict : {true, false}) refused(tensors, "none of its 1 layers is one of this model's; '", strict);
  refused(tensors, "is [31, 2] and should be [32, 2]");
}

TEST_F(LoraFiles, DamagedFiles) {
  const std::string stem = "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q";
  for (bool strict : {true, false}) {
    Tensors tensors = kohya();
    tensors.erase(stem + ".lora_up.weight");
    refused(tensors, "to_q.lora_down.weight' lacks its other half, the up (B) weight", strict);
    tensors = kohya();
    tensors.erase(stem + ".lora_down.weight");
    refused(tensors, "lacks its other half, the down (A) weight", strict);
    tensors = kohya();
    tensors[stem + ".alpha"] = filled({}, 0);
    refused(tensors, "to_q.alpha' is 0", strict);
    tensors[stem + ".alpha"] = filled({}, NAN);
    refused(tensors, "to_q.alpha' is nan", strict);
    tensors[stem + ".alpha"] = filled({2}, 1);
    refused(tensors, "to_q.alpha' must be one number, got [2]", strict);
    tensors = kohya();
    tensors[stem + ".lora_down.weight"] = filled({2, 32}, 1, kInt8);
    refused(tensors, "to_q.lora_down.weight' is I8 and should be of a floating-point dtype", strict);
    tensors = kohya();
    tensors[stem + ".lora_A.weight"] = filled({2, 32});
    refused(tensors, "are the same part of one layer", strict);
  }
  Tensors tensors = kohya();
  tensors[stem + ".lora_down.weight"] = filled({0, 32});
  tensors[stem + ".lora_up.weight"] = filled({32, 0});
  refused(tensors, "is [0, 32] and should be [rank, 32] with a rank from 1 to 16384");
  tensors[stem + ".lora_down.weight"] = filled({});
  refused(tensors, "is [] and should be [rank, 32]");
}

TEST_F(LoraFiles, OtherAdapters) {
  for (auto& [end, kind] : {std::pair{"dora_scale", "DoRA"},
                            {"lora_magnitude_vector", "DoRA"},
                            {"hada_w1_a", "LoHa"},
                            {"lokr_w1", "LoKr"},
                            {"diff", "whole differences of weights"},
                            {"diff_b", "whole differences of weights"},
                            {"oft_blocks", "OFT"},
                            {"lora_up.bias", "a LoRA with biases"},
                            {"lora_B.default.bias", "a LoRA with biases"}}) {
    Tensors tensors = kohya();
    const std::string key = std::string("lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q.") + end;
    tensors[key] = filled({32});
    refused<NotSupported>(tensors, ("'" + key + "' is of " + kind + ", which is not supported yet").c_str());
    refused<NotSupported>(tensors, "is not supported yet", false);  // without it the layer would be another
  }
}

TEST_F(LoraFiles, WhatIsNoLora) {
  refused({{"conv_in.weight", filled({2, 2})}},
          "is no LoRA: none of its 1 tensors, such as 'conv_in.weight', is named");
  refused({{"model.diffusion_model.input_blocks.0.0.weight", filled({320, 4, 3, 3})}},
          "is a whole model, Stable Diffusion 1.x, and not a LoRA");
  refused({}, "is no LoRA: none of its 0 tensors is named");
  SF_EXPECT_ERROR(RuntimeError, "nowhere", LoraFile(path("nowhere.safetensors")));
}

TEST_F(LoraFiles, OfAnotherBase) {
  const std::string stem = "lora_unet_input_blocks_7_1_transformer_blocks_9_attn2_to_k";  // XL's alone
  refused({{stem + ".lora_down.weight", filled({4, 2048})}, {stem + ".lora_up.weight", filled({1280, 4})}},
          "is a LoRA for Stable Diffusion XL");
  refused({{stem + ".lora_down.weight", filled({4, 2047})}, {stem + ".lora_up.weight", filled({1280, 4})}},
          "is a LoRA for another model: none of its 1 layers is one of this model's");
}

TEST_F(LoraFiles, ValuesAreFinite) {
  for (DType dtype : {kFloat64, kFloat32, kFloat16, kBFloat16, kFloat8E4M3, kFloat8E5M2}) {
    EXPECT_TRUE(all_finite(filled({5, 7}, -3, dtype))) << name(dtype);
    for (double bad : {double(NAN), double(INFINITY), -double(INFINITY)}) {
      if (dtype == kFloat8E4M3 && std::isinf(bad)) continue;  // has none
      Tensor t = filled({5, 7}, 1, dtype);
      Tensor one = narrow(narrow(t, 0, 4, 1), 1, 6, 1);
      one.copy_(filled({1, 1}, bad, kFloat32).to(dtype));
      EXPECT_FALSE(all_finite(t)) << name(dtype) << bad;
      EXPECT_FALSE(all_finite(transpose(t, 0, 1))) << name(dtype) << bad;
      EXPECT_TRUE(all_finite(narrow(t, 0, 0, 4)));
    }
  }
  EXPECT_TRUE(all_finite(filled({0, 3})));
  EXPECT_TRUE(all_finite(filled({3}, 65504)));
  Tensors tensors = kohya();
  tensors["lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q.lora_up.weight"] = filled({32, 2}, NAN);
  const LoraLayer layer = only(match(tensors), "unet");
  SF_EXPECT_ERROR(ValueError,
                  "x.safetensors: 'lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q' "
                  "has NaN or infinity in its up weight",
                  check_lora_values(layer, "x.safetensors"));
}

}  // namespace
}  // namespace sf::models
