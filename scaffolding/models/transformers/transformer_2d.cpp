#include "scaffolding/models/transformers/transformer_2d.h"

#include <algorithm>

#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

io::Fields Transformer2DConfig::fields() {
  return {{"num_attention_heads", &num_attention_heads},
          {"attention_head_dim", &attention_head_dim},
          {"in_channels", &in_channels},
          {"out_channels", &out_channels},
          {"num_layers", &num_layers},
          {"dropout", &dropout},
          {"norm_num_groups", &norm_num_groups},
          {"cross_attention_dim", &cross_attention_dim},
          {"attention_bias", &attention_bias},
          {"sample_size", &sample_size},
          {"num_vector_embeds", &num_vector_embeds},
          {"patch_size", &patch_size},
          {"activation_fn", &activation_fn},
          {"num_embeds_ada_norm", &num_embeds_ada_norm},
          {"use_linear_projection", &use_linear_projection},
          {"only_cross_attention", &only_cross_attention},
          {"double_self_attention", &double_self_attention},
          {"upcast_attention", &upcast_attention},
          {"norm_type", &norm_type},
          {"norm_elementwise_affine", &norm_elementwise_affine},
          {"norm_eps", &norm_eps},
          {"attention_type", &attention_type},
          {"caption_channels", &caption_channels},
          {"interpolation_scale", &interpolation_scale},
          {"use_additional_conditions", &use_additional_conditions}};
}

namespace {
constexpr double kGroupNormEps = 1e-6;  // whatever norm_eps, which is the blocks'

Transformer2DConfig checked(Transformer2DConfig c) {
  const char* who = Transformer2DModel::kName;
  SF_CHECK_AS(NotSupported, !c.num_vector_embeds, who,
              ": inputs that are vector embeddings are not supported, got num_vector_embeds=", *c.num_vector_embeds);
  SF_CHECK_AS(NotSupported, !c.patch_size, who, ": patches are not supported here, got patch_size=", *c.patch_size,
              "; DiTTransformer2DModel works on them");
  SF_CHECK_AS(NotSupported, c.attention_type == "default", who, ": attention_type must be default, got '",
              c.attention_type, "'");
  SF_CHECK_AS(NotSupported, !c.caption_channels, who,
              ": caption_channels belongs to patches, which are not supported, got ", *c.caption_channels);
  SF_CHECK(c.in_channels, who, ": needs in_channels");
  check_sizes(who, {{"in_channels", *c.in_channels},
                    {"num_attention_heads", c.num_attention_heads},
                    {"attention_head_dim", c.attention_head_dim}});
  SF_CHECK(c.num_layers >= 0, who, ": num_layers must not be negative, got ", c.num_layers);
  SF_CHECK(c.num_layers <= kMostLayers, who, ": num_layers must be at most ", kMostLayers, ", got ", c.num_layers);
  SF_CHECK(!c.out_channels || *c.out_channels == *c.in_channels, who,
           ": out_channels must be in_channels, which are added to it, got ", *c.out_channels, " and ", *c.in_channels);
  if (c.norm_type == "layer_norm" && c.num_embeds_ada_norm) c.norm_type = "ada_norm";  // configs from before norm_type
  return c;
}
}  // namespace

Transformer2DModel::Transformer2DModel(Config config)
    : ConfiguredModel(checked(std::move(config))), norm(options.norm_num_groups, *options.in_channels, kGroupNormEps) {
  const auto& o = options;
  const int64_t channels = *o.in_channels, inner = token_channels(o);
  if (o.use_linear_projection) {
    linear_in.emplace(channels, inner);
  } else {
    conv_in.emplace(channels, inner, 1, nn::ConvOptions{});
  }
  for (int64_t i = 0; i < o.num_layers; ++i)
    transformer_blocks.emplace_back(kName, inner,
                                    TransformerBlockOptions{.num_attention_heads = o.num_attention_heads,
                                                            .attention_head_dim = o.attention_head_dim,
                                                            .dropout = o.dropout,
                                                            .cross_attention_dim = o.cross_attention_dim,
                                                            .activation_fn = o.activation_fn,
                                                            .num_embeds_ada_norm = o.num_embeds_ada_norm,
                                                            .attention_bias = o.attention_bias,
                                                            .only_cross_attention = o.only_cross_attention,
                                                            .double_self_attention = o.double_self_attention,
                                                            .upcast_attention = o.upcast_attention,
                                                            .norm_elementwise_affine = o.norm_elementwise_affine,
                                                            .norm_type = o.norm_type,
                                                            .norm_eps = o.norm_eps});
  if (o.use_linear_projection) {
    linear_out.emplace(inner, channels);
  } else {
    conv_out.emplace(inner, channels, 1, nn::ConvOptions{});
  }
}

void Transformer2DModel::visit(nn::Visitor& v) {
  const char* names = "norm, proj_in, transformer_blocks, proj_out";
  if (linear_in) visit_members(v, names, norm, linear_in, transformer_blocks, linear_out);
  else visit_members(v, names, norm, conv_in, transformer_blocks, conv_out);
}

Tensor Transformer2DModel::forward(const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                                   const Tensor& timestep, const Tensor& attention_mask,
                                   const Tensor& encoder_attention_mask) const {
  SF_CHECK(hidden_states.ndim() == 4 && hidden_states.size(1) == *options.in_channels, kName,
           ": hidden_states must be [B, ", *options.in_channels, ", H, W], got ", hidden_states.shape());
  const Shape sizes = hidden_states.shape();
  const Tensor mask = attention_bias(kName, "attention_mask", attention_mask, hidden_states.dtype());
  const Tensor encoder_mask =
      attention_bias(kName, "encoder_attention_mask", encoder_attention_mask, hidden_states.dtype());
  // a view where the picture is channels-last
  auto to_tokens = [](const Tensor& picture) { return picture.flatten(2).transpose(1, 2); };
  auto to_picture = [&](const Tensor& tokens) {
    return tokens.transpose(1, 2).reshape({sizes[0], tokens.size(2), sizes[2], sizes[3]});
  };
  Tensor h = norm(hidden_states);
  h = linear_in ? (*linear_in)(to_tokens(h)) : to_tokens((*conv_in)(h));
  for (auto& block : transformer_blocks) h = block(h, mask, encoder_hidden_states, encoder_mask, timestep);
  if (linear_out && hidden_states.is_contiguous(MemoryFormat::ChannelsLast))
    return to_picture(project(*linear_out, h, {.residual = to_tokens(hidden_states)}));
  return (linear_out ? to_picture((*linear_out)(h)) : (*conv_out)(to_picture(h))) + hidden_states;
}

io::Object without_unused_fields(const io::Object& config, const io::Fields& own) {
  if (!config.is_dict()) return config;
  Transformer2DConfig every;
  auto names = [](const io::Fields& fields, const io::Object& key) {
    return key.is(io::Object::String) &&
           std::any_of(fields.begin(), fields.end(), [&](auto& field) { return key.text() == field.name; });
  };
  auto says_nothing = [](const io::Object& value) {
    return value.is(io::Object::None) || (value.is(io::Object::Bool) && !value.as_bool()) ||
           (value.is(io::Object::String) && value.text() == "default");
  };
  const io::Fields all = every.fields();
  std::vector<io::Object> items;
  auto& have = config.items();
  for (size_t i = 0; i + 1 < have.size(); i += 2)
    if (!names(all, have[i]) || names(own, have[i]) || !says_nothing(have[i + 1]))
      items.insert(items.end(), {have[i], have[i + 1]});
  return io::Object::container(io::Object::Dict, std::move(items));
}

SF_MODEL(Transformer2DModel)
    .doc(
        "diffusers' Transformer2DModel: transformer blocks over the pixels of a picture [B, in_channels, H, W], beside "
        "a residual.")
    .forward<&Transformer2DModel::forward>(
        "hidden_states, encoder_hidden_states=None, timestep=None, attention_mask=None, encoder_attention_mask=None");

}  // namespace sf::models
