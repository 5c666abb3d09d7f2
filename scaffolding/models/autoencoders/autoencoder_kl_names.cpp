#include "scaffolding/models/names/name_rules.h"

namespace sf::models {

namespace {

void ldm(const TensorList& vae, NameRules& rules) {
  const NameRules resnet =
      NameRules().same({"norm1", "conv1", "norm2", "conv2"}).rename("conv_shortcut", "nin_shortcut");
  const NameRules attention = NameRules()
                                  .rename("group_norm", "norm")
                                  .rename("to_q", "q", NameChange::Pointwise)
                                  .rename("to_k", "k", NameChange::Pointwise)
                                  .rename("to_v", "v", NameChange::Pointwise)
                                  .rename("to_out.0", "proj_out", NameChange::Pointwise);
  const NameRules middle = NameRules()
                               .inside("resnets.0", "block_1", resnet)
                               .inside("attentions.0", "attn_1", attention)
                               .inside("resnets.1", "block_2", resnet);
  rules.inside("encoder.mid_block", "encoder.mid", middle).inside("decoder.mid_block", "decoder.mid", middle);
  rules.inside("encoder.down_blocks.{i}.resnets.{j}", "encoder.down.{i}.block.{j}", resnet)
      .inside("encoder.down_blocks.{i}.attentions.{j}", "encoder.down.{i}.attn.{j}", attention)
      .rename("encoder.down_blocks.{i}.downsamplers.0.conv", "encoder.down.{i}.downsample.conv");
  const int64_t levels = vae.count("decoder.up_blocks");
  for (int64_t i = 0; i < levels; ++i) {  // CompVis' Decoder counts them by resolution, ours by order
    const std::string ours = "decoder.up_blocks." + std::to_string(i),
                      theirs = "decoder.up." + std::to_string(levels - 1 - i);
    rules.inside(ours + ".resnets.{j}", theirs + ".block.{j}", resnet)
        .inside(ours + ".attentions.{j}", theirs + ".attn.{j}", attention)
        .rename(ours + ".upsamplers.0.conv", theirs + ".upsample.conv");
  }
}

SF_NAMES(AutoencoderKL, "ldm")
    .same({"encoder.conv_in", "encoder.conv_out", "decoder.conv_in", "decoder.conv_out", "quant_conv",
           "post_quant_conv"})
    .rename("encoder.conv_norm_out", "encoder.norm_out")
    .rename("decoder.conv_norm_out", "decoder.norm_out")
    .with(ldm);

}  // namespace
}  // namespace sf::models
