#include "scaffolding/models/names/name_rules.h"

namespace sf::models {

namespace {

NameRules gemma3_of_llama_cpp() {
  const std::string ours = "layers.{i}.", theirs = "blk.{i}.";
  return NameRules()
      .rename("embed_tokens", "token_embd")
      .rename(ours + "input_layernorm", theirs + "attn_norm", NameChange::OneMore)
      .rename(ours + "self_attn.q_proj", theirs + "attn_q")
      .rename(ours + "self_attn.k_proj", theirs + "attn_k")
      .rename(ours + "self_attn.v_proj", theirs + "attn_v")
      .rename(ours + "self_attn.o_proj", theirs + "attn_output")
      .rename(ours + "self_attn.q_norm", theirs + "attn_q_norm", NameChange::OneMore)
      .rename(ours + "self_attn.k_norm", theirs + "attn_k_norm", NameChange::OneMore)
      .rename(ours + "post_attention_layernorm", theirs + "post_attention_norm", NameChange::OneMore)
      .rename(ours + "pre_feedforward_layernorm", theirs + "ffn_norm", NameChange::OneMore)
      .rename(ours + "mlp.gate_proj", theirs + "ffn_gate")
      .rename(ours + "mlp.up_proj", theirs + "ffn_up")
      .rename(ours + "mlp.down_proj", theirs + "ffn_down")
      .rename(ours + "post_feedforward_layernorm", theirs + "post_ffw_norm", NameChange::OneMore)
      .rename("norm", "output_norm", NameChange::OneMore);
}

// llama.cpp multiplies by the norms' weights as they are, and its converter has added the one. ComfyUI's files have our
// own names.
SF_NAMES(Gemma3TextModel, "llama_cpp") = gemma3_of_llama_cpp();

}  // namespace
}  // namespace sf::models
