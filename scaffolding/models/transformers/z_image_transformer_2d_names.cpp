#include "scaffolding/models/names/name_rules.h"

// The names that Z-Image's own checkpoints have, as ComfyUI and GGUF files keep them: Lumina's, with one product for
// queries, keys and values.
namespace sf::models {

namespace {

NameRules z_image() {
  NameRules rules;
  rules.rename("all_x_embedder.2-1", "x_embedder")
      .rename("all_final_layer.2-1", "final_layer")
      .same({"t_embedder", "cap_embedder", "x_pad_token", "cap_pad_token"});
  for (const std::string blocks : {"noise_refiner", "context_refiner", "layers"}) {
    const std::string block = blocks + ".{i}.", attention = block + "attention.";
    rules.rename(blocks, blocks)
        .join({attention + "to_q", attention + "to_k", attention + "to_v"}, attention + "qkv")
        .rename(attention + "norm_q", attention + "q_norm")
        .rename(attention + "norm_k", attention + "k_norm")
        .rename(attention + "to_out.0", attention + "out");
  }
  return rules;
}

SF_NAMES(ZImageTransformer2DModel, "z_image") = z_image();

}  // namespace
}  // namespace sf::models
