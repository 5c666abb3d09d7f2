#include "scaffolding/models/autoencoders/video_autoencoder.h"

#include "scaffolding/core/error.h"
#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/models/parts/resnet.h"
#include "scaffolding/ops/ops.h"

namespace sf::models::video {

io::Fields VideoEncoderConfig::fields() {
  return {{"in_channels", &in_channels},         {"latent_channels", &latent_channels},
          {"model_channels", &model_channels},   {"channel_mult", &channel_mult},
          {"num_res_blocks", &num_res_blocks},   {"num_heads", &num_heads},
          {"norm_num_groups", &norm_num_groups}, {"scaling_factor", &scaling_factor}};
}

io::Fields VideoDecoderConfig::fields() {
  return {{"out_channels", &out_channels},      {"latent_channels", &latent_channels},
          {"model_channels", &model_channels},  {"channel_mult", &channel_mult},
          {"num_res_blocks", &num_res_blocks},  {"num_heads", &num_heads},
          {"norm_num_groups", &norm_num_groups}};
}

namespace {

constexpr double kEps = 1e-6;

template <class Config> Config checked(const char* who, Config c, int64_t pixel_channels) {
  check_sizes(who, {{"channels of the video", pixel_channels}, {"latent_channels", c.latent_channels}});
  check_levels(who, c.model_channels, c.channel_mult, c.num_res_blocks, c.norm_num_groups);
  check_heads(who, c.num_heads, c.model_channels * c.channel_mult.back());
  return c;
}

VideoEncoderConfig checked(VideoEncoderConfig c) {
  SF_CHECK(c.scaling_factor > 0, VideoEncoder::kName, ": scaling_factor must be above 0, got ", c.scaling_factor);
  return checked(VideoEncoder::kName, c, c.in_channels);
}
VideoDecoderConfig checked(VideoDecoderConfig c) { return checked(VideoDecoder::kName, c, c.out_channels); }

template <class Config> LevelOptions level_options(const Config& c) {
  return {.time_embed_dim = {}, .context_dim = {}, .num_heads = c.num_heads, .norm_num_groups = c.norm_num_groups};
}

// Channels of a level, 0 the largest picture's.
template <class Config> int64_t channels_of(const Config& c, size_t level) {
  return c.model_channels * c.channel_mult[level];
}
template <class Config> int64_t deepest(const Config& c) { return channels_of(c, c.channel_mult.size() - 1); }

}  // namespace

VideoEncoder::VideoEncoder(Config config)
    : ConfiguredModel(checked(std::move(config))),
      conv_in(conv_3x3x3(options.in_channels, channels_of(options, 0))),
      mid_layers(middle_layers(deepest(options), deepest(options), level_options(options))),
      conv_norm_out(options.norm_num_groups, deepest(options), kEps),
      conv_out(conv_3x3x3(deepest(options), 2 * options.latent_channels)) {
  for (size_t i = 0; i < options.channel_mult.size(); ++i)
    down_blocks.emplace_back(LevelShape{.in_channels = channels_of(options, i == 0 ? 0 : i - 1),
                                        .out_channels = channels_of(options, i),
                                        .resample = i + 1 < options.channel_mult.size()},
                             options.num_res_blocks, level_options(options));
}

Tensor VideoEncoder::forward(const Tensor& video) const {
  check_video(kName, "video", video, options.in_channels, spatial_factor());
  Tensor h = conv_in(to_channels_last(video));
  for (auto& block : down_blocks) h = block(h).back();
  for (auto& layer : mid_layers) h = layer(h);
  return contiguous(conv_out(norm_silu(conv_norm_out, h)));
}

VideoDecoder::VideoDecoder(Config config)
    : ConfiguredModel(checked(std::move(config))),
      conv_in(conv_3x3x3(options.latent_channels, deepest(options))),
      mid_layers(middle_layers(deepest(options), deepest(options), level_options(options))),
      conv_norm_out(options.norm_num_groups, channels_of(options, 0), kEps),
      conv_out(conv_3x3x3(channels_of(options, 0), options.out_channels)) {
  const size_t n = options.channel_mult.size();
  for (size_t i = n; i-- > 0;)
    up_blocks.emplace_back(LevelShape{.in_channels = channels_of(options, i + 1 == n ? i : i + 1),
                                      .out_channels = channels_of(options, i),
                                      .skip_channels = std::vector<int64_t>(size_t(options.num_res_blocks)),
                                      .resample = i + 1 < n},
                           level_options(options));
}

Tensor VideoDecoder::forward(const Tensor& latents) const {
  check_video(kName, "latents", latents, options.latent_channels);
  Tensor h = conv_in(to_channels_last(latents));
  for (auto& layer : mid_layers) h = layer(h);
  for (auto& block : up_blocks) h = block(h);
  return contiguous(conv_out(norm_silu(conv_norm_out, h)));
}

SF_MODEL(VideoEncoder)
    .doc("Videos [B, in_channels, T, H, W] to moments of latents [B, 2 latent_channels, T, h, w].")
    .forward<&VideoEncoder::forward>("video");

SF_MODEL(VideoDecoder)
    .doc("Latents [B, latent_channels, T, h, w] to videos [B, out_channels, T, H, W].")
    .forward<&VideoDecoder::forward>("latents");

}  // namespace sf::models::video
