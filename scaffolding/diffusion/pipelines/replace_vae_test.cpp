// Another autoencoder in a pipeline: from files under every layout's names, from folders, and those that do not fit.
#include "scaffolding/diffusion/pipelines/replace_vae.h"

#include "scaffolding/diffusion/pipelines/stable_diffusion/test_pipeline.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/formats/torch_file.h"
#include "scaffolding/io/test_folder.h"
#include "scaffolding/models/autoencoders/autoencoder_tiny.h"
#include "scaffolding/models/names/name_table.h"
#include "scaffolding/nn/state_dict.h"

namespace sf::diffusion {
namespace {

class ReplaceVae : public io::TestFolder {
 protected:
  static std::shared_ptr<models::AutoencoderKL> another(
      const models::AutoencoderKLConfig& c = models::test::tiny_vae()) {
    manual_seed(7);
    return std::make_shared<models::AutoencoderKL>(c);
  }
  static std::map<std::string, Tensor> tensors(models::Model& model, const std::string& prefix = "") {
    std::map<std::string, Tensor> out;
    for (auto& [name, t] : nn::state_dict(model)) out.emplace(prefix + name, t);
    return out;
  }
  // What a pipeline decodes to once it has the autoencoder at this path, and what it should.
  static void expect_replaced(const std::string& path) {
    auto pipe = test::tiny();
    const Tensor latents = ones({1, 4, 4, 4});
    const auto before = pipe.vae->decode(latents).to_vector();
    replace_vae(pipe, path);
    EXPECT_NE(pipe.vae->decode(latents).to_vector(), before);
    EXPECT_EQ(pipe.vae->decode(latents).to_vector(), autoencoder(another())->decode(latents).to_vector()) << path;
    EXPECT_EQ(pipe.vae->config_float("scaling_factor", 0), 0.18215);
  }
  void expect_refused(const std::string& path, const std::string& why) const {
    auto pipe = test::tiny();
    const auto before = pipe.vae;
    SF_EXPECT_ERROR(Error, why, replace_vae(pipe, path));
    EXPECT_EQ(pipe.vae, before);
  }
};

TEST_F(ReplaceVae, FromFiles) {
  auto vae = another();
  io::save_safetensors(tensors(*vae), path("own.safetensors"));
  io::save_safetensors(tensors(*vae, "vae."), path("prefixed.safetensors"));
  const auto ldm = models::name_table(*vae, "AutoencoderKL", "ldm").write(tensors(*vae), "vae");
  io::save_safetensors(ldm, path("ldm.safetensors"));
  std::map<std::string, Tensor> whole;
  for (auto& [name, t] : ldm) whole.emplace("first_stage_model." + name, t);
  whole.emplace("model.diffusion_model.input_blocks.0.0.weight", ones({8, 4, 3, 3}));
  io::save_safetensors(whole, path("whole.safetensors"));
  std::vector<io::Object> items;
  for (auto& [name, t] : ldm) items.insert(items.end(), {io::Object(std::string_view(name)), io::Object(t)});
  io::save_torch(io::Object::container(io::Object::Dict,
                                       {"state_dict", io::Object::container(io::Object::Dict, std::move(items))}),
                 path("ldm.ckpt"));
  for (auto* name : {"own.safetensors", "prefixed.safetensors", "ldm.safetensors", "whole.safetensors", "ldm.ckpt"})
    expect_replaced(path(name));
}

TEST_F(ReplaceVae, FromAFileOfATinyAutoencoder) {
  manual_seed(3);
  models::AutoencoderTiny tiny{models::AutoencoderTinyConfig{}};
  io::save_safetensors(tensors(tiny), path("taesd.safetensors"));
  auto pipe = test::tiny();
  pipe.vae = autoencoder(std::make_shared<models::AutoencoderTiny>(models::AutoencoderTinyConfig{}));
  replace_vae(pipe, path("taesd.safetensors"));
  EXPECT_EQ(pipe.vae->config_float("scaling_factor", 0), 1);
  EXPECT_EQ(pipe.vae->decode(ones({1, 4, 4, 4})).shape(), (Shape{1, 3, 32, 32}));
  auto of_others = tensors(tiny);
  of_others.at("decoder.layers.0.weight") = ones({64, 16, 3, 3});
  io::save_safetensors(of_others, path("taef1.safetensors"));
  expect_refused(path("taef1.safetensors"), "has latents of 16 channels, and the model's have 4");
}

TEST_F(ReplaceVae, FromFolders) {
  models::save_model(*another(), path("vae"));
  expect_replaced(path("vae"));
  auto pipe = test::tiny();
  pipe.vae = autoencoder(another());
  save_pipeline(pipe, path("pipe"));
  expect_replaced(path("pipe"));
}

TEST_F(ReplaceVae, KeepsTheDtypeThatIsAskedFor) {
  io::save_safetensors(tensors(*another()), path("a.safetensors"));
  auto pipe = test::tiny();
  replace_vae(pipe, path("a.safetensors"), {.dtype = kBFloat16});
  EXPECT_EQ(pipe.vae->dtype(), kBFloat16);
}

TEST_F(ReplaceVae, WhatDoesNotFitIsRefused) {
  auto c = models::test::tiny_vae();
  c.latent_channels = 16;
  io::save_safetensors(tensors(*another(c)), path("wide.safetensors"));
  expect_refused(path("wide.safetensors"), "has latents of 16 channels, and the model's have 4");
  models::save_model(*another(c), path("wide"));
  expect_refused(path("wide"), "has latents of 16 channels, and the model's have 4");
  c = models::test::tiny_vae();
  c.scaling_factor = 0.13025;
  models::save_model(*another(c), path("xl"));
  expect_refused(path("xl"), "has a scaling_factor of 0.13025, and the model's is 0.18215");
  c = models::test::tiny_vae();
  c.block_out_channels = {8, 8, 8};
  c.down_block_types.assign(3, "DownEncoderBlock2D");
  c.up_block_types.assign(3, "UpDecoderBlock2D");
  models::save_model(*another(c), path("deep"));
  expect_refused(path("deep"), "has 4 pixels for a latent, and the model's has 2");
  io::save_safetensors({{"a", ones({1})}}, path("none.safetensors"));
  expect_refused(path("none.safetensors"), "has no tensor of a AutoencoderKL");
  expect_refused(write("text.pt", "hello"), "is no checkpoint that is known here");
  auto half = tensors(*another());
  half.erase("decoder.conv_out.weight");
  io::save_safetensors(half, path("half.safetensors"));
  expect_refused(path("half.safetensors"), "decoder.conv_out.weight");
  expect_refused(path("nothing"), "cannot open");
  models::save_model(*dynamic_cast<models::Model*>(test::tiny().unet->model()), path("unet"));
  expect_refused(path("unet"), "vae");
}

}  // namespace
}  // namespace sf::diffusion
