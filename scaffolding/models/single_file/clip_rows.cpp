#include "scaffolding/io/config.h"
#include "scaffolding/models/single_file/row_list.h"

namespace sf::models {

namespace {

struct ClipFields {
  int64_t vocab_size = 49408, hidden_size = 512, intermediate_size = 2048, projection_dim = 512, num_hidden_layers = 12, max_position_embeddings = 77;

  explicit ClipFields(const io::Object& config) {
    io::read_fields("CLIPTextModel",
                    {{"vocab_size", &vocab_size},
                     {"hidden_size", &hidden_size},
                     {"intermediate_size", &intermediate_size},
                     {"projection_dim", &projection_dim},
                     {"num_hidden_layers", &num_hidden_layers},
                     {"max_position_embeddings", &max_position_embeddings}},
                    config);
    SF_CHECK(hidden_size > 0 && num_hidden_layers > 0 && num_hidden_layers <= 1024,
             "CLIPTextModel: hidden_size must be positive and num_hidden_layers at most 1024, got ", hidden_size, " and ", num_hidden_layers);
  }
};

}  // namespace

KeyRows clip_rows(const io::Object& config, bool projection) {
  ClipFields f(config);
  RowList list;
  int64_t c = f.hidden_size;
  auto linear = [&](const std::string& name, int64_t out, int64_t in, bool bias = true) { list.linear(name, name, out, in, bias); };
  list.add("text_model.embeddings.token_embedding.weight", "text_model.embeddings.token_embedding.weight", {f.vocab_size, c});
  list.add("text_model.embeddings.position_embedding.weight", "text_model.embeddings.position_embedding.weight", {f.max_position_embeddings, c});
  for (int64_t i = 0; i < f.num_hidden_layers; ++i) {
    std::string layer = "text_model.encoder.layers." + std::to_string(i);
    for (const char* part : {".self_attn.q_proj", ".self_attn.k_proj", ".self_attn.v_proj", ".self_attn.out_proj"}) linear(layer + part, c, c);
    list.affine(layer + ".layer_norm1", layer + ".layer_norm1", c);
    linear(layer + ".mlp.fc1", f.intermediate_size, c);
    linear(layer + ".mlp.fc2", c, f.intermediate_size);
    list.affine(layer + ".layer_norm2", layer + ".layer_norm2", c);
  }
  list.affine("text_model.final_layer_norm", "text_model.final_layer_norm", c);
  if (projection) linear("text_projection", f.projection_dim, c, false);
  return std::move(list.rows);
}

KeyRows open_clip_rows(const io::Object& config, bool projection) {
  ClipFields f(config);
  RowList list;
  int64_t c = f.hidden_size;
  list.add("text_model.embeddings.token_embedding.weight", "token_embedding.weight", {f.vocab_size, c});
  list.add("text_model.embeddings.position_embedding.weight", "positional_embedding", {f.max_position_embeddings, c});
  for (int64_t i = 0; i < f.num_hidden_layers; ++i) {
    std::string layer = "text_model.encoder.layers." + std::to_string(i), source = "transformer.resblocks." + std::to_string(i);
    const char* const projections[] = {".self_attn.q_proj", ".self_attn.k_proj", ".self_attn.v_proj"};
    for (int part = 0; part < 3; ++part) {
      list.add(layer + projections[part] + ".weight", source + ".attn.in_proj_weight", {c, c}, KeyChange::Third, part);
      list.add(layer + projections[part] + ".bias", source + ".attn.in_proj_bias", {c}, KeyChange::Third, part);
    }
    list.linear(layer + ".self_attn.out_proj", source + ".attn.out_proj", c, c);
    list.affine(layer + ".layer_norm1", source + ".ln_1", c);
    list.linear(layer + ".mlp.fc1", source + ".mlp.c_fc", f.intermediate_size, c);
    list.linear(layer + ".mlp.fc2", source + ".mlp.c_proj", c, f.intermediate_size);
    list.affine(layer + ".layer_norm2", source + ".ln_2", c);
  }
  list.affine("text_model.final_layer_norm", "ln_final", c);
  if (projection) list.add("text_projection.weight", "text_projection", {f.projection_dim, c}, KeyChange::Transpose);
  return std::move(list.rows);
}

}  // namespace sf::models
