#include "scaffolding/models/unets/unet_2d_condition_names.h"

namespace sf::models {

namespace {

// In the files of the first ControlNets what sees the picture is a row of convolutions with an activation behind each.
void hints(const TensorList& model, NameRules& rules) {
  const std::string ours = "controlnet_cond_embedding";
  const int64_t blocks = model.count(ours + ".blocks");
  for (int64_t i = 0; i < blocks; ++i)
    rules.rename(name_at(ours + ".blocks", i), name_at("input_hint_block", 2 * (i + 1)));
  rules.rename(ours + ".conv_out", name_at("input_hint_block", 2 * (blocks + 1)));
  for (int64_t i = 0; i < model.count("controlnet_down_blocks"); ++i)
    rules.rename(name_at("controlnet_down_blocks", i), name_at("zero_convs", i) + ".0");
}

SF_NAMES(ControlNetModel, "ldm")
    .rename("controlnet_cond_embedding.conv_in", "input_hint_block.0")
    .rename("controlnet_mid_block", "middle_block_out.0")
    .with(hints)
    .with(ldm_unet_names);

}  // namespace
}  // namespace sf::models
