#include "scaffolding/models/unets/unet_2d_condition.h"

#include "scaffolding/core/error.h"
#include "scaffolding/core/stopping.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/models/parts/time_shifts.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

io::Fields UNet2DConditionConfig::fields() {
  return {{"sample_size", &sample_size},
          {"in_channels", &in_channels},
          {"out_channels", &out_channels},
          {"center_input_sample", &center_input_sample},
          {"flip_sin_to_cos", &flip_sin_to_cos},
          {"freq_shift", &freq_shift},
          {"down_block_types", &down_block_types},
          {"mid_block_type", &mid_block_type},
          {"up_block_types", &up_block_types},
          {"only_cross_attention", &only_cross_attention},
          {"block_out_channels", &block_out_channels},
          {"layers_per_block", &layers_per_block},
          {"downsample_padding", &downsample_padding},
          {"mid_block_scale_factor", &mid_block_scale_factor},
          {"dropout", &dropout},
          {"act_fn", &act_fn},
          {"norm_num_groups", &norm_num_groups},
          {"norm_eps", &norm_eps},
          {"cross_attention_dim", &cross_attention_dim},
          {"transformer_layers_per_block", &transformer_layers_per_block},
          {"reverse_transformer_layers_per_block", &reverse_transformer_layers_per_block},
          {"encoder_hid_dim", &encoder_hid_dim},
          {"encoder_hid_dim_type", &encoder_hid_dim_type},
          {"attention_head_dim", &attention_head_dim},
          {"num_attention_heads", &num_attention_heads},
          {"dual_cross_attention", &dual_cross_attention},
          {"use_linear_projection", &use_linear_projection},
          {"class_embed_type", &class_embed_type},
          {"addition_embed_type", &addition_embed_type},
          {"addition_time_embed_dim", &addition_time_embed_dim},
          {"num_class_embeds", &num_class_embeds},
          {"upcast_attention", &upcast_attention},
          {"resnet_time_scale_shift", &resnet_time_scale_shift},
          {"resnet_skip_time_act", &resnet_skip_time_act},
          {"resnet_out_scale_factor", &resnet_out_scale_factor},
          {"time_embedding_type", &time_embedding_type},
          {"time_embedding_dim", &time_embedding_dim},
          {"time_embedding_act_fn", &time_embedding_act_fn},
          {"timestep_post_act", &timestep_post_act},
          {"time_cond_proj_dim", &time_cond_proj_dim},
          {"conv_in_kernel", &conv_in_kernel},
          {"conv_out_kernel", &conv_out_kernel},
          {"projection_class_embeddings_input_dim", &projection_class_embeddings_input_dim},
          {"attention_type", &attention_type},
          {"class_embeddings_concat", &class_embeddings_concat},
          {"mid_block_only_cross_attention", &mid_block_only_cross_attention},
          {"cross_attention_norm", &cross_attention_norm},
          {"addition_embed_type_num_heads", &addition_embed_type_num_heads}};
}

namespace {

constexpr const char* kWho = UNet2DConditionModel::kName;
constexpr size_t kMostLevels = 16;

template <class T, class... U> void one_of(const char* field, const T& value, const U&... known) {
  SF_CHECK_AS(NotSupported, ((value == known) || ...), kWho, ": ", field, " '", value, "' is not supported");
}
template <class... U> void one_of(const char* field, const std::optional<std::string>& value, const U&... known) {
  if (value) one_of(field, *value, std::string(known)...);
}
void is(const char* field, bool value, bool supported) {
  SF_CHECK_AS(NotSupported, value == supported, kWho, ": ", field, "=", value, " is not supported");
}

UNet2DConditionConfig checked(UNet2DConditionConfig c) {
  const size_t levels = c.block_out_channels.size();
  SF_CHECK(levels > 0 && c.down_block_types.size() == levels && c.up_block_types.size() == levels, kWho,
           ": block_out_channels, down_block_types and up_block_types must have the same length, got ", levels, ", ",
           c.down_block_types.size(), " and ", c.up_block_types.size());
  for (auto& t : c.down_block_types) one_of("down_block_types", t, "CrossAttnDownBlock2D", "DownBlock2D");
  for (auto& t : c.up_block_types) one_of("up_block_types", t, "CrossAttnUpBlock2D", "UpBlock2D");
  one_of("mid_block_type", c.mid_block_type, "UNetMidBlock2DCrossAttn", "UNetMidBlock2D");
  one_of("act_fn", c.act_fn, "silu", "swish");
  one_of("class_embed_type", c.class_embed_type, "timestep", "identity", "projection", "simple_projection");
  one_of("addition_embed_type", c.addition_embed_type, "text", "text_time");
  one_of("encoder_hid_dim_type", c.encoder_hid_dim_type, "text_proj");
  one_of("resnet_time_scale_shift", c.resnet_time_scale_shift, "default", "scale_shift");
  one_of("time_embedding_type", c.time_embedding_type, "positional");
  one_of("attention_type", c.attention_type, "default");
  for (auto& [field, value] : {std::pair("time_embedding_act_fn", &c.time_embedding_act_fn),
                               {"timestep_post_act", &c.timestep_post_act},
                               {"cross_attention_norm", &c.cross_attention_norm}})
    SF_CHECK_AS(NotSupported, !*value, kWho, ": ", field, " '", value->value_or(""), "' is not supported");
  is("dual_cross_attention", c.dual_cross_attention, false);
  is("resnet_skip_time_act", c.resnet_skip_time_act, false);
  is("mid_block_only_cross_attention", c.mid_block_only_cross_attention.value_or(false), false);
  SF_CHECK_AS(NotSupported, c.resnet_out_scale_factor == 1, kWho,
              ": resnet_out_scale_factor=", c.resnet_out_scale_factor, " is not supported");
  SF_CHECK_AS(NotSupported, c.norm_num_groups, kWho, ": norm_num_groups must be a number, got None");
  SF_CHECK(*c.norm_num_groups > 0, kWho, ": norm_num_groups must be positive, got ", *c.norm_num_groups);
  SF_CHECK(c.in_channels > 0 && c.out_channels > 0, kWho, ": in_channels and out_channels must be positive, got ",
           c.in_channels, " and ", c.out_channels);
  SF_CHECK(levels <= kMostLevels, kWho, ": block_out_channels must have at most ", kMostLevels, " entries, got ",
           levels);
  for (int64_t n : c.block_out_channels)
    SF_CHECK(n > 0 && n <= kMostChannels && n % *c.norm_num_groups == 0, kWho,
             ": block_out_channels must be multiples of norm_num_groups=", *c.norm_num_groups, ", got ", n);
  SF_CHECK(!c.encoder_hid_dim_type || c.encoder_hid_dim, kWho, ": encoder_hid_dim_type needs encoder_hid_dim");
  if (c.encoder_hid_dim) c.encoder_hid_dim_type = "text_proj";
  bool projected = c.class_embed_type == "projection" || c.class_embed_type == "simple_projection" ||
                   c.addition_embed_type == "text_time";
  SF_CHECK(!projected || c.projection_class_embeddings_input_dim, kWho,
           ": class_embed_type and addition_embed_type need projection_class_embeddings_input_dim");
  SF_CHECK(c.addition_embed_type != "text_time" || c.addition_time_embed_dim, kWho,
           ": addition_embed_type 'text_time' needs addition_time_embed_dim");
  return c;
}

// The fields that are one number, or a list with one for each level.
struct Levels {
  std::vector<int64_t> layers, heads, cross_attention_dim, only_cross_attention;
  std::vector<io::Object> down_transformers, up_transformers;  // a number, or a list with one for each layer

  explicit Levels(const UNet2DConditionConfig& c) {
    const size_t n = c.block_out_channels.size();
    layers = io::ints_for_blocks(kWho, "layers_per_block", c.layers_per_block, n);
    const bool named = !c.num_attention_heads.is(io::Object::None);
    heads = io::ints_for_blocks(kWho, named ? "num_attention_heads" : "attention_head_dim",
                                named ? c.num_attention_heads : c.attention_head_dim, n);
    cross_attention_dim = io::ints_for_blocks(kWho, "cross_attention_dim", c.cross_attention_dim, n);
    only_cross_attention = io::ints_for_blocks(kWho, "only_cross_attention", c.only_cross_attention, n);
    const io::Object &down = c.transformer_layers_per_block, &up = c.reverse_transformer_layers_per_block;
    down_transformers = transformers("transformer_layers_per_block", down, n);
    if (up.is(io::Object::None)) {
      for (auto& level : down_transformers)
        SF_CHECK(!level.is_sequence(), kWho,
                 ": transformer_layers_per_block with a list for a level needs reverse_transformer_layers_per_block");
      up_transformers.assign(down_transformers.rbegin(), down_transformers.rend());
    } else {
      up_transformers = transformers("reverse_transformer_layers_per_block", up, n);
    }
    int64_t all_layers = 0;
    for (size_t i = 0; i < n; ++i) {
      SF_CHECK(layers[i] > 0 && (all_layers += layers[i]) <= kMostLayers, kWho,
               ": layers_per_block must be positive and at most ", kMostLayers, " over all blocks, got ", layers[i]);
      SF_CHECK(heads[i] > 0 && c.block_out_channels[i] % heads[i] == 0, kWho,
               ": block_out_channels must be multiples of the number of heads, got ", c.block_out_channels[i], " and ",
               heads[i]);
    }
  }
  static std::vector<io::Object> transformers(const char* field, const io::Object& value, size_t n) {
    if (!value.is_sequence()) return std::vector<io::Object>(n, value);
    SF_CHECK(value.items().size() == n, kWho, ": ", field, " must have one entry for each of the ", n, " levels, got ",
             value.items().size());
    return value.items();
  }
};

std::vector<int64_t> layers_of(const char* field, const io::Object& level, int64_t layers) {
  std::vector<int64_t> out = io::ints_for_blocks(kWho, field, level, size_t(layers));
  int64_t all = 0;
  for (int64_t n : out)
    SF_CHECK(n >= 0 && n <= kMostLayers && (all += n) <= kMostLayers, kWho, ": ", field, " must be from 0 to ",
             kMostLayers, " over all layers of a block, got ", n);
  return out;
}

int64_t time_embed_dim(const UNet2DConditionConfig& c) {
  return c.time_embedding_dim.value_or(4 * c.block_out_channels[0]);
}

UNetBlockOptions block_options(const UNet2DConditionConfig& c, const Levels& levels, size_t level) {
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

nn::ConvOptions same_size(int64_t kernel) { return {.padding = nn::Ints((kernel - 1) / 2).values}; }

Shape spatial(const Tensor& t) { return {t.size(2), t.size(3)}; }

}  // namespace

UNet2DConditionModel::UNet2DConditionModel(Config config)
    : ConfiguredModel(checked(std::move(config))),
      conv_in(options.in_channels, options.block_out_channels[0], options.conv_in_kernel,
              same_size(options.conv_in_kernel)),
      time_embedding(options.block_out_channels[0], time_embed_dim(options), options.time_cond_proj_dim),
      class_embedding(make_class_embedding(options)),
      conv_norm_out(*options.norm_num_groups, options.block_out_channels[0], options.norm_eps),
      conv_out(options.block_out_channels[0], options.out_channels, options.conv_out_kernel,
               same_size(options.conv_out_kernel)) {
  const auto& c = options;
  const Levels levels(c);
  const auto& channels = c.block_out_channels;
  const size_t n = channels.size(), last = n - 1;
  if (c.encoder_hid_dim) encoder_hid_proj.emplace(*c.encoder_hid_dim, levels.cross_attention_dim[0]);
  if (c.addition_embed_type == "text_time") {
    add_embedding = std::make_shared<TimestepEmbedding>(*c.projection_class_embeddings_input_dim, time_embed_dim(c));
  } else if (c.addition_embed_type == "text") {
    add_embedding = std::make_shared<TextTimeEmbedding>(c.encoder_hid_dim.value_or(levels.cross_attention_dim[0]),
                                                        time_embed_dim(c), c.addition_embed_type_num_heads);
  }
  for (size_t i = 0; i < n; ++i) {
    UNetBlockOptions o = block_options(c, levels, i);
    o.in_channels = channels[i == 0 ? 0 : i - 1], o.out_channels = channels[i];
    o.num_layers = levels.layers[i];
    o.resample = i != last;
    if (c.down_block_types[i] == "DownBlock2D") {
      down_blocks.emplace_back<DownBlock2D>(o);
    } else {
      o.transformer_layers = layers_of("transformer_layers_per_block", levels.down_transformers[i], o.num_layers);
      down_blocks.emplace_back<CrossAttnDownBlock2D>(o);
    }
  }
  if (c.mid_block_type) {
    UNetBlockOptions o = block_options(c, levels, last);
    o.in_channels = o.out_channels = channels[last];
    o.output_scale_factor = c.mid_block_scale_factor;
    o.only_cross_attention = false;
    // diffusers' UNetMidBlock2D is made with no layers either: one residual block
    o.num_layers = *c.mid_block_type == "UNetMidBlock2D" ? 0 : 1;
    if (o.num_layers > 0) {
      const io::Object& level = levels.down_transformers[last];
      o.transformer_layers = layers_of("transformer_layers_per_block",
                                       level.is_sequence() && !level.items().empty() ? level.items()[0] : level, 1);
    }
    mid_block.emplace(o);
  }
  for (size_t i = 0; i < n; ++i) {
    const size_t level = last - i;
    UNetBlockOptions o = block_options(c, levels, level);
    o.in_channels = channels[i == 0 ? last : level + 1], o.out_channels = channels[level],
    o.skip_channels = channels[level == 0 ? 0 : level - 1];
    o.num_layers = levels.layers[level] + 1;
    o.resample = i != last;
    if (c.up_block_types[i] == "UpBlock2D") {
      up_blocks.emplace_back<UpBlock2D>(o);
    } else {
      o.transformer_layers = layers_of("reverse_transformer_layers_per_block", levels.up_transformers[i], o.num_layers);
      up_blocks.emplace_back<CrossAttnUpBlock2D>(o);
    }
  }
}

TimestepOptions UNet2DConditionModel::timestep_options() const {
  return {.flip_sin_to_cos = options.flip_sin_to_cos, .downscale_freq_shift = double(options.freq_shift)};
}

// What the residual blocks are told: timestep, class, sizes and pooled text in one vector a sample.
Tensor UNet2DConditionModel::embed(const Tensor& sample, const Tensor& timestep, const Tensor& class_labels,
                                   const Tensor& timestep_cond, const Tensor& encoder_hidden_states,
                                   const Tensor& text_embeds, const Tensor& time_ids) const {
  const int64_t batch = sample.size(0), width = options.block_out_channels[0];
  SF_CHECK(timestep.ndim() == 0 || (timestep.ndim() == 1 && (timestep.size(0) == 1 || timestep.size(0) == batch)),
           kName, ": timestep must be one number or one for each of ", batch, " samples, got ", timestep.shape());
  // One row for all samples where nothing but the time is told: their shifts are then biases.
  const bool alike = TimeShifts::are_joined_on(sample.device()) && timestep.numel() == 1 && !timestep_cond &&
                     !class_embedding && !add_embedding;
  Tensor steps = (timestep.ndim() ? timestep : timestep.unsqueeze(0)).expand({alike ? 1 : batch});
  SF_CHECK(!timestep_cond || time_embedding.cond_proj, kName,
           ": timestep_cond is given, but the config has no time_cond_proj_dim");
  Tensor emb = time_embedding(timestep_embedding(steps, width, timestep_options()).to(sample.dtype()), timestep_cond);
  if (class_embedding) {
    SF_CHECK(class_labels, kName, ": needs class_labels, since its config has a class embedding");
    Tensor labels = class_labels;
    if (options.class_embed_type == "timestep")
      labels = timestep_embedding(labels, width, timestep_options()).to(sample.dtype());
    Tensor y = std::get<Tensor>(class_embedding->call({labels})).to(sample.dtype());
    emb = options.class_embeddings_concat ? cat({emb, y}, -1) : emb + y;
  } else {
    SF_CHECK(!class_labels, kName, ": class_labels are given, but the config has no class embedding");
  }
  if (options.addition_embed_type == "text") {
    SF_CHECK(encoder_hidden_states, kName, ": addition_embed_type 'text' needs encoder_hidden_states");
    emb = emb + std::get<Tensor>(add_embedding->call({encoder_hidden_states.to(emb.dtype())}));
  } else if (add_embedding) {
    SF_CHECK(text_embeds && time_ids, kName,
             ": addition_embed_type 'text_time' needs text_embeds and time_ids in added_cond_kwargs");
    SF_CHECK(text_embeds.ndim() == 2 && text_embeds.size(0) == batch, kName, ": text_embeds must be [", batch,
             ", dim], got ", text_embeds.shape());
    SF_CHECK(time_ids.ndim() == 2 && time_ids.size(0) == batch, kName, ": time_ids must be [", batch, ", n], got ",
             time_ids.shape());
    Tensor sizes = timestep_embedding(time_ids.flatten(), *options.addition_time_embed_dim, timestep_options())
                       .reshape({batch, -1});
    SF_CHECK(text_embeds.size(1) + sizes.size(1) == *options.projection_class_embeddings_input_dim, kName,
             ": text_embeds ", text_embeds.shape(), " and time_ids ", time_ids.shape(), " make ",
             text_embeds.size(1) + sizes.size(1), " channels, the config's projection_class_embeddings_input_dim is ",
             *options.projection_class_embeddings_input_dim);
    emb = emb + std::get<Tensor>(add_embedding->call({cat({text_embeds.to(emb.dtype()), sizes.to(emb.dtype())}, -1)}));
  }
  return emb;
}

std::vector<const ResnetBlock2D*> UNet2DConditionModel::timed_blocks() const {
  std::vector<const ResnetBlock2D*> blocks;
  auto add = [&](const UNetBlock& block) {
    for (auto& resnet : block.resnets) blocks.push_back(&resnet);
  };
  for (auto& block : down_blocks) add(block);
  if (mid_block) add(*mid_block);
  for (auto& block : up_blocks) add(block);
  return blocks;
}

bool UNet2DConditionModel::pack() { return TimeShifts::pack(timed_blocks()); }

Tensors UNet2DConditionModel::read_below() const {
  Tensors all;
  for (const ResnetBlock2D* block : timed_blocks())
    if (block->time_emb_proj)
      all.insert(all.end(), {block->time_emb_proj->weight, block->time_emb_proj->bias, block->conv1.bias});
  return all;
}

Tensor UNet2DConditionModel::forward(const Tensor& input, const Tensor& timestep, const Tensor& encoder_hidden_states,
                                     const Tensor& class_labels, const Tensor& timestep_cond,
                                     const Tensor& attention_mask, const Tensor& encoder_attention_mask,
                                     const Tensor& text_embeds, const Tensor& time_ids, const Tensors& control_down,
                                     const Tensor& control_mid, const Tensors& adapter) const {
  SF_CHECK(input && input.ndim() == 4 && input.size(1) == options.in_channels, kName, ": sample must be [B, ",
           options.in_channels, ", H, W], got ", input ? input.shape() : Shape());
  SF_CHECK(timestep, kName, ": needs a timestep");
  SF_CHECK(
      !encoder_hidden_states || (encoder_hidden_states.ndim() == 3 && encoder_hidden_states.size(0) == input.size(0)),
      kName, ": encoder_hidden_states must be [", input.size(0), ", tokens, channels], got ",
      encoder_hidden_states.shape());
  SF_CHECK(control_down.empty() == !control_mid, kName,
           ": down_block_additional_residuals and mid_block_additional_residual come together");
  const Tensor mask = attention_bias(kName, "attention_mask", attention_mask, input.dtype());
  const Tensor context_mask = attention_bias(kName, "encoder_attention_mask", encoder_attention_mask, input.dtype());
  const Tensor emb = embed(input, timestep, class_labels, timestep_cond, encoder_hidden_states, text_embeds, time_ids);
  const TimeShifts shifts(emb, timed_blocks());
  const Tensor context =
      encoder_hid_proj ? project_text(*encoder_hid_proj, encoder_hidden_states) : encoder_hidden_states;

  // Channels last from here on, so that pixels are tokens without a copy.
  Tensor h = conv_in(to_channels_last(options.center_input_sample ? 2 * input - 1 : input));
  Tensors skips{h};
  size_t adapted = 0;
  for (auto& block : down_blocks) {
    stop_here(kName);
    // diffusers adds behind the last attention, or else behind the downsampler
    const bool inside = !block.attentions.empty();
    const Tensor extra = adapted < adapter.size() ? adapter[adapted++] : Tensor();
    Tensors out = block(h, emb, context, mask, context_mask, inside ? extra : Tensor());
    if (extra && !inside) out.back() = out.back() + extra;
    h = out.back();
    skips.insert(skips.end(), out.begin(), out.end());
  }
  if (control_mid) {
    SF_CHECK(control_down.size() == skips.size(), kName, ": needs ", skips.size(),
             " down_block_additional_residuals, got ", control_down.size());
    for (size_t i = 0; i < skips.size(); ++i) skips[i] = skips[i] + control_down[i];
  }
  if (mid_block) {
    stop_here(kName);
    h = (*mid_block)(h, emb, context, mask, context_mask);
    if (adapted < adapter.size() && adapter[adapted].shape() == h.shape()) h = h + adapter[adapted++];
  }
  SF_CHECK(adapted == adapter.size(), kName, ": takes ", adapted, " down_intrablock_additional_residuals here, got ",
           adapter.size());
  if (control_mid) h = h + control_mid;
  for (auto& block : up_blocks) {
    stop_here(kName);
    const size_t n = block.resnets.size();
    Tensors taken(skips.end() - int64_t(n), skips.end());
    skips.erase(skips.end() - int64_t(n), skips.end());
    // An odd size was rounded up on the way down: the skips know what it was.
    h = block(h, taken, emb, context, skips.empty() ? Shape() : spatial(skips.back()), mask, context_mask);
  }
  h = conv_out(norm_silu(conv_norm_out, h));
  return input.is_contiguous() ? contiguous(h) : h;
}

SF_MODEL(UNet2DConditionModel)
    .doc(
        "diffusers' UNet2DConditionModel, the denoiser of Stable Diffusion 1.x, 2.x and XL: latents [B, C, H, W] at a "
        "timestep, with text [B, M, D].")
    .forward<&UNet2DConditionModel::forward>(
        "sample, timestep, encoder_hidden_states, class_labels=None, timestep_cond=None, attention_mask=None, "
        "encoder_attention_mask=None, text_embeds=None, "
        "time_ids=None, down_block_additional_residuals=[], mid_block_additional_residual=None, "
        "down_intrablock_additional_residuals=[]");

}  // namespace sf::models
