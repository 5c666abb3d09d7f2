// LoRAs in a pipeline: all of a call's or none, by component, beside what was on.
#include "scaffolding/diffusion/pipelines/lora.h"

#include <limits>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/diffusion/pipelines/stable_diffusion/test_pipeline.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/models/text_encoders/clip.h"

namespace sf::diffusion {
namespace {

using Weights = std::map<std::string, Tensor>;

const std::string kToQ = "unet.mid_block.attentions.0.transformer_blocks.0.attn1.to_q";
const std::string kToV = "unet.mid_block.attentions.0.transformer_blocks.0.attn2.to_v";
const std::string kFc1 = "text_encoder.text_model.encoder.layers.0.mlp.fc1";

class Lora : public io::TestFolder {
 protected:
  Lora() : pipe(test::tiny()) {
    models::CLIPTextConfig text;
    text.vocab_size = 20;
    text.hidden_size = 16;
    text.intermediate_size = 24;
    text.num_hidden_layers = 1;
    text.num_attention_heads = 2;
    text.projection_dim = std::nullopt;
    text.pad_token_id = text.bos_token_id = 0;
    text.eos_token_id = 19;
    pipe.text_encoder = text_encoder(std::make_shared<models::CLIPTextModel>(text));
  }

  // A LoRA of rank 2 of these layers, (in, out).
  Weights lora(const std::vector<std::tuple<std::string, int64_t, int64_t>>& layers) {
    Weights out;
    for (auto& [stem, in, to] : layers) {
      out[stem + ".lora_A.weight"] = randn({2, in});
      out[stem + ".lora_B.weight"] = randn({to, 2});
    }
    return out;
  }
  std::string save(const std::string& name, const Weights& tensors) {
    io::save_safetensors(tensors, path(name));
    return path(name);
  }
  // Of all three layers: both networks.
  std::string whole(const std::string& name) {
    return save(name, lora({{kToQ, 16, 16}, {kToV, 16, 16}, {kFc1, 16, 24}}));
  }

  // What the two networks give.
  struct Answers {
    std::vector<double> text, picture;
    bool operator==(const Answers&) const = default;
  };
  Answers answers() {
    autograd::NoGrad no_grad;
    const Tensor ids = tensor(std::vector<int64_t>{0, 3, 7, 19}, {1, 4}, kInt64);
    return {pipe.text_encoder->encode(ids, {}).last_hidden_state.to_vector(), pipe(test::options()).images.to_vector()};
  }
  std::vector<std::string> names(Component& network) {
    return network.model()->has_adapters() ? network.model()->adapters().names() : std::vector<std::string>();
  }
  std::vector<std::string> active(Component& network) { return network.model()->adapters().active(); }

  StableDiffusionPipeline pipe;
};

TEST_F(Lora, AreOnByTheirFilesNames) {
  const Answers bare = answers();
  use_loras(pipe, {{whole("a.v1.safetensors"), 0.5}, {save("b.safetensors", lora({{kToQ, 16, 16}})), -1}});
  EXPECT_EQ(active(*pipe.unet), (std::vector<std::string>{"a.v1", "b"}));
  EXPECT_EQ(active(*pipe.text_encoder), std::vector<std::string>{"a.v1"});
  const Answers both = answers();
  EXPECT_NE(both.text, bare.text);
  EXPECT_NE(both.picture, bare.picture);
  use_loras(pipe, {{path("b.safetensors"), 0, {}, "other"}});  // no others are on then
  EXPECT_EQ(active(*pipe.unet), std::vector<std::string>{"other"});
  EXPECT_EQ(answers(), bare);
  use_loras(pipe, {});
  EXPECT_EQ(active(*pipe.unet), std::vector<std::string>{});
}

TEST_F(Lora, WeightsByComponent) {
  const Answers bare = answers();
  const std::string file = whole("a.safetensors");
  use_loras(pipe, {{file, 0.5}});
  const Answers half = answers();
  use_loras(pipe, {{file, 0.5, 0, "unet alone"}});
  EXPECT_EQ(answers(), (Answers{bare.text, half.picture}));
  use_loras(pipe, {{file, 0, 0.5, "text alone"}});
  EXPECT_EQ(answers(), (Answers{half.text, bare.picture}));
  use_loras(pipe, {{file, -0.5, 2, "apart"}});
  const Answers apart = answers();
  EXPECT_NE(apart.text, half.text);
  EXPECT_NE(apart.picture, half.picture);
}

TEST_F(Lora, OneThatIsRefusedLeavesEverythingAsItWas) {
  use_loras(pipe, {{whole("old.safetensors"), 0.75}});
  const Answers before = answers();
  const std::string good = whole("good.safetensors");
  auto refused = [&](const std::string& bad, const char* why) {
    SCOPED_TRACE(why);
    SF_EXPECT_ERROR(Error, why, use_loras(pipe, {{good}, {path("bad.safetensors")}}));
    EXPECT_EQ(names(*pipe.unet), std::vector<std::string>{"old"}) << bad;
    EXPECT_EQ(names(*pipe.text_encoder), std::vector<std::string>{"old"}) << bad;
    EXPECT_EQ(answers(), before) << bad;
  };
  auto with = [&](const std::string& key, const Tensor& value) {
    Weights tensors = lora({{kToQ, 16, 16}, {kFc1, 16, 24}});
    tensors[key] = value;
    return save("bad.safetensors", tensors);
  };
  refused("absent", "bad.safetensors");
  refused(write("bad.safetensors", "no tensors"), "bad.safetensors");
  refused(with(kToV + ".lora_A.weight", randn({2, 16})), "lacks its other half");
  Tensor nan = randn({24, 2});
  nan.select(0, 3).fill_(std::numeric_limits<double>::quiet_NaN());
  refused(with(kFc1 + ".lora_B.weight", nan), "has NaN or infinity");
  refused(with(kToV + ".lora_C.weight", randn({2, 16})), kToV.c_str());
  // Of a base with wider layers, and of another with more of them.
  refused(save("bad.safetensors", lora({{kToQ, 320, 320}})), "bad.safetensors");
  refused(save("bad.safetensors", lora({{"unet.up_blocks.3.attentions.0.transformer_blocks.0.attn1.to_q", 16, 16}})),
          "bad.safetensors");
  Weights model;
  for (auto& p : nn::named_parameters(*pipe.unet->model())) model[p.name] = p.tensor;
  refused(save("bad.safetensors", model), "is no LoRA");
}

TEST_F(Lora, NamesAndWeightsAreCheckedBeforeAFileIsRead) {
  const std::string a = whole("a.safetensors");
  std::filesystem::create_directory(path("sub"));
  std::filesystem::copy_file(a, path("sub/a.safetensors"));
  SF_EXPECT_ERROR(ValueError, "are two LoRAs of the name 'a'", use_loras(pipe, {{a}, {path("sub/a.safetensors")}}));
  SF_EXPECT_ERROR(ValueError, "the weight of 'a' must be a finite number, got nan",
                  use_loras(pipe, {{a, std::numeric_limits<double>::quiet_NaN()}}));
  SF_EXPECT_ERROR(ValueError, "got inf", use_loras(pipe, {{a, 1, std::numeric_limits<double>::infinity()}}));
  EXPECT_FALSE(pipe.unet->model()->has_adapters());
  use_loras(pipe, {{a}, {path("sub/a.safetensors"), 1, {}, "b"}});
  EXPECT_EQ(names(*pipe.unet), (std::vector<std::string>{"a", "b"}));
  SF_EXPECT_ERROR(ValueError, "has an adapter 'a' already", use_loras(pipe, {{a}}));
  // Even one that this file has no layer for: it would be taken for the new one's.
  pipe.text_encoder->model()->adapters().remove("a");
  SF_EXPECT_ERROR(ValueError, "has an adapter 'a' already",
                  use_loras(pipe, {{save("c.safetensors", lora({{kFc1, 16, 24}})), 1, {}, "a"}}));
}

TEST_F(Lora, PipelinesThatShareNetworksShareThem) {
  use_loras(pipe, {{whole("a.safetensors")}});
  StableDiffusionImg2ImgPipeline other;
  share_components(pipe, other);
  ASSERT_EQ(adapted_models(other).size(), 2u);
  for (auto& [component, model] : adapted_models(other))
    EXPECT_EQ(model->adapters().active(), std::vector<std::string>{"a"}) << component;
}

}  // namespace
}  // namespace sf::diffusion
