#include "scaffolding/models/unets/unet_3d.h"

#include <algorithm>

#include "scaffolding/core/error.h"
#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/models/parts/embeddings.h"
#include "scaffolding/models/parts/resnet.h"
#include "scaffolding/ops/ops.h"

namespace sf::models::video {

io::Fields UNet3DConfig::fields() {
  return {{"in_channels", &in_channels},
          {"out_channels", &out_channels},
          {"model_channels", &model_channels},
          {"channel_mult", &channel_mult},
          {"num_res_blocks", &num_res_blocks},
          {"attention_levels", &attention_levels},
          {"num_heads", &num_heads},
          {"context_dim", &context_dim},
          {"norm_num_groups", &norm_num_groups},
          {"dropout", &dropout}};
}

io::Fields SimpleUNet3DConfig::fields() {
  return {{"in_channels", &in_channels}, {"out_channels", &out_channels}, {"model_channels", &model_channels},
          {"num_heads", &num_heads},     {"context_dim", &context_dim},   {"norm_num_groups", &norm_num_groups}};
}

namespace {

constexpr double kEps = 1e-6;

int64_t time_embed_dim(int64_t model_channels) { return 4 * model_channels; }

// What both classes ask of the config's sizes.
template <class Config>
void check(const char* who, const Config& c, const std::vector<int64_t>& channel_mult, int64_t num_res_blocks) {
  check_sizes(who, {{"in_channels", c.in_channels},
                    {"out_channels", c.out_channels.value_or(1)},
                    {"num_heads", c.num_heads},
                    {"context_dim", c.context_dim.value_or(1)}});
  check_levels(who, c.model_channels, channel_mult, num_res_blocks, c.norm_num_groups);
  SF_CHECK(c.model_channels > 1, who, ": model_channels must be above 1, got ", c.model_channels);
}

template <class Config> LevelOptions level_options(const Config& c) {
  return {.time_embed_dim = time_embed_dim(c.model_channels),
          .context_dim = c.context_dim,
          .num_heads = c.num_heads,
          .norm_num_groups = c.norm_num_groups};
}

std::vector<int64_t> attention_levels(const UNet3DConfig& c) {
  const auto count = int64_t(c.channel_mult.size());
  std::vector<int64_t> levels;
  if (c.attention_levels.is(io::Object::None)) {
    for (int64_t level = 1; level < count; ++level) levels.push_back(level);
    return levels;
  }
  SF_CHECK_AS(TypeError, c.attention_levels.is_sequence(), UNet3D::kName,
              ": attention_levels must be a list of numbers of levels, or None");
  for (auto& item : c.attention_levels.items()) {
    SF_CHECK_AS(TypeError, item.is(io::Object::Int), UNet3D::kName, ": attention_levels must be whole numbers, got ",
                io::Object::name(item.kind()));
    const int64_t level = item.as_int();
    SF_CHECK(level >= 0 && level < count, UNet3D::kName, ": attention_levels must be numbers of levels, from 0 to ",
             count - 1, ", got ", level);
    levels.push_back(level);
  }
  return levels;
}

UNet3DPlan plan_of(const UNet3DConfig& c) {
  const char* who = UNet3D::kName;
  check(who, c, c.channel_mult, c.num_res_blocks);
  UNet3DPlan plan{.in_channels = c.in_channels,
                  .out_channels = c.out_channels.value_or(c.in_channels),
                  .model_channels = c.model_channels,
                  .channels = {},
                  .attention = std::vector<bool>(c.channel_mult.size()),
                  .num_res_blocks = c.num_res_blocks,
                  .middle_channels = c.model_channels * c.channel_mult.back(),
                  .middle_is_smaller = false,
                  .options = level_options(c)};
  plan.options.dropout = c.dropout;
  for (int64_t mult : c.channel_mult) plan.channels.push_back(mult * c.model_channels);
  for (int64_t level : attention_levels(c)) {
    plan.attention[size_t(level)] = true;
    check_heads(who, c.num_heads, plan.channels[size_t(level)]);
  }
  check_heads(who, c.num_heads, plan.middle_channels);
  return plan;
}

UNet3DPlan plan_of(const SimpleUNet3DConfig& c) {
  check(SimpleUNet3D::kName, c, {1, 2, 4}, 1);
  check_heads(SimpleUNet3D::kName, c.num_heads, 2 * c.model_channels);
  return {.in_channels = c.in_channels,
          .out_channels = c.out_channels.value_or(c.in_channels),
          .model_channels = c.model_channels,
          .channels = {c.model_channels, 2 * c.model_channels},
          .attention = {false, true},
          .num_res_blocks = 1,
          .middle_channels = 4 * c.model_channels,
          .middle_is_smaller = true,
          .options = level_options(c)};
}

}  // namespace

UNet3DBase::UNet3DBase(const char* who, const UNet3DPlan& p)
    : time_embedding(VideoTimestepEmbeddingConfig{.channels = p.model_channels,
                                                  .time_embed_dim = time_embed_dim(p.model_channels)}),
      conv_in(conv_3x3x3(p.in_channels, p.channels[0])),
      mid_layers(middle_layers(p.channels.back(), p.middle_channels, p.options)),
      conv_norm_out(p.options.norm_num_groups, p.channels[0], kEps),
      conv_out(conv_3x3x3(p.channels[0], p.out_channels)),
      who_(who) {
  const size_t n = p.channels.size();
  auto shrinks = [&](size_t level) { return level + 1 < n || p.middle_is_smaller; };
  for (size_t i = 0; i < n; ++i)
    down_blocks.emplace_back(LevelShape{.in_channels = p.channels[i == 0 ? 0 : i - 1],
                                        .out_channels = p.channels[i],
                                        .attention = p.attention[i],
                                        .resample = shrinks(i)},
                             p.num_res_blocks, p.options);
  for (size_t i = n; i-- > 0;)
    up_blocks.emplace_back(LevelShape{.in_channels = i + 1 == n ? p.middle_channels : p.channels[i + 1],
                                      .out_channels = p.channels[i],
                                      .skip_channels = std::vector<int64_t>(size_t(p.num_res_blocks), p.channels[i]),
                                      .attention = p.attention[i],
                                      .resample = shrinks(i)},
                           p.options);
  begin_small(conv_out.weight);
}

int64_t UNet3DBase::spatial_factor() const {
  int64_t factor = 1;
  for (auto& block : down_blocks) factor *= block.downsampler ? 2 : 1;
  return factor;
}

Tensor UNet3DBase::forward(const Tensor& sample, const Tensor& timestep, const Tensor& text, const Tensor& mask) const {
  check_video(who_, "sample", sample, conv_in.in_channels, spatial_factor());
  const Tensor temb = time_embedding(batch_of_timesteps(who_, timestep, sample.size(0)), sample.dtype());
  if (mask && text)
    SF_CHECK(mask.ndim() == 3 || mask.shape() == Shape({text.size(0), text.size(1)}), who_,
             ": encoder_attention_mask must be [", text.size(0), ", ", text.size(1), "], got ", mask.shape());
  const Tensor bias = attention_bias(who_, "encoder_attention_mask", mask, sample.dtype());
  // Channels last from here on, so that pixels are tokens without a copy.
  Tensor h = conv_in(to_channels_last(sample));
  std::vector<Tensors> skips;
  for (auto& block : down_blocks) {
    skips.push_back(block(h, temb, text, bias));
    h = skips.back().back(), skips.back().pop_back();
  }
  for (auto& layer : mid_layers) h = layer(h, temb, text, bias);
  for (auto& block : up_blocks) {
    h = block(h, skips.back(), temb, text, bias);
    skips.pop_back();
  }
  h = conv_out(norm_silu(conv_norm_out, h));
  return sample.is_contiguous() ? contiguous(h) : h;
}

UNet3D::UNet3D(Config config) : UNet3DBase(kName, plan_of(config)), options(std::move(config)) {}
SimpleUNet3D::SimpleUNet3D(Config config) : UNet3DBase(kName, plan_of(config)), options(std::move(config)) {}

SF_MODEL(UNet3D)
    .doc("A denoiser of videos [B, C, T, H, W] at a timestep, with text [B, M, context_dim].")
    .forward<&UNet3D::forward>("sample, timestep, encoder_hidden_states=None, encoder_attention_mask=None");

SF_MODEL(SimpleUNet3D)
    .doc("A small denoiser of videos [B, C, T, H, W] at a timestep, with text [B, M, context_dim].")
    .forward<&SimpleUNet3D::forward>("sample, timestep, encoder_hidden_states=None, encoder_attention_mask=None");

}  // namespace sf::models::video
