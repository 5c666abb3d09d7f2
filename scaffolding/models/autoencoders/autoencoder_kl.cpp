#include "scaffolding/models/autoencoders/autoencoder_kl.h"

#include <algorithm>

#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/models/autoencoders/tiles.h"
#include "scaffolding/models/parts/attention_keys.h"

namespace sf::models {

io::Fields AutoencoderKLConfig::fields() {
  return {{"in_channels", &in_channels},
          {"out_channels", &out_channels},
          {"down_block_types", &down_block_types},
          {"up_block_types", &up_block_types},
          {"block_out_channels", &block_out_channels},
          {"layers_per_block", &layers_per_block},
          {"act_fn", &act_fn},
          {"latent_channels", &latent_channels},
          {"norm_num_groups", &norm_num_groups},
          {"sample_size", &sample_size},
          {"scaling_factor", &scaling_factor},
          {"shift_factor", &shift_factor},
          {"latents_mean", &latents_mean},
          {"latents_std", &latents_std},
          {"force_upcast", &force_upcast},
          {"use_quant_conv", &use_quant_conv},
          {"use_post_quant_conv", &use_post_quant_conv},
          {"mid_block_add_attention", &mid_block_add_attention}};
}

namespace {

constexpr const char* kWho = AutoencoderKL::kName;

void check_types(const char* field, const std::vector<std::string>& types, size_t blocks, const char* plain,
                 const char* with_attention) {
  SF_CHECK(types.size() == blocks, kWho, ": ", field, " and block_out_channels must have the same length, got ",
           types.size(), " and ", blocks);
  for (auto& type : types)
    SF_CHECK(type == plain || type == with_attention, kWho, ": ", field, " must be ", plain, " or ", with_attention,
             ", got '", type, "'");
}

void check_at_least_one(const char* field, int64_t value, int64_t most) {
  SF_CHECK(value >= 1 && value <= most, kWho, ": ", field, " must be at least 1 and at most ", most, ", got ", value);
}

AutoencoderKLConfig checked(AutoencoderKLConfig c) {
  SF_CHECK(!c.block_out_channels.empty() && c.block_out_channels.size() <= 16, kWho,
           ": block_out_channels must have 1 to 16 entries, got ", c.block_out_channels.size());
  check_types("down_block_types", c.down_block_types, c.block_out_channels.size(), "DownEncoderBlock2D",
              "AttnDownEncoderBlock2D");
  check_types("up_block_types", c.up_block_types, c.block_out_channels.size(), "UpDecoderBlock2D",
              "AttnUpDecoderBlock2D");
  constexpr int64_t kChannels = 1 << 16;
  check_at_least_one("in_channels", c.in_channels, kChannels);
  check_at_least_one("out_channels", c.out_channels, kChannels);
  check_at_least_one("latent_channels", c.latent_channels, kChannels);
  check_at_least_one("layers_per_block", c.layers_per_block, 256);
  check_at_least_one("norm_num_groups", c.norm_num_groups, kChannels);
  for (int64_t channels : c.block_out_channels) {
    check_at_least_one("block_out_channels", channels, kChannels);
    SF_CHECK(channels % c.norm_num_groups == 0, kWho,
             ": norm_num_groups must divide block_out_channels, got norm_num_groups=", c.norm_num_groups, " for ",
             channels);
  }
  SF_CHECK(c.act_fn == "silu" || c.act_fn == "swish", kWho, ": act_fn must be silu or swish, got '", c.act_fn, "'");
  for (int64_t side : io::ints_for_blocks(kWho, "sample_size", c.sample_size, 2))
    check_at_least_one("sample_size", side, 1 << 24);
  for (auto* list : {&c.latents_mean, &c.latents_std})
    SF_CHECK(!*list || int64_t((*list)->size()) == c.latent_channels, kWho,
             ": latents_mean and latents_std must have latent_channels=", c.latent_channels, " numbers, got ",
             (*list)->size());
  return c;
}

VaeOptions half(const AutoencoderKLConfig& c, int64_t in, int64_t out, const std::vector<std::string>& types) {
  return {in, out, types, c.block_out_channels, c.layers_per_block, c.norm_num_groups, c.mid_block_add_attention};
}

void check_picture(const char* method, const char* name, const Tensor& x, int64_t channels) {
  std::string who = std::string(kWho) + "." + method;
  check_defined(who.c_str(), name, x);
  SF_CHECK(x.ndim() == 4 && x.size(1) == channels, who, ": ", name, " must be [B, ", channels, ", H, W], got ",
           x.shape());
}

}  // namespace

AutoencoderKL::AutoencoderKL(Config config)
    : ConfiguredModel(checked(std::move(config))),
      encoder(half(options, options.in_channels, 2 * options.latent_channels, options.down_block_types)),
      decoder(half(options, options.latent_channels, options.out_channels, options.up_block_types)) {
  if (options.use_quant_conv) quant_conv.emplace(2 * options.latent_channels, 2 * options.latent_channels, 1);
  if (options.use_post_quant_conv) post_quant_conv.emplace(options.latent_channels, options.latent_channels, 1);
  tile_sample_min_size = io::ints_for_blocks(kWho, "sample_size", options.sample_size, 2)[0];
  tile_latent_min_size = tile_sample_min_size >> (options.block_out_channels.size() - 1);
}

Tensor AutoencoderKL::moments(const Tensor& pictures) const {
  check_picture("encode", "x", pictures, options.in_channels);
  return in_slices(pictures, use_slicing, [this](const Tensor& x) {
    if (use_tiling && std::max(x.size(2), x.size(3)) > tile_sample_min_size) return tiled_encode(x);
    Tensor h = encoder(x);
    return quant_conv ? (*quant_conv)(h) : h;
  });
}

Tensor AutoencoderKL::decode(const Tensor& latents) const {
  check_picture("decode", "z", latents, options.latent_channels);
  cpu::LeanMemory lean;
  return in_slices(latents, use_slicing, [this](const Tensor& z) {
    if (use_tiling && std::max(z.size(2), z.size(3)) > tile_latent_min_size) return tiled_decode(z);
    return decoder(post_quant_conv ? (*post_quant_conv)(z) : z);
  });
}

int64_t AutoencoderKL::decode_bytes(const Shape& latents, DType dtype, bool sliced, bool tiled) const {
  const auto& channels = options.block_out_channels;
  const int64_t scale = int64_t(1) << (channels.size() - 1), last = channels[0],
                before = channels[std::min<size_t>(1, channels.size() - 1)];
  // The last block's first layers are the largest: the picture's size, with the channels of the block before. Some
  // tensors of both live at once, and a convolution may lay out its rows (SF_CUDA_CONV_MB, or a library's workspace).
  constexpr int64_t kConvolution = int64_t(256) << 20;
  auto needed = [&](int64_t batch, int64_t h, int64_t w) {
    int64_t pixels = batch * h * w * scale * scale * int64_t(size_of(dtype));
    return (4 * before + 2 * last + 2 * options.out_channels) * pixels + std::min(9 * before * pixels, kConvolution);
  };
  SF_CHECK(latents.size() == 4, kWho, ".decode_bytes: latents must be [B, latent_channels, h, w], got ", latents);
  const int64_t batch = sliced ? 1 : latents[0], h = latents[2], w = latents[3];
  if (!tiled || std::max(h, w) <= tile_latent_min_size) return needed(batch, h, w);
  const int64_t parts = 3 * options.out_channels * batch * h * w * scale * scale * int64_t(size_of(dtype));
  return needed(batch, std::min(h, tile_latent_min_size), std::min(w, tile_latent_min_size)) + parts;
}

Tensor AutoencoderKL::tiled_encode(const Tensor& x) const {
  check_picture("tiled_encode", "x", x, options.in_channels);
  int64_t extent = int64_t(double(tile_latent_min_size) * tile_overlap_factor);
  Tiling t{tile_sample_min_size, int64_t(double(tile_sample_min_size) * (1 - tile_overlap_factor)), extent,
           tile_latent_min_size - extent};
  return joined_at_borders(x, t.size, t.size - t.step, seamless_axes(encoder.conv_in), [&](const Tensor& wide) {
    return in_tiles(kWho, wide, t, t, [this](const Tensor& tile) {
      Tensor h = encoder(tile);
      return quant_conv ? (*quant_conv)(h) : h;
    });
  });
}

Tensor AutoencoderKL::tiled_decode(const Tensor& z) const {
  check_picture("tiled_decode", "z", z, options.latent_channels);
  int64_t extent = int64_t(double(tile_sample_min_size) * tile_overlap_factor);
  Tiling t{tile_latent_min_size, int64_t(double(tile_latent_min_size) * (1 - tile_overlap_factor)), extent,
           tile_sample_min_size - extent};
  return joined_at_borders(z, t.size, t.size - t.step, seamless_axes(decoder.conv_in), [&](const Tensor& wide) {
    return in_tiles(kWho, wide, t, t,
                    [this](const Tensor& tile) { return decoder(post_quant_conv ? (*post_quant_conv)(tile) : tile); });
  });
}

Tensor AutoencoderKL::forward(const Tensor& sample, bool sample_posterior, const Generator& generator) const {
  DiagonalGaussianDistribution posterior = encode(sample);
  return decode(sample_posterior ? posterior.sample(generator) : posterior.mode());
}

Tensor AutoencoderKL::blend_v(const Tensor& a, Tensor b, int64_t blend_extent) {
  return blend(a, std::move(b), 2, blend_extent);
}
Tensor AutoencoderKL::blend_h(const Tensor& a, Tensor b, int64_t blend_extent) {
  return blend(a, std::move(b), 3, blend_extent);
}

std::string AutoencoderKL::current_key(const std::string& key) const { return current_attention_key(key); }

SF_MODEL(AutoencoderKL)
    .doc(
        "diffusers' AutoencoderKL: pictures [B, 3, H, W] in [-1, 1] to normal distributions of latents [B, 4, H / 8, W "
        "/ 8], and latents to pictures.")
    .forward<&AutoencoderKL::forward>("sample, sample_posterior=False, generator=None")
    .method<&AutoencoderKL::moments>("moments", "x")
    .method<&AutoencoderKL::decode>("decode", "z")
    .method<&AutoencoderKL::decode_bytes>("decode_bytes", "latents, dtype, sliced=False, tiled=False")
    .method<&AutoencoderKL::tiled_encode>("tiled_encode", "x")
    .method<&AutoencoderKL::tiled_decode>("tiled_decode", "z")
    .field<&AutoencoderKL::use_slicing>("use_slicing")
    .field<&AutoencoderKL::use_tiling>("use_tiling")
    .field<&AutoencoderKL::tile_sample_min_size>("tile_sample_min_size")
    .field<&AutoencoderKL::tile_latent_min_size>("tile_latent_min_size")
    .field<&AutoencoderKL::tile_overlap_factor>("tile_overlap_factor");

}  // namespace sf::models
