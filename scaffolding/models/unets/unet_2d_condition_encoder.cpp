#include "scaffolding/models/unets/unet_2d_condition_encoder.h"

#include "scaffolding/core/error.h"
#include "scaffolding/models/parts/time_shifts.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

constexpr size_t kMostLevels = 16;

template <class T, class... U> void one_of(const char* who, const char* field, const T& value, const U&... known) {
  SF_CHECK_AS(NotSupported, ((value == known) || ...), who, ": ", field, " '", value, "' is not supported");
}
template <class... U>
void one_of(const char* who, const char* field, const std::optional<std::string>& value, const U&... known) {
  if (value) one_of(who, field, *value, std::string(known)...);
}
void is(const char* who, const char* field, bool value, bool supported) {
  SF_CHECK_AS(NotSupported, value == supported, who, ": ", field, "=", value, " is not supported");
}

std::vector<io::Object> transformers(const char* who, const char* field, const io::Object& value, size_t n) {
  if (!value.is_sequence()) return std::vector<io::Object>(n, value);
  SF_CHECK(value.items().size() == n, who, ": ", field, " must have one entry for each of the ", n, " levels, got ",
           value.items().size());
  return value.items();
}

std::shared_ptr<nn::Module> make_class_embedding(const UNet2DConditionConfig& c) {
  const int64_t dim = time_embed_dim(c);
  if (!c.class_embed_type)
    return c.num_class_embeds ? std::make_shared<nn::Embedding>(*c.num_class_embeds, dim) : nullptr;
  if (*c.class_embed_type == "timestep") return std::make_shared<TimestepEmbedding>(c.block_out_channels[0], dim);
  if (*c.class_embed_type == "projection")
    return std::make_shared<TimestepEmbedding>(*c.projection_class_embeddings_input_dim, dim);
  if (*c.class_embed_type == "simple_projection")
    return std::make_shared<nn::Linear>(*c.projection_class_embeddings_input_dim, dim);
  return std::make_shared<nn::Identity>();
}

}  // namespace

UNet2DConditionConfig checked_unet_config(const char* who, UNet2DConditionConfig c) {
  const size_t levels = c.block_out_channels.size();
  SF_CHECK(levels > 0 && c.down_block_types.size() == levels && c.up_block_types.size() == levels, who,
           ": block_out_channels, down_block_types and up_block_types must have the same length, got ", levels, ", ",
           c.down_block_types.size(), " and ", c.up_block_types.size());
  for (auto& t : c.down_block_types) one_of(who, "down_block_types", t, "CrossAttnDownBlock2D", "DownBlock2D");
  for (auto& t : c.up_block_types) one_of(who, "up_block_types", t, "CrossAttnUpBlock2D", "UpBlock2D");
  one_of(who, "mid_block_type", c.mid_block_type, "UNetMidBlock2DCrossAttn", "UNetMidBlock2D");
  one_of(who, "act_fn", c.act_fn, "silu", "swish");
  one_of(who, "class_embed_type", c.class_embed_type, "timestep", "identity", "projection", "simple_projection");
  one_of(who, "addition_embed_type", c.addition_embed_type, "text", "text_time");
  one_of(who, "encoder_hid_dim_type", c.encoder_hid_dim_type, "text_proj");
  one_of(who, "resnet_time_scale_shift", c.resnet_time_scale_shift, "default", "scale_shift");
  one_of(who, "time_embedding_type", c.time_embedding_type, "positional");
  one_of(who, "attention_type", c.attention_type, "default");
  for (auto& [field, value] : {std::pair("time_embedding_act_fn", &c.time_embedding_act_fn),
                               {"timestep_post_act", &c.timestep_post_act},
                               {"cross_attention_norm", &c.cross_attention_norm}})
    SF_CHECK_AS(NotSupported, !*value, who, ": ", field, " '", value->value_or(""), "' is not supported");
  is(who, "dual_cross_attention", c.dual_cross_attention, false);
  is(who, "resnet_skip_time_act", c.resnet_skip_time_act, false);
  is(who, "mid_block_only_cross_attention", c.mid_block_only_cross_attention.value_or(false), false);
  SF_CHECK_AS(NotSupported, c.resnet_out_scale_factor == 1, who,
              ": resnet_out_scale_factor=", c.resnet_out_scale_factor, " is not supported");
  SF_CHECK_AS(NotSupported, c.norm_num_groups, who, ": norm_num_groups must be a number, got None");
  SF_CHECK(*c.norm_num_groups > 0, who, ": norm_num_groups must be positive, got ", *c.norm_num_groups);
  SF_CHECK(c.in_channels > 0 && c.out_channels > 0, who, ": in_channels and out_channels must be positive, got ",
           c.in_channels, " and ", c.out_channels);
  SF_CHECK(levels <= kMostLevels, who, ": block_out_channels must have at most ", kMostLevels, " entries, got ",
           levels);
  for (int64_t n : c.block_out_channels)
    SF_CHECK(n > 0 && n <= kMostChannels && n % *c.norm_num_groups == 0, who,
             ": block_out_channels must be multiples of norm_num_groups=", *c.norm_num_groups, ", got ", n);
  SF_CHECK(!c.encoder_hid_dim_type || c.encoder_hid_dim, who, ": encoder_hid_dim_type needs encoder_hid_dim");
  if (c.encoder_hid_dim) c.encoder_hid_dim_type = "text_proj";
  bool projected = c.class_embed_type == "projection" || c.class_embed_type == "simple_projection" ||
                   c.addition_embed_type == "text_time";
  SF_CHECK(!projected || c.projection_class_embeddings_input_dim, who,
           ": class_embed_type and addition_embed_type need projection_class_embeddings_input_dim");
  SF_CHECK(c.addition_embed_type != "text_time" || c.addition_time_embed_dim, who,
           ": addition_embed_type 'text_time' needs addition_time_embed_dim");
  return c;
}

UNetLevels::UNetLevels(const char* who, const UNet2DConditionConfig& c) {
  const size_t n = c.block_out_channels.size();
  layers = io::ints_for_blocks(who, "layers_per_block", c.layers_per_block, n);
  const bool named = !c.num_attention_heads.is(io::Object::None);
  heads = io::ints_for_blocks(who, named ? "num_attention_heads" : "attention_head_dim",
                              named ? c.num_attention_heads : c.attention_head_dim, n);
  cross_attention_dim = io::ints_for_blocks(who, "cross_attention_dim", c.cross_attention_dim, n);
  only_cross_attention = io::ints_for_blocks(who, "only_cross_attention", c.only_cross_attention, n);
  const io::Object &down = c.transformer_layers_per_block, &up = c.reverse_transformer_layers_per_block;
  down_transformers = transformers(who, "transformer_layers_per_block", down, n);
  if (up.is(io::Object::None)) {
    for (auto& level : down_transformers)
      SF_CHECK(!level.is_sequence(), who,
               ": transformer_layers_per_block with a list for a level needs reverse_transformer_layers_per_block");
    up_transformers.assign(down_transformers.rbegin(), down_transformers.rend());
  } else {
    up_transformers = transformers(who, "reverse_transformer_layers_per_block", up, n);
  }
  int64_t all_layers = 0;
  for (size_t i = 0; i < n; ++i) {
    SF_CHECK(layers[i] > 0 && (all_layers += layers[i]) <= kMostLayers, who,
             ": layers_per_block must be positive and at most ", kMostLayers, " over all blocks, got ", layers[i]);
    SF_CHECK(heads[i] > 0 && c.block_out_channels[i] % heads[i] == 0, who,
             ": block_out_channels must be multiples of the number of heads, got ", c.block_out_channels[i], " and ",
             heads[i]);
  }
}
std::vector<int64_t> transformer_layers_of(const char* who, const char* field, const io::Object& level,
                                           int64_t layers) {
  std::vector<int64_t> out = io::ints_for_blocks(who, field, level, size_t(layers));
  int64_t all = 0;
  for (int64_t n : out)
    SF_CHECK(n >= 0 && n <= kMostLayers && (all += n) <= kMostLayers, who, ": ", field, " must be from 0 to ",
             kMostLayers, " over all layers of a block, got ", n);
  return out;
}

int64_t time_embed_dim(const UNet2DConditionConfig& c) {
  return c.time_embedding_dim.value_or(4 * c.block_out_channels[0]);
}

UNetBlockOptions unet_block_options(const UNet2DConditionConfig& c, const UNetLevels& levels, size_t level) {
  return {.temb_channels = time_embed_dim(c) * (c.class_embeddings_concat ? 2 : 1),
          .downsample_padding = c.downsample_padding,
          .groups = *c.norm_num_groups,
          .eps = c.norm_eps,
          .dropout = c.dropout,
          .scale_shift = c.resnet_time_scale_shift == "scale_shift",
          .num_attention_heads = levels.heads[level],
          .cross_attention_dim = levels.cross_attention_dim[level],
          .use_linear_projection = c.use_linear_projection,
          .only_cross_attention = levels.only_cross_attention[level] != 0,
          .upcast_attention = c.upcast_attention};
}

nn::ConvOptions conv_of_same_size(int64_t kernel) { return {.padding = nn::Ints((kernel - 1) / 2).values}; }

UNet2DConditionEncoder::UNet2DConditionEncoder(const char* who, const UNet2DConditionConfig& c)
    : conv_in(c.in_channels, c.block_out_channels[0], c.conv_in_kernel, conv_of_same_size(c.conv_in_kernel)),
      time_embedding(c.block_out_channels[0], time_embed_dim(c), c.time_cond_proj_dim),
      class_embedding(make_class_embedding(c)),
      who_(who),
      config_(c) {
  const UNetLevels levels(who, c);
  const auto& channels = c.block_out_channels;
  const size_t n = channels.size(), last = n - 1;
  if (c.addition_embed_type == "text_time") {
    add_embedding = std::make_shared<TimestepEmbedding>(*c.projection_class_embeddings_input_dim, time_embed_dim(c));
  } else if (c.addition_embed_type == "text") {
    add_embedding = std::make_shared<TextTimeEmbedding>(c.encoder_hid_dim.value_or(levels.cross_attention_dim[0]),
                                                        time_embed_dim(c), c.addition_embed_type_num_heads);
  }
  for (size_t i = 0; i < n; ++i) {
    UNetBlockOptions o = unet_block_options(c, levels, i);
    o.in_channels = channels[i == 0 ? 0 : i - 1], o.out_channels = channels[i];
    o.num_layers = levels.layers[i];
    o.resample = i != last;
    if (c.down_block_types[i] == "DownBlock2D") {
      down_blocks.emplace_back<DownBlock2D>(o);
    } else {
      o.transformer_layers =
          transformer_layers_of(who, "transformer_layers_per_block", levels.down_transformers[i], o.num_layers);
      down_blocks.emplace_back<CrossAttnDownBlock2D>(o);
    }
  }
  if (c.mid_block_type) {
    UNetBlockOptions o = unet_block_options(c, levels, last);
    o.in_channels = o.out_channels = channels[last];
    o.output_scale_factor = c.mid_block_scale_factor;
    o.only_cross_attention = false;
    // diffusers' UNetMidBlock2D is made with no layers either: one residual block
    o.num_layers = *c.mid_block_type == "UNetMidBlock2D" ? 0 : 1;
    if (o.num_layers > 0) {
      const io::Object& level = levels.down_transformers[last];
      o.transformer_layers =
          transformer_layers_of(who, "transformer_layers_per_block",
                                level.is_sequence() && !level.items().empty() ? level.items()[0] : level, 1);
    }
    mid_block.emplace(o);
  }
}

std::vector<const ResnetBlock2D*> UNet2DConditionEncoder::timed_blocks() const {
  std::vector<const ResnetBlock2D*> blocks;
  auto add = [&](const UNetBlock& block) {
    for (auto& resnet : block.resnets) blocks.push_back(&resnet);
  };
  for (auto& block : down_blocks) add(block);
  if (mid_block) add(*mid_block);
  return blocks;
}

bool UNet2DConditionEncoder::pack() { return TimeShifts::pack(timed_blocks()); }

Tensors UNet2DConditionEncoder::read_below() const {
  Tensors all;
  for (const ResnetBlock2D* block : timed_blocks())
    if (block->time_emb_proj)
      all.insert(all.end(), {block->time_emb_proj->weight, block->time_emb_proj->bias, block->conv1.bias});
  return all;
}

void UNet2DConditionEncoder::check_inputs(const Tensor& input, const Tensor& timestep,
                                          const Tensor& encoder_hidden_states) const {
  SF_CHECK(input && input.ndim() == 4 && input.size(1) == config_.in_channels, who_, ": sample must be [B, ",
           config_.in_channels, ", H, W], got ", input ? input.shape() : Shape());
  SF_CHECK(timestep, who_, ": needs a timestep");
  SF_CHECK(
      !encoder_hidden_states || (encoder_hidden_states.ndim() == 3 && encoder_hidden_states.size(0) == input.size(0)),
      who_, ": encoder_hidden_states must be [", input.size(0), ", tokens, channels], got ",
      encoder_hidden_states.shape());
}

Tensor UNet2DConditionEncoder::embed(const Tensor& sample, const Tensor& timestep, const Tensor& class_labels,
                                     const Tensor& timestep_cond, const Tensor& encoder_hidden_states,
                                     const Tensor& text_embeds, const Tensor& time_ids) const {
  const TimestepOptions timesteps{.flip_sin_to_cos = config_.flip_sin_to_cos,
                                  .downscale_freq_shift = double(config_.freq_shift)};
  const int64_t batch = sample.size(0), width = config_.block_out_channels[0];
  SF_CHECK(timestep.ndim() == 0 || (timestep.ndim() == 1 && (timestep.size(0) == 1 || timestep.size(0) == batch)), who_,
           ": timestep must be one number or one for each of ", batch, " samples, got ", timestep.shape());
  // One row for all samples where nothing but the time is told: their shifts are then biases.
  const bool alike = TimeShifts::are_joined_on(sample.device()) && timestep.numel() == 1 && !timestep_cond &&
                     !class_embedding && !add_embedding;
  Tensor steps = (timestep.ndim() ? timestep : timestep.unsqueeze(0)).expand({alike ? 1 : batch});
  SF_CHECK(!timestep_cond || time_embedding.cond_proj, who_,
           ": timestep_cond is given, but the config has no time_cond_proj_dim");
  Tensor emb = time_embedding(timestep_embedding(steps, width, timesteps).to(sample.dtype()), timestep_cond);
  if (class_embedding) {
    SF_CHECK(class_labels, who_, ": needs class_labels, since its config has a class embedding");
    Tensor labels = class_labels;
    if (config_.class_embed_type == "timestep")
      labels = timestep_embedding(labels, width, timesteps).to(sample.dtype());
    Tensor y = std::get<Tensor>(class_embedding->call({labels})).to(sample.dtype());
    emb = config_.class_embeddings_concat ? cat({emb, y}, -1) : emb + y;
  } else {
    SF_CHECK(!class_labels, who_, ": class_labels are given, but the config has no class embedding");
  }
  if (config_.addition_embed_type == "text") {
    SF_CHECK(encoder_hidden_states, who_, ": addition_embed_type 'text' needs encoder_hidden_states");
    emb = emb + std::get<Tensor>(add_embedding->call({encoder_hidden_states.to(emb.dtype())}));
  } else if (add_embedding) {
    SF_CHECK(text_embeds && time_ids, who_,
             ": addition_embed_type 'text_time' needs text_embeds and time_ids in added_cond_kwargs");
    SF_CHECK(text_embeds.ndim() == 2 && text_embeds.size(0) == batch, who_, ": text_embeds must be [", batch,
             ", dim], got ", text_embeds.shape());
    SF_CHECK(time_ids.ndim() == 2 && time_ids.size(0) == batch, who_, ": time_ids must be [", batch, ", n], got ",
             time_ids.shape());
    Tensor sizes =
        timestep_embedding(time_ids.flatten(), *config_.addition_time_embed_dim, timesteps).reshape({batch, -1});
    SF_CHECK(text_embeds.size(1) + sizes.size(1) == *config_.projection_class_embeddings_input_dim, who_,
             ": text_embeds ", text_embeds.shape(), " and time_ids ", time_ids.shape(), " make ",
             text_embeds.size(1) + sizes.size(1), " channels, the config's projection_class_embeddings_input_dim is ",
             *config_.projection_class_embeddings_input_dim);
    emb = emb + std::get<Tensor>(add_embedding->call({cat({text_embeds.to(emb.dtype()), sizes.to(emb.dtype())}, -1)}));
  }
  return emb;
}

}  // namespace sf::models
