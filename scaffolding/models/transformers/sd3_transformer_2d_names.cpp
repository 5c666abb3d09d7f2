#include "scaffolding/models/names/name_rules.h"

// Stability AI's names (its repository sd3-ref), which ComfyUI and its GGUF files have too.
namespace sf::models {

namespace {

// The last block makes no text: of its shift and scale ours have the scale first, as the last norm does.
void last_block(const TensorList& model, NameRules& rules) {
  const std::string last = std::to_string(model.count("transformer_blocks") - 1);
  rules.swap_halves("transformer_blocks." + last + ".norm1_context.linear",
                    "joint_blocks." + last + ".context_block.adaLN_modulation.1");
}

NameRules sd3() {
  const std::string ours = "transformer_blocks.{i}.", x = "joint_blocks.{i}.x_block.",
                    text = "joint_blocks.{i}.context_block.";
  NameRules rules;
  rules.rename("pos_embed.pos_embed", "pos_embed")
      .rename("pos_embed.proj", "x_embedder.proj")
      .rename("time_text_embed.timestep_embedder.linear_1", "t_embedder.mlp.0")
      .rename("time_text_embed.timestep_embedder.linear_2", "t_embedder.mlp.2")
      .rename("time_text_embed.text_embedder.linear_1", "y_embedder.mlp.0")
      .rename("time_text_embed.text_embedder.linear_2", "y_embedder.mlp.2")
      .same({"context_embedder"});
  for (const char* attn : {"attn", "attn2"}) {
    const std::string a = ours + attn, b = x + attn;
    rules.join({a + ".to_q", a + ".to_k", a + ".to_v"}, b + ".qkv")
        .rename(a + ".norm_q", b + ".ln_q")
        .rename(a + ".norm_k", b + ".ln_k")
        .rename(a + ".to_out.0", b + ".proj");
  }
  return rules.join({ours + "attn.add_q_proj", ours + "attn.add_k_proj", ours + "attn.add_v_proj"}, text + "attn.qkv")
      .rename(ours + "attn.norm_added_q", text + "attn.ln_q")
      .rename(ours + "attn.norm_added_k", text + "attn.ln_k")
      .rename(ours + "attn.to_add_out", text + "attn.proj")
      .rename(ours + "norm1.linear", x + "adaLN_modulation.1")
      .rename(ours + "norm1_context.linear", text + "adaLN_modulation.1")
      .with(last_block)
      .rename(ours + "ff.net.0.proj", x + "mlp.fc1")
      .rename(ours + "ff.net.2", x + "mlp.fc2")
      .rename(ours + "ff_context.net.0.proj", text + "mlp.fc1")
      .rename(ours + "ff_context.net.2", text + "mlp.fc2")
      .swap_halves("norm_out.linear", "final_layer.adaLN_modulation.1")
      .rename("proj_out", "final_layer.linear");
}

SF_NAMES(SD3Transformer2DModel, "sd3") = sd3();

}  // namespace
}  // namespace sf::models
