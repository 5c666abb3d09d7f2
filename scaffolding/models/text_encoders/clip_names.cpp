#include "scaffolding/models/names/name_rules.h"

namespace sf::models {

namespace {

// OpenCLIP's text tower: PyTorch's nn.MultiheadAttention, and a projection that is multiplied from the other side.
void open_clip(const TensorList&, NameRules& rules) {
  const NameRules layer =
      NameRules()
          .join({"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
                "attn.in_proj_weight")
          .join({"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"}, "attn.in_proj_bias")
          .rename("self_attn.out_proj", "attn.out_proj")
          .rename("layer_norm1", "ln_1")
          .rename("mlp.fc1", "mlp.c_fc")
          .rename("mlp.fc2", "mlp.c_proj")
          .rename("layer_norm2", "ln_2");
  rules.rename("text_model.embeddings.token_embedding", "token_embedding")
      .rename("text_model.embeddings.position_embedding.weight", "positional_embedding")
      .inside("text_model.encoder.layers.{i}", "transformer.resblocks.{i}", layer)
      .rename("text_model.final_layer_norm", "ln_final")
      .rename("text_projection.weight", "text_projection", NameChange::Transposed);
}

SF_NAMES(CLIPTextModel, "open_clip").with(open_clip);
SF_NAMES(CLIPTextModelWithProjection, "open_clip").with(open_clip);

// Programs of 2022, and adapters, leave the name of the outermost module away.
SF_NAMES(CLIPTextModel, "text_model").rename("text_model", "");
SF_NAMES(CLIPTextModelWithProjection, "text_model").rename("text_model", "").same({"text_projection"});

}  // namespace
}  // namespace sf::models
