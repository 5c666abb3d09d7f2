#include "scaffolding/models/names/name_rules.h"

namespace sf::models {

namespace {

NameRules llama_cpp() {
  const std::string ours = "layers.{i}.", theirs = "blk.{i}.";
  return NameRules()
      .rename("embed_tokens", "token_embd")
      .rename(ours + "input_layernorm", theirs + "attn_norm")
      .rename(ours + "self_attn.q_proj", theirs + "attn_q")
      .rename(ours + "self_attn.k_proj", theirs + "attn_k")
      .rename(ours + "self_attn.v_proj", theirs + "attn_v")
      .rename(ours + "self_attn.o_proj", theirs + "attn_output")
      .rename(ours + "self_attn.q_norm", theirs + "attn_q_norm")
      .rename(ours + "self_attn.k_norm", theirs + "attn_k_norm")
      .rename(ours + "post_attention_layernorm", theirs + "ffn_norm")
      .rename(ours + "mlp.gate_proj", theirs + "ffn_gate")
      .rename(ours + "mlp.up_proj", theirs + "ffn_up")
      .rename(ours + "mlp.down_proj", theirs + "ffn_down")
      .rename("norm", "output_norm");
}

// GGUF files of language models have llama.cpp's names. ComfyUI's file of Z-Image's encoder has our own.
SF_NAMES(Qwen3Model, "llama_cpp") = llama_cpp();

}  // namespace
}  // namespace sf::models
