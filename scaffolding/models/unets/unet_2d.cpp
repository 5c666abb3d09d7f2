#include "scaffolding/models/unets/unet_2d.h"

#include <numbers>

#include "scaffolding/models/parts/attention_keys.h"
#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/models/parts/time_shifts.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

io::Fields UNet2DConfig::fields() {
  return {{"sample_size", &sample_size},
          {"in_channels", &in_channels},
          {"out_channels", &out_channels},
          {"center_input_sample", &center_input_sample},
          {"time_embedding_type", &time_embedding_type},
          {"time_embedding_dim", &time_embedding_dim},
          {"freq_shift", &freq_shift},
          {"flip_sin_to_cos", &flip_sin_to_cos},
          {"down_block_types", &down_block_types},
          {"mid_block_type", &mid_block_type},
          {"up_block_types", &up_block_types},
          {"block_out_channels", &block_out_channels},
          {"layers_per_block", &layers_per_block},
          {"mid_block_scale_factor", &mid_block_scale_factor},
          {"downsample_padding", &downsample_padding},
          {"downsample_type", &downsample_type},
          {"upsample_type", &upsample_type},
          {"dropout", &dropout},
          {"act_fn", &act_fn},
          {"attention_head_dim", &attention_head_dim},
          {"norm_num_groups", &norm_num_groups},
          {"attn_norm_num_groups", &attn_norm_num_groups},
          {"norm_eps", &norm_eps},
          {"resnet_time_scale_shift", &resnet_time_scale_shift},
          {"add_attention", &add_attention},
          {"class_embed_type", &class_embed_type},
          {"num_class_embeds", &num_class_embeds},
          {"num_train_timesteps", &num_train_timesteps}};
}

namespace {

constexpr const char* kWho = UNet2DModel::kName;
constexpr size_t kMostLevels = 16;
constexpr double kFourierScale = 16;

template <class... U> void one_of(const char* field, const std::string& value, const U&... known) {
  std::string names;
  ((names += (names.empty() ? "'" : ", '") + std::string(known) + "'"), ...);
  SF_CHECK(((value == known) || ...), kWho, ": ", field, " must be one of ", names, ", got '", value, "'");
}

// Of a class of diffusers; old configs have UNetRes before the name.
PictureLevelKind kind_of(const char* field, const std::string& type, const std::string& direction, bool by_resnet) {
  const std::string name = type.starts_with("UNetRes") ? type.substr(7) : type, tail = direction + "Block2D";
  if (name == tail) return {};
  if (name == "Attn" + tail) return {.attention = true, .by_resnet = by_resnet};
  if (name == "Skip" + tail) return {.skip = true};
  if (name == "AttnSkip" + tail) return {.attention = true, .skip = true};
  if (name == "Resnet" + direction + "sampleBlock2D") return {.by_resnet = true};
  fail<NotSupported>(kWho, ": ", field, " '", type, "' is not supported");
}

UNet2DConfig checked(UNet2DConfig c) {
  const size_t levels = c.block_out_channels.size();
  SF_CHECK(levels > 0 && c.down_block_types.size() == levels && c.up_block_types.size() == levels, kWho,
           ": block_out_channels, down_block_types and up_block_types must have the same length, got ", levels, ", ",
           c.down_block_types.size(), " and ", c.up_block_types.size());
  SF_CHECK(levels <= kMostLevels, kWho, ": block_out_channels must have at most ", kMostLevels, " entries, got ",
           levels);
  check_sizes(kWho, {{"in_channels", c.in_channels}, {"out_channels", c.out_channels}});
  for (auto& [field, value] : {std::pair{"norm_num_groups", c.norm_num_groups},
                               {"attn_norm_num_groups", c.attn_norm_num_groups},
                               {"attention_head_dim", c.attention_head_dim},
                               {"time_embedding_dim", c.time_embedding_dim},
                               {"num_class_embeds", c.num_class_embeds},
                               {"num_train_timesteps", c.num_train_timesteps}})
    if (value) check_sizes(kWho, {{field, *value}});
  for (int64_t n : c.block_out_channels) check_sizes(kWho, {{"block_out_channels", n}});
  SF_CHECK(c.layers_per_block > 0 && c.layers_per_block <= kMostLayers / int64_t(levels), kWho,
           ": layers_per_block must be positive and at most ", kMostLayers, " over all blocks, got ",
           c.layers_per_block);
  one_of("time_embedding_type", c.time_embedding_type, "positional", "fourier", "learned");
  SF_CHECK(c.time_embedding_type != "learned" || c.num_train_timesteps, kWho,
           ": time_embedding_type 'learned' needs num_train_timesteps");
  SF_CHECK(c.time_embedding_type != "positional" || c.block_out_channels[0] > 1, kWho,
           ": block_out_channels must begin with more than 1 for sines and cosines of the time, got ",
           c.block_out_channels[0]);
  one_of("downsample_type", c.downsample_type, "conv", "resnet");
  one_of("upsample_type", c.upsample_type, "conv", "resnet");
  one_of("resnet_time_scale_shift", c.resnet_time_scale_shift, "default", "scale_shift");
  if (c.class_embed_type) one_of("class_embed_type", *c.class_embed_type, "timestep", "identity");
  if (c.mid_block_type) one_of("mid_block_type", *c.mid_block_type, "UNetMidBlock2D");
  SF_CHECK_AS(NotSupported, c.act_fn == "silu" || c.act_fn == "swish", kWho, ": act_fn '", c.act_fn,
              "' is not supported");
  SF_CHECK(c.downsample_padding >= 0 && c.downsample_padding <= 1, kWho, ": downsample_padding must be 0 or 1, got ",
           c.downsample_padding);
  bool skips_down = false, skips_up = false;
  for (auto& type : c.down_block_types) skips_down |= kind_of("down_block_types", type, "Down", false).skip;
  for (auto& type : c.up_block_types) skips_up |= kind_of("up_block_types", type, "Up", false).skip;
  SF_CHECK(!skips_down || c.in_channels == 3, kWho,
           ": levels that skip take pictures of 3 channels, got in_channels=", c.in_channels);
  SF_CHECK(!skips_up || c.out_channels == 3, kWho,
           ": levels that skip make pictures of 3 channels, got out_channels=", c.out_channels);
  return c;
}

int64_t time_embed_dim(const UNet2DConfig& c) { return c.time_embedding_dim.value_or(4 * c.block_out_channels[0]); }

int64_t projected_channels(const UNet2DConfig& c) {
  return c.block_out_channels[0] * (c.time_embedding_type == "fourier" ? 2 : 1);
}

std::shared_ptr<nn::Module> make_time_proj(const UNet2DConfig& c) {
  if (c.time_embedding_type == "fourier")
    return std::make_shared<GaussianFourierProjection>(c.block_out_channels[0], kFourierScale);
  if (c.time_embedding_type == "learned")
    return std::make_shared<nn::Embedding>(*c.num_train_timesteps, c.block_out_channels[0]);
  return nullptr;
}

std::shared_ptr<nn::Module> make_class_embedding(const UNet2DConfig& c) {
  if (c.class_embed_type == "timestep")
    return std::make_shared<TimestepEmbedding>(projected_channels(c), time_embed_dim(c));
  if (c.class_embed_type == "identity") return std::make_shared<nn::Identity>();
  return c.num_class_embeds ? std::make_shared<nn::Embedding>(*c.num_class_embeds, time_embed_dim(c)) : nullptr;
}

PictureLevelOptions level_options(const UNet2DConfig& c) {
  return {.temb_channels = time_embed_dim(c),
          .downsample_padding = c.downsample_padding,
          .groups = c.norm_num_groups,
          .eps = c.norm_eps,
          .dropout = c.dropout,
          .scale_shift = c.resnet_time_scale_shift == "scale_shift",
          .attention_head_dim = c.attention_head_dim};
}

}  // namespace

GaussianFourierProjection::GaussianFourierProjection(int64_t size, double scale) : weight(randn({size}) * scale) {}

Tensor GaussianFourierProjection::forward(const Tensor& levels) const {
  const Tensor angles = log(levels.to(kFloat32)).unsqueeze(1) * weight.to(kFloat32).unsqueeze(0) * 2 * std::numbers::pi;
  return cat({sin(angles), cos(angles)}, -1);
}

UNet2DModel::UNet2DModel(Config config)
    : ConfiguredModel(checked(std::move(config))),
      conv_in(options.in_channels, options.block_out_channels[0], 3, {.padding = 1}),
      time_proj(make_time_proj(options)),
      time_embedding(projected_channels(options), time_embed_dim(options)),
      class_embedding(make_class_embedding(options)),
      conv_norm_out(options.norm_num_groups.value_or(groups_of(options.block_out_channels[0])),
                    options.block_out_channels[0], options.norm_eps),
      conv_out(options.block_out_channels[0], options.out_channels, 3, {.padding = 1}) {
  const auto& c = options;
  const auto& channels = c.block_out_channels;
  const size_t n = channels.size(), last = n - 1;
  for (size_t i = 0; i < n; ++i) {
    PictureLevelOptions o = level_options(c);
    o.kind = kind_of("down_block_types", c.down_block_types[i], "Down", c.downsample_type == "resnet");
    o.in_channels = channels[i == 0 ? 0 : i - 1], o.out_channels = channels[i];
    o.num_layers = c.layers_per_block;
    o.resize = i != last;
    down_blocks.emplace_back(o);
  }
  if (c.mid_block_type) {
    const bool plain = c.resnet_time_scale_shift == "default";
    const int64_t groups = c.norm_num_groups.value_or(groups_of(channels[last]));
    mid_block.emplace(PictureMidOptions{
        .channels = channels[last],
        .temb_channels = time_embed_dim(c),
        .groups = groups,
        .attention_groups = c.attn_norm_num_groups || !plain ? c.attn_norm_num_groups : std::optional(groups),
        .eps = c.norm_eps,
        .dropout = c.dropout,
        .scale_factor = c.mid_block_scale_factor,
        .scale_shift = !plain,
        .attention = c.add_attention,
        .attention_head_dim = c.attention_head_dim});
  }
  for (size_t i = 0; i < n; ++i) {
    const size_t level = last - i;
    PictureLevelOptions o = level_options(c);
    o.kind = kind_of("up_block_types", c.up_block_types[i], "Up", c.upsample_type == "resnet");
    o.in_channels = channels[i == 0 ? last : level + 1], o.out_channels = channels[level];
    o.skip_channels = channels[level == 0 ? 0 : level - 1];
    o.num_layers = c.layers_per_block + 1;
    o.resize = i != last;
    up_blocks.emplace_back(o);
  }
}

Tensor UNet2DModel::projected_time(const Tensor& timesteps) const {
  if (time_proj) return std::get<Tensor>(time_proj->call({timesteps}));
  return timestep_embedding(
      timesteps, options.block_out_channels[0],
      {.flip_sin_to_cos = options.flip_sin_to_cos, .downscale_freq_shift = double(options.freq_shift)});
}

// What the residual blocks are told: timestep and class in one vector a sample.
Tensor UNet2DModel::embed(const Tensor& sample, const Tensor& timestep, const Tensor& class_labels) const {
  const int64_t batch = sample.size(0);
  // One row for all samples where nothing but the time is told: their shifts are then biases.
  const bool alike = TimeShifts::are_joined_on(sample.device()) && timestep.numel() == 1 && !class_embedding;
  const Tensor steps = (timestep.ndim() ? timestep : timestep.unsqueeze(0)).expand({alike ? 1 : batch});
  Tensor emb = time_embedding(projected_time(steps).to(sample.dtype()));
  SF_CHECK(bool(class_labels) == bool(class_embedding), kName,
           class_embedding ? ": needs class_labels, since its config has a class embedding"
                           : ": class_labels are given, but the config has no class embedding");
  if (!class_embedding) return emb;
  Tensor labels = class_labels;
  if (options.class_embed_type == "timestep") labels = projected_time(labels).to(sample.dtype());
  return emb + std::get<Tensor>(class_embedding->call({labels})).to(sample.dtype());
}

std::string UNet2DModel::current_key(const std::string& key) const { return current_attention_key(key); }

std::vector<const ResnetBlock2D*> UNet2DModel::timed_blocks() const {
  std::vector<const ResnetBlock2D*> blocks;
  auto add = [&](const ResnetLevel& level) {
    for (auto& resnet : level.resnets) blocks.push_back(&resnet);
  };
  for (auto& block : down_blocks) add(block);
  if (mid_block) add(*mid_block);
  for (auto& block : up_blocks) add(block);
  return blocks;
}

bool UNet2DModel::pack() { return TimeShifts::pack(timed_blocks()); }

Tensors UNet2DModel::read_below() const {
  Tensors all;
  for (const ResnetBlock2D* block : timed_blocks())
    all.insert(all.end(), {block->time_emb_proj->weight, block->time_emb_proj->bias, block->conv1.bias});
  return all;
}

Tensor UNet2DModel::forward(const Tensor& input, const Tensor& timestep, const Tensor& class_labels) const {
  SF_CHECK(input && input.ndim() == 4 && input.size(1) == options.in_channels, kName, ": sample must be [B, ",
           options.in_channels, ", H, W], got ", input ? input.shape() : Shape());
  const int64_t batch = input.size(0), multiple = int64_t(1) << (down_blocks.size() - 1);
  SF_CHECK(input.size(2) % multiple == 0 && input.size(3) % multiple == 0, kName,
           ": height and width must be multiples of ", multiple, ", got ", input.shape());
  SF_CHECK(timestep, kName, ": needs a timestep");
  SF_CHECK(timestep.ndim() == 0 || (timestep.ndim() == 1 && (timestep.size(0) == 1 || timestep.size(0) == batch)),
           kName, ": timestep must be one number or one for each of ", batch, " samples, got ", timestep.shape());
  const Tensor emb = embed(input, timestep, class_labels);
  const TimeShifts shifts(emb, timed_blocks());

  // Channels last from here on, so that pixels are tokens without a copy.
  Tensor picture = to_channels_last(options.center_input_sample ? 2 * input - 1 : input);
  Tensor h = conv_in(picture);
  Tensors skips{h};
  for (auto& block : down_blocks) {
    Tensors out = block(h, emb, block.kind.skip ? picture : Tensor());
    if (block.kind.skip) {
      picture = out.back();
      out.pop_back();
    }
    h = out.back();
    skips.insert(skips.end(), out.begin(), out.end());
  }
  if (mid_block) h = (*mid_block)(h, emb);
  picture = {};
  for (auto& block : up_blocks) {
    const auto n = int64_t(block.resnets.size());
    const Tensors taken(skips.end() - n, skips.end());
    skips.erase(skips.end() - n, skips.end());
    const Tensors out = block(h, taken, emb, block.kind.skip ? picture : Tensor());
    h = out[0];
    if (out.size() > 1) picture = out[1];
  }
  h = conv_out(norm_silu(conv_norm_out, h));
  if (picture) h = h + picture;
  // a score: the noise over its level
  if (options.time_embedding_type == "fourier") h = h / timestep.to(h.dtype()).reshape({-1, 1, 1, 1});
  return input.is_contiguous() ? contiguous(h) : h;
}

SF_MODEL(UNet2DModel)
    .doc(
        "diffusers' UNet2DModel, the denoiser of pictures without text: [B, C, H, W] at a timestep, and with labels "
        "where its config has a class embedding.")
    .forward<&UNet2DModel::forward>("sample, timestep, class_labels=None");

}  // namespace sf::models
