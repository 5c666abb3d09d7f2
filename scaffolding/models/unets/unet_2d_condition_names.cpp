#include "scaffolding/models/unets/unet_2d_condition_names.h"

namespace sf::models {

std::string name_at(const std::string& list, int64_t i) { return list + "." + std::to_string(i); }

void ldm_unet_names(const TensorList& unet, NameRules& rules) {
  const NameRules resnet = NameRules()
                               .rename("norm1", "in_layers.0")
                               .rename("conv1", "in_layers.2")
                               .rename("time_emb_proj", "emb_layers.1")
                               .rename("norm2", "out_layers.0")
                               .rename("conv2", "out_layers.3")
                               .rename("conv_shortcut", "skip_connection");
  rules.rename("time_embedding.linear_1", "time_embed.0")
      .rename("time_embedding.linear_2", "time_embed.2")
      .rename("class_embedding.linear_1", "label_emb.0.0")
      .rename("class_embedding.linear_2", "label_emb.0.2")
      .rename("add_embedding.linear_1", "label_emb.0.0")
      .rename("add_embedding.linear_2", "label_emb.0.2")
      .rename("conv_in", "input_blocks.0.0");
  int64_t block = 1;
  for (int64_t i = 0; i < unet.count("down_blocks"); ++i) {
    const std::string level = name_at("down_blocks", i);
    for (int64_t j = 0; j < unet.count(level + ".resnets"); ++j, ++block) {
      rules.inside(name_at(level + ".resnets", j), name_at("input_blocks", block) + ".0", resnet);
      rules.rename(name_at(level + ".attentions", j), name_at("input_blocks", block) + ".1");
    }
    if (unet.has(level + ".downsamplers"))
      rules.rename(level + ".downsamplers.0.conv", name_at("input_blocks", block++) + ".0.op");
  }
  const bool attends = unet.has("mid_block.attentions");
  for (int64_t j = 0; j < unet.count("mid_block.resnets"); ++j) {
    rules.inside(name_at("mid_block.resnets", j), name_at("middle_block", attends ? 2 * j : j), resnet);
    rules.rename(name_at("mid_block.attentions", j), name_at("middle_block", 2 * j + 1));
  }
  block = 0;
  for (int64_t i = 0; i < unet.count("up_blocks"); ++i) {
    const std::string level = name_at("up_blocks", i);
    for (int64_t j = 0; j < unet.count(level + ".resnets"); ++j, ++block) {
      rules.inside(name_at(level + ".resnets", j), name_at("output_blocks", block) + ".0", resnet);
      rules.rename(name_at(level + ".attentions", j), name_at("output_blocks", block) + ".1");
    }
    rules.rename(level + ".upsamplers.0.conv",
                 name_at("output_blocks", block - 1) + (unet.has(level + ".attentions") ? ".2.conv" : ".1.conv"));
  }
}

namespace {

SF_NAMES(UNet2DConditionModel, "ldm").with(ldm_unet_names).rename("conv_norm_out", "out.0").rename("conv_out", "out.2");

}  // namespace
}  // namespace sf::models
