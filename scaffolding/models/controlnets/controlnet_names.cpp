#include "scaffolding/models/unets/unet_2d_condition_names.h"

namespace sf::models {

namespace {

std::string at(const std::string& list, int64_t i) { return list + "." + std::to_string(i); }

// In the files of the first ControlNets what sees the picture is a row of convolutions with an activation behind each.
void hints(const TensorList& model, NameRules& rules) {
  const std::string ours = "controlnet_cond_embedding";
  const int64_t blocks = model.count(ours + ".blocks");
  for (int64_t i = 0; i < blocks; ++i) rules.rename(at(ours + ".blocks", i), at("input_hint_block", 2 * (i + 1)));
  rules.rename(ours + ".conv_out", at("input_hint_block", 2 * (blocks + 1)));
  for (int64_t i = 0; i < model.count("controlnet_down_blocks"); ++i)
    rules.rename(at("controlnet_down_blocks", i), at("zero_convs", i) + ".0");
}

SF_NAMES(ControlNetModel, "ldm")
    .rename("time_embedding.linear_1", "time_embed.0")
    .rename("time_embedding.linear_2", "time_embed.2")
    .rename("class_embedding.linear_1", "label_emb.0.0")
    .rename("class_embedding.linear_2", "label_emb.0.2")
    .rename("add_embedding.linear_1", "label_emb.0.0")
    .rename("add_embedding.linear_2", "label_emb.0.2")
    .rename("conv_in", "input_blocks.0.0")
    .rename("controlnet_cond_embedding.conv_in", "input_hint_block.0")
    .rename("controlnet_mid_block", "middle_block_out.0")
    .with(hints)
    .with(ldm_unet_names);

}  // namespace
}  // namespace sf::models
