#include "scaffolding/models/names/name_rules.h"

// SwissArmyTransformer's names, which CogVideoX and Tora were trained under: a plain transformer, and what differs from
// it in "mixins". diffusers' scripts/convert_cogvideox_to_diffusers.py says which tensor is which.
namespace sf::models {

namespace {

// One layer's modulation has 12 parts: shift, scale and gate of the video for the attention, then for the feed-forward
// layer, then the same of the text. Ours are two layers of 6.
void modulation(const TensorList& model, NameRules& rules) {
  for (auto& [name, shape] : model)
    if (name == "transformer_blocks.0.norm1.linear.weight") {
      const int64_t three = shape[0] / 2;
      const char* theirs = "mixins.adaln_layer.adaLN_modulations.{i}.1";
      rules.slices("transformer_blocks.{i}.norm1.linear", theirs, {0, 2 * three});
      rules.slices("transformer_blocks.{i}.norm2.linear", theirs, {three, 3 * three});
    }
}

NameRules cogvideox() {
  const std::string ours = "transformer_blocks.{i}.", theirs = "transformer.layers.{i}.";
  return NameRules()
      .rename("patch_embed", "mixins.patch_embed")
      .rename("patch_embed.pos_embedding", "mixins.pos_embed.pos_embedding")
      .rename("time_embedding.linear_1", "time_embed.0")
      .rename("time_embedding.linear_2", "time_embed.2")
      .rename("ofs_embedding.linear_1", "ofs_embed.0")
      .rename("ofs_embedding.linear_2", "ofs_embed.2")
      .join({ours + "attn1.to_q", ours + "attn1.to_k", ours + "attn1.to_v"}, theirs + "attention.query_key_value")
      .rename(ours + "attn1.norm_q", "mixins.adaln_layer.query_layernorm_list.{i}")
      .rename(ours + "attn1.norm_k", "mixins.adaln_layer.key_layernorm_list.{i}")
      .rename(ours + "attn1.to_out.0", theirs + "attention.dense")
      .rename(ours + "ff.net.0.proj", theirs + "mlp.dense_h_to_4h")
      .rename(ours + "ff.net.2", theirs + "mlp.dense_4h_to_h")
      .rename(ours + "norm1.norm", theirs + "input_layernorm")
      .rename(ours + "norm2.norm", theirs + "post_attention_layernorm")
      .with(modulation)
      .rename("norm_final", "transformer.final_layernorm")
      .rename("norm_out.norm", "mixins.final_layer.norm_final")
      .rename("norm_out.linear", "mixins.final_layer.adaLN_modulation.1")
      .rename("proj_out", "mixins.final_layer.linear");
}

SF_NAMES(CogVideoXTransformer3DModel, "sat") = cogvideox();
SF_NAMES(ToraTransformer3DModel, "sat") =
    cogvideox().rename("traj_extractor", "traj_extractor").rename("fuser", "mixins.adaln_layer.fuser_list");

}  // namespace
}  // namespace sf::models
