#include "scaffolding/models/unets/unet_3d_blocks.h"

#include <cmath>
#include <numeric>

#include "scaffolding/core/error.h"
#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/models/parts/embeddings.h"
#include "scaffolding/models/parts/resnet.h"
#include "scaffolding/nn/init.h"
#include "scaffolding/ops/ops.h"

namespace sf::models::video {

namespace {
constexpr double kEps = 1e-6;       // of group norms
constexpr int64_t kMostLevels = 8;  // a side is halved at each

nn::ConvOptions halving() { return {.stride = Shape{1, 2, 2}, .padding = Shape{0, 1, 1}}; }
}  // namespace

void begin_small(const Tensor& weight) {
  const double bound = 0.1 / std::sqrt(double(nn::init::calculate_fan_in_and_fan_out(weight).in));
  nn::init::uniform_(weight, -bound, bound);
}

nn::Conv3d conv_3x3x3(int64_t in_channels, int64_t out_channels) {
  return nn::Conv3d(in_channels, out_channels, 3, {.padding = 1});
}

void check_levels(const char* who, int64_t model_channels, const std::vector<int64_t>& channel_mult,
                  int64_t num_res_blocks, int64_t norm_num_groups) {
  check_sizes(who, {{"model_channels", model_channels}, {"norm_num_groups", norm_num_groups}});
  const auto levels = int64_t(channel_mult.size());
  SF_CHECK(levels > 0 && levels <= kMostLevels, who, ": channel_mult must have from 1 to ", kMostLevels,
           " entries, got ", levels);
  for (int64_t mult : channel_mult)
    SF_CHECK(mult > 0 && mult <= kMostChannels && mult * model_channels <= kMostChannels, who,
             ": channel_mult times model_channels must be between 1 and ", kMostChannels, ", got ", mult, " and ",
             model_channels);
  SF_CHECK(num_res_blocks > 0 && num_res_blocks <= kMostLayers / levels, who, ": num_res_blocks must be between 1 and ",
           kMostLayers / levels, ", got ", num_res_blocks);
  SF_CHECK(model_channels % norm_num_groups == 0, who, ": norm_num_groups must divide model_channels, got ",
           norm_num_groups, " and ", model_channels);
}

void check_heads(const char* who, int64_t num_heads, int64_t channels) {
  SF_CHECK(num_heads > 0 && channels % num_heads == 0, who, ": num_heads must divide the channels at hand, got ",
           num_heads, " and ", channels);
}

void check_video(const char* who, const char* name, const Tensor& video, int64_t channels, int64_t divisor) {
  check_defined(who, name, video);
  const Shape& shape = video.shape();
  SF_CHECK(shape.size() == 5 && shape[1] == channels && video.numel() > 0, who, ": ", name, " must be [B, ", channels,
           ", T, H, W], got ", shape);
  SF_CHECK(shape[3] % divisor == 0 && shape[4] % divisor == 0, who, ": height and width must be multiples of ", divisor,
           ", got ", shape[3], " and ", shape[4]);
}

// ---- VideoTimestepEmbedding

io::Fields VideoTimestepEmbeddingConfig::fields() {
  return {{"channels", &channels}, {"time_embed_dim", &time_embed_dim}};
}

namespace {
VideoTimestepEmbeddingConfig checked(VideoTimestepEmbeddingConfig c) {
  check_sizes(VideoTimestepEmbedding::kName, {{"channels", c.channels}, {"time_embed_dim", c.time_embed_dim}});
  SF_CHECK(c.channels > 1, VideoTimestepEmbedding::kName, ": channels must be above 1, got ", c.channels);
  return c;
}
}  // namespace

VideoTimestepEmbedding::VideoTimestepEmbedding(Config config)
    : ConfiguredModel(checked(std::move(config))),
      linear_1(options.channels, options.time_embed_dim),
      linear_2(options.time_embed_dim, options.time_embed_dim) {}

Tensor VideoTimestepEmbedding::forward(const Tensor& timestep, std::optional<DType> dtype) const {
  check_defined(kName, "timestep", timestep);
  SF_CHECK(timestep.ndim() <= 1, kName, ": timestep must be one number or [B], got ", timestep.shape());
  const Tensor waves = timestep_embedding(timestep.reshape({-1}), options.channels,
                                          {.flip_sin_to_cos = true, .downscale_freq_shift = 0});
  const DType computes = dtype ? *dtype : const_cast<VideoTimestepEmbedding*>(this)->Model::dtype();
  return linear_2(project(linear_1, waves.to(computes), {.activation = "silu"}));
}

SF_MODEL(VideoTimestepEmbedding)
    .doc("timestep[] or [B] to [B, time_embed_dim]: cosines and sines through two linear layers.")
    .forward<&VideoTimestepEmbedding::forward>("timestep, dtype=None");

// ---- ResBlock3D

io::Fields ResBlock3DConfig::fields() {
  return {{"in_channels", &in_channels},
          {"out_channels", &out_channels},
          {"time_embed_dim", &time_embed_dim},
          {"norm_num_groups", &norm_num_groups},
          {"dropout", &dropout}};
}

namespace {
ResBlock3DConfig checked(ResBlock3DConfig c) {
  const char* who = ResBlock3D::kName;
  const int64_t out = c.out_channels.value_or(c.in_channels);
  check_sizes(who, {{"in_channels", c.in_channels},
                    {"out_channels", out},
                    {"time_embed_dim", c.time_embed_dim.value_or(1)},
                    {"norm_num_groups", c.norm_num_groups}});
  SF_CHECK(c.in_channels % c.norm_num_groups == 0 && out % c.norm_num_groups == 0, who,
           ": norm_num_groups must divide in_channels and out_channels, got ", c.norm_num_groups, ", ", c.in_channels,
           " and ", out);
  SF_CHECK(c.dropout >= 0 && c.dropout < 1, who, ": dropout must be from 0 to below 1, got ", c.dropout);
  return c;
}
}  // namespace

ResBlock3D::ResBlock3D(Config config)
    : ConfiguredModel(checked(std::move(config))),
      norm1(options.norm_num_groups, options.in_channels, kEps),
      conv1(conv_3x3x3(options.in_channels, options.out_channels.value_or(options.in_channels))),
      norm2(options.norm_num_groups, conv1.out_channels, kEps),
      dropout(options.dropout),
      conv2(conv_3x3x3(conv1.out_channels, conv1.out_channels)) {
  if (options.time_embed_dim) time_emb_proj.emplace(*options.time_embed_dim, conv1.out_channels);
  if (options.in_channels != conv1.out_channels)
    conv_shortcut.emplace(options.in_channels, conv1.out_channels, 1, nn::ConvOptions{});
  begin_small(conv2.weight);
}

Tensor ResBlock3D::forward(const Tensor& hidden_states, const Tensor& temb) const {
  check_video(kName, "hidden_states", hidden_states, options.in_channels);
  SF_CHECK(bool(temb) == bool(time_emb_proj), kName,
           temb ? ": temb is given, but its config has no time_embed_dim" : ": needs temb, as it has a time_embed_dim");
  Tensor h = conv1(norm_silu(norm1, hidden_states));
  if (temb) {
    SF_CHECK(temb.ndim() == 2 && (temb.size(0) == 1 || temb.size(0) == hidden_states.size(0)), kName,
             ": temb must be [", hidden_states.size(0), ", ", *options.time_embed_dim, "], got ", temb.shape());
    const Tensor shift = (*time_emb_proj)(silu(temb));
    h = h + shift.reshape({shift.size(0), shift.size(1), 1, 1, 1});
  }
  h = conv2(dropout(norm_silu(norm2, h)));
  return (conv_shortcut ? (*conv_shortcut)(hidden_states) : hidden_states) + h;
}

SF_MODEL(ResBlock3D)
    .doc("hidden_states [B, in_channels, T, H, W] and temb [B, time_embed_dim] to [B, out_channels, T, H, W].")
    .forward<&ResBlock3D::forward>("hidden_states, temb=None");

// ---- SpatialTemporalAttention

io::Fields SpatialTemporalAttentionConfig::fields() {
  return {{"channels", &channels}, {"num_heads", &num_heads}, {"context_dim", &context_dim}};
}

namespace {
SpatialTemporalAttentionConfig checked(SpatialTemporalAttentionConfig c) {
  const char* who = SpatialTemporalAttention::kName;
  check_sizes(who, {{"channels", c.channels}, {"num_heads", c.num_heads}, {"context_dim", c.context_dim.value_or(1)}});
  check_heads(who, c.num_heads, c.channels);
  SF_CHECK(c.channels % 2 == 0, who, ": channels must be even, got ", c.channels);
  return c;
}

AttentionOptions heads_of(const SpatialTemporalAttentionConfig& c, std::optional<int64_t> context_dim = {}) {
  return {.cross_attention_dim = context_dim, .heads = c.num_heads, .dim_head = c.channels / c.num_heads};
}
}  // namespace

SpatialTemporalAttention::SpatialTemporalAttention(Config config)
    : ConfiguredModel(checked(std::move(config))),
      spatial_norm({options.channels}),
      spatial_attn(options.channels, heads_of(options)),
      temporal_norm({options.channels}),
      temporal_attn(options.channels, heads_of(options)) {
  begin_small(spatial_attn.to_out.get<0>().weight);
  begin_small(temporal_attn.to_out.get<0>().weight);
  if (!options.context_dim) return;
  cross_norm.emplace(Shape{options.channels});
  cross_attn.emplace(options.channels, heads_of(options, options.context_dim));
  begin_small(cross_attn->to_out.get<0>().weight);
}

Tensor SpatialTemporalAttention::forward(const Tensor& hidden_states, const Tensor& text, const Tensor& mask) const {
  check_video(kName, "hidden_states", hidden_states, options.channels);
  const int64_t batch = hidden_states.size(0), channels = options.channels, frames = hidden_states.size(2),
                h = hidden_states.size(3), w = hidden_states.size(4);
  SF_CHECK(bool(text) == bool(cross_attn), kName,
           text ? ": encoder_hidden_states are given, but its config has no context_dim"
                : ": needs encoder_hidden_states, as it has a context_dim");
  if (text)
    SF_CHECK(text.ndim() == 3 && text.size(0) == batch && text.size(1) > 0 && text.size(2) == *options.context_dim,
             kName, ": encoder_hidden_states must be [", batch, ", tokens, ", *options.context_dim, "], got ",
             text.shape());
  Tensor x = hidden_states.permute({0, 2, 3, 4, 1}).reshape({batch * frames, h * w, channels});
  x = spatial_attn.beside(x, spatial_norm(x));
  x = x.reshape({batch, frames, h * w, channels}).transpose(1, 2).reshape({batch * h * w, frames, channels});
  const Tensor positions = positions_.of({frames}, x, x.dtype(), [&] {
    std::vector<double> places(static_cast<size_t>(frames));
    std::iota(places.begin(), places.end(), 0.0);
    return sincos_positions(places, channels);
  });
  x = temporal_attn.beside(x, temporal_norm(x) + positions);
  if (text) {
    x = x.reshape({batch, h * w * frames, channels});
    x = cross_attn->beside(x, (*cross_norm)(x), text, attention_bias(kName, "encoder_attention_mask", mask, x.dtype()));
  }
  const Tensor y = x.reshape({batch, h, w, frames, channels}).permute({0, 4, 3, 1, 2});
  return hidden_states.is_contiguous() ? contiguous(y) : to_channels_last(y);
}

SF_MODEL(SpatialTemporalAttention)
    .doc(
        "Attention within the frames of hidden_states [B, channels, T, H, W], between them, and to a text "
        "[B, M, context_dim].")
    .forward<&SpatialTemporalAttention::forward>(
        "hidden_states, encoder_hidden_states=None, encoder_attention_mask=None");

// ---- levels

VideoLayer::VideoLayer(int64_t in, int64_t out, bool has_attention, const LevelOptions& o)
    : resnet(ResBlock3DConfig{.in_channels = in,
                              .out_channels = out,
                              .time_embed_dim = o.time_embed_dim,
                              .norm_num_groups = o.norm_num_groups,
                              .dropout = o.dropout}) {
  if (has_attention)
    attention.emplace(
        SpatialTemporalAttentionConfig{.channels = out, .num_heads = o.num_heads, .context_dim = o.context_dim});
}

Tensor VideoLayer::forward(const Tensor& hidden_states, const Tensor& temb, const Tensor& text,
                           const Tensor& mask) const {
  Tensors inputs{hidden_states};
  if (temb) inputs.push_back(temb);
  const bool reads_text = attention && text;
  if (reads_text) inputs.push_back(text);
  auto layer = [this, mask, reads_text, timed = bool(temb)](const Tensors& in) -> Tensors {
    Tensor x = resnet(in[0], timed ? in[1] : Tensor());
    if (attention) x = reads_text ? (*attention)(x, in.back(), mask) : (*attention)(x);
    return {x};
  };
  return run(layer, inputs)[0];
}

VideoDownBlock::VideoDownBlock(const LevelShape& shape, int64_t num_layers, const LevelOptions& options) {
  for (int64_t i = 0; i < num_layers; ++i)
    layers.emplace_back(i == 0 ? shape.in_channels : shape.out_channels, shape.out_channels, shape.attention, options);
  if (shape.resample) downsampler.emplace(shape.out_channels, shape.out_channels, nn::Ints(Shape{1, 3, 3}), halving());
}

Tensors VideoDownBlock::forward(const Tensor& hidden_states, const Tensor& temb, const Tensor& text,
                                const Tensor& mask) const {
  Tensors out;
  Tensor h = hidden_states;
  for (auto& layer : layers) out.push_back(h = layer(h, temb, text, mask));
  out.push_back(downsampler ? (*downsampler)(h) : h);
  return out;
}

VideoUpBlock::VideoUpBlock(const LevelShape& shape, const LevelOptions& options) {
  if (shape.resample)
    upsampler.emplace(shape.in_channels, shape.in_channels, nn::Ints(Shape{1, 3, 3}),
                      nn::ConvOptions{.padding = Shape{0, 1, 1}});
  int64_t in = shape.in_channels;
  for (int64_t skip : shape.skip_channels) {
    layers.emplace_back(in + skip, shape.out_channels, shape.attention, options);
    in = shape.out_channels;
  }
}

Tensor VideoUpBlock::forward(const Tensor& hidden_states, const Tensors& skips, const Tensor& temb, const Tensor& text,
                             const Tensor& mask) const {
  Tensor h = upsampler ? (*upsampler)(interpolate(hidden_states, {}, Floats{1, 2, 2})) : hidden_states;
  for (size_t i = 0; i < layers.size(); ++i)
    h = layers[i](skips.empty() ? h : cat({h, skips.at(skips.size() - 1 - i)}, 1), temb, text, mask);
  return h;
}

nn::ModuleList<VideoLayer> middle_layers(int64_t in_channels, int64_t channels, const LevelOptions& options) {
  nn::ModuleList<VideoLayer> layers;
  layers.emplace_back(in_channels, channels, true, options);
  layers.emplace_back(channels, channels, false, options);
  return layers;
}

}  // namespace sf::models::video
