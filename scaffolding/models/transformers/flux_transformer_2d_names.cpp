#include "scaffolding/models/names/name_rules.h"

// Black Forest Labs' names of FLUX.1. diffusers' loaders/single_file_utils.py says which tensor is which.
namespace sf::models {

namespace {

NameRules embedder() { return NameRules().rename("linear_1", "in_layer").rename("linear_2", "out_layer"); }

// What picture and text have alike; `context` is what diffusers puts behind names of the text's.
void stream(NameRules& rules, const std::string& theirs, const std::string& context, const NameRules& attention) {
  rules.rename("norm1" + context + ".linear", theirs + "_mod.lin")
      .inside("attn", theirs + "_attn", attention)
      .rename("ff" + context + ".net.0.proj", theirs + "_mlp.0")
      .rename("ff" + context + ".net.2", theirs + "_mlp.2");
}

NameRules double_block() {
  NameRules rules;
  stream(rules, "img", "",
         NameRules()
             .join({"to_q", "to_k", "to_v"}, "qkv")
             .rename("norm_q.weight", "norm.query_norm.scale")
             .rename("norm_k.weight", "norm.key_norm.scale")
             .rename("to_out.0", "proj"));
  stream(rules, "txt", "_context",
         NameRules()
             .join({"add_q_proj", "add_k_proj", "add_v_proj"}, "qkv")
             .rename("norm_added_q.weight", "norm.query_norm.scale")
             .rename("norm_added_k.weight", "norm.key_norm.scale")
             .rename("to_add_out", "proj"));
  return rules;
}

NameRules single_block() {
  return NameRules()
      .rename("norm.linear", "modulation.lin")
      .join({"attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp"}, "linear1")
      .rename("attn.norm_q.weight", "norm.query_norm.scale")
      .rename("attn.norm_k.weight", "norm.key_norm.scale")
      .rename("proj_out", "linear2");
}

SF_NAMES(FluxTransformer2DModel, "bfl") = NameRules()
                                              .inside("time_text_embed.timestep_embedder", "time_in", embedder())
                                              .inside("time_text_embed.guidance_embedder", "guidance_in", embedder())
                                              .inside("time_text_embed.text_embedder", "vector_in", embedder())
                                              .rename("context_embedder", "txt_in")
                                              .rename("x_embedder", "img_in")
                                              .inside("transformer_blocks.{i}", "double_blocks.{i}", double_block())
                                              .inside("single_transformer_blocks.{i}", "single_blocks.{i}",
                                                      single_block())
                                              .swap_halves("norm_out.linear", "final_layer.adaLN_modulation.1")
                                              .rename("proj_out", "final_layer.linear");

}  // namespace
}  // namespace sf::models
