#include "scaffolding/models/autoencoders/autoencoder_kl_cogvideox.h"

#include <algorithm>
#include <bit>

#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/models/autoencoders/tiles.h"

namespace sf::models {

io::Fields AutoencoderKLCogVideoXConfig::fields() {
  return {{"in_channels", &in_channels},
          {"out_channels", &out_channels},
          {"down_block_types", &down_block_types},
          {"up_block_types", &up_block_types},
          {"block_out_channels", &block_out_channels},
          {"latent_channels", &latent_channels},
          {"layers_per_block", &layers_per_block},
          {"act_fn", &act_fn},
          {"norm_eps", &norm_eps},
          {"norm_num_groups", &norm_num_groups},
          {"temporal_compression_ratio", &temporal_compression_ratio},
          {"sample_height", &sample_height},
          {"sample_width", &sample_width},
          {"scaling_factor", &scaling_factor},
          {"shift_factor", &shift_factor},
          {"latents_mean", &latents_mean},
          {"latents_std", &latents_std},
          {"force_upcast", &force_upcast},
          {"use_quant_conv", &use_quant_conv},
          {"use_post_quant_conv", &use_post_quant_conv},
          {"invert_scale_latents", &invert_scale_latents}};
}

namespace {

using Config = AutoencoderKLCogVideoXConfig;

constexpr const char* kWho = AutoencoderKLCogVideoX::kName;

void check_types(const char* field, const std::vector<std::string>& types, size_t blocks, const char* wanted) {
  SF_CHECK(types.size() == blocks, kWho, ": ", field, " and block_out_channels must have the same length, got ",
           types.size(), " and ", blocks);
  for (auto& type : types) SF_CHECK(type == wanted, kWho, ": ", field, " must be ", wanted, ", got '", type, "'");
}

void check_at_least_one(const char* field, int64_t value, int64_t most) {
  SF_CHECK(value >= 1 && value <= most, kWho, ": ", field, " must be at least 1 and at most ", most, ", got ", value);
}

Config checked(Config c) {
  SF_CHECK(!c.block_out_channels.empty() && c.block_out_channels.size() <= 16, kWho,
           ": block_out_channels must have 1 to 16 entries, got ", c.block_out_channels.size());
  check_types("down_block_types", c.down_block_types, c.block_out_channels.size(), "CogVideoXDownBlock3D");
  check_types("up_block_types", c.up_block_types, c.block_out_channels.size(), "CogVideoXUpBlock3D");
  constexpr int64_t kChannels = 1 << 16;
  check_at_least_one("in_channels", c.in_channels, kChannels);
  check_at_least_one("out_channels", c.out_channels, kChannels);
  check_at_least_one("latent_channels", c.latent_channels, kChannels);
  check_at_least_one("layers_per_block", c.layers_per_block, 256);
  check_at_least_one("norm_num_groups", c.norm_num_groups, kChannels);
  check_at_least_one("temporal_compression_ratio", c.temporal_compression_ratio, 1 << 16);
  check_at_least_one("sample_height", c.sample_height, 1 << 24);
  check_at_least_one("sample_width", c.sample_width, 1 << 24);
  for (int64_t channels : c.block_out_channels) {
    check_at_least_one("block_out_channels", channels, kChannels);
    SF_CHECK(channels % c.norm_num_groups == 0, kWho,
             ": norm_num_groups must divide block_out_channels, got norm_num_groups=", c.norm_num_groups, " for ",
             channels);
  }
  SF_CHECK(c.act_fn == "silu" || c.act_fn == "swish", kWho, ": act_fn must be silu or swish, got '", c.act_fn, "'");
  // diffusers makes these convolutions of the pictures' channels
  SF_CHECK((!c.use_quant_conv && !c.use_post_quant_conv) || c.out_channels == c.latent_channels, kWho,
           ": use_quant_conv and use_post_quant_conv need as many out_channels as latent_channels, got ",
           c.out_channels, " and ", c.latent_channels);
  for (auto* list : {&c.latents_mean, &c.latents_std})
    SF_CHECK(!*list || int64_t((*list)->size()) == c.latent_channels, kWho,
             ": latents_mean and latents_std must have latent_channels=", c.latent_channels, " numbers, got ",
             (*list)->size());
  return c;
}

CogVideoXHalfOptions half(const Config& c, int64_t in, int64_t out) {
  const int64_t halvings = std::bit_width(uint64_t(c.temporal_compression_ratio)) - 1;
  return {in, out, c.block_out_channels, c.layers_per_block, c.norm_num_groups, c.norm_eps, halvings};
}

void check_video(const char* method, const char* name, const Tensor& x, int64_t channels) {
  const std::string who = std::string(kWho) + "." + method;
  check_defined(who.c_str(), name, x);
  SF_CHECK(x.ndim() == 5 && x.size(1) == channels && x.size(2) > 0, who, ": ", name, " must be [B, ", channels,
           ", T, H, W], got ", x.shape());
}

// take(f(chunk, what it needs of the one before), the share of chunks that are done) of `size` frames at a time, the
// rest of the frames with the first chunk.
template <class F, class Take>
void by_chunks(const Tensor& x, const char* field, int64_t size, const F& f, const Take& take) {
  SF_CHECK(size > 0, kWho, ": ", field, " must be positive, got ", size);
  const int64_t frames = x.size(2), chunks = std::max<int64_t>(frames / size, 1), rest = frames % size;
  Tensors before;
  for (int64_t i = 0; i < chunks; ++i) {
    stop_here(kWho);
    Tensors result = f(x.slice(2, i == 0 ? 0 : size * i + rest, size * (i + 1) + rest), before);
    before.assign(result.begin() + 1, result.end());
    take(result[0], double(i + 1) / double(chunks));
  }
}

// Behind each other in time: each_chunk(take) takes them one by one.
template <class F> Tensor all_frames(const F& each_chunk) {
  Tensors parts;
  each_chunk([&](const Tensor& part, double) { parts.push_back(part); });
  return parts.size() == 1 ? parts[0] : cat(parts, 2);
}

}  // namespace

AutoencoderKLCogVideoX::AutoencoderKLCogVideoX(Config config)
    : ConfiguredModel(checked(std::move(config))),
      encoder(half(options, options.in_channels, 2 * options.latent_channels)),
      decoder(half(options, options.latent_channels, options.out_channels)) {
  if (options.use_quant_conv) quant_conv.emplace(2 * options.out_channels, 2 * options.out_channels, 1);
  if (options.use_post_quant_conv) post_quant_conv.emplace(options.out_channels, options.out_channels, 1);
  set_tile(options.sample_height / 2, options.sample_width / 2);
}

void AutoencoderKLCogVideoX::set_tile(int64_t height, int64_t width) {
  tile_sample_min_height = height, tile_sample_min_width = width;
  const auto halvings = options.block_out_channels.size() - 1;
  tile_latent_min_height = height >> halvings, tile_latent_min_width = width >> halvings;
}

Tensor AutoencoderKLCogVideoX::encoded(const Tensor& video) const {
  const auto of_chunk = [this](const Tensor& x, const Tensors& before) {
    Tensors result = encoder(x, before);
    if (quant_conv) result[0] = (*quant_conv)(result[0]);
    return result;
  };
  return all_frames([&](const auto& take) {
    by_chunks(video, "num_sample_frames_batch_size", num_sample_frames_batch_size, of_chunk, take);
  });
}

template <class Take> void AutoencoderKLCogVideoX::decode_chunks(const Tensor& latents, const Take& take) const {
  const auto of_chunk = [this](const Tensor& z, const Tensors& before) -> Tensors {
    return decoder(post_quant_conv ? (*post_quant_conv)(z) : z, before);
  };
  by_chunks(latents, "num_latent_frames_batch_size", num_latent_frames_batch_size, of_chunk, take);
}

Tensor AutoencoderKLCogVideoX::decoded(const Tensor& latents) const {
  return all_frames([&](const auto& take) { decode_chunks(latents, take); });
}

bool AutoencoderKLCogVideoX::decodes_in_tiles(const Tensor& z) const {
  return use_tiling && (z.size(4) > tile_latent_min_width || z.size(3) > tile_latent_min_height);
}

Tensor AutoencoderKLCogVideoX::moments(const Tensor& videos) const {
  check_video("encode", "x", videos, options.in_channels);
  return in_slices(videos, use_slicing, [this](const Tensor& x) {
    const bool large = x.size(4) > tile_sample_min_width || x.size(3) > tile_sample_min_height;
    return use_tiling && large ? tiled_encode(x) : encoded(x);
  });
}

Tensor AutoencoderKLCogVideoX::decode(const Tensor& latents) const {
  check_video("decode", "z", latents, options.latent_channels);
  cpu::LeanMemory lean;
  return in_slices(latents, use_slicing,
                   [this](const Tensor& z) { return decodes_in_tiles(z) ? tiled_decode(z) : decoded(z); });
}

namespace {
// A side's tiles: of what goes in, and of what comes out.
Tiling tiling(int64_t in, int64_t out, double overlap) {
  const int64_t extent = int64_t(double(out) * overlap);
  return {in, int64_t(double(in) * (1 - overlap)), extent, out - extent};
}
}  // namespace

Tensor AutoencoderKLCogVideoX::tiled_encode(const Tensor& x) const {
  check_video("tiled_encode", "x", x, options.in_channels);
  return in_tiles(kWho, x, tiling(tile_sample_min_height, tile_latent_min_height, tile_overlap_factor_height),
                  tiling(tile_sample_min_width, tile_latent_min_width, tile_overlap_factor_width),
                  [this](const Tensor& tile) { return encoded(tile); });
}

template <class Take> void AutoencoderKLCogVideoX::decode_rows(const Tensor& z, const Take& take) const {
  in_rows_of_tiles(
      kWho, z, tiling(tile_latent_min_height, tile_sample_min_height, tile_overlap_factor_height),
      tiling(tile_latent_min_width, tile_sample_min_width, tile_overlap_factor_width),
      [this](const Tensor& tile) { return decoded(tile); }, take);
}

Tensor AutoencoderKLCogVideoX::tiled_decode(const Tensor& z) const {
  check_video("tiled_decode", "z", z, options.latent_channels);
  Tensors rows;
  decode_rows(z, [&](const Tensor& row, double) { rows.push_back(row); });
  return cat(rows, 3);
}

void AutoencoderKLCogVideoX::decode_in_parts(const Tensor& latents, const TakeVideoPart& take) const {
  check_video("decode", "z", latents, options.latent_channels);
  cpu::LeanMemory lean;
  const int64_t batch = latents.size(0), at_a_time = use_slicing ? 1 : batch;
  for (int64_t sample = 0; sample < batch; sample += at_a_time) {
    const Tensor z = latents.narrow(0, sample, at_a_time);
    const auto done = [&](double of_these) { return (double(sample) + of_these * double(at_a_time)) / double(batch); };
    if (decodes_in_tiles(z)) {
      decode_rows(z, [&](const Tensor& row, double rows) { take({row, sample, 0, done(rows)}); });
      continue;
    }
    int64_t frame = 0;
    decode_chunks(z, [&](const Tensor& frames, double chunks) {
      take({frames, sample, frame, done(chunks)});
      frame += frames.size(2);
    });
  }
}

Tensor AutoencoderKLCogVideoX::forward(const Tensor& sample, bool sample_posterior, const Generator& generator) const {
  const DiagonalGaussianDistribution posterior = encode(sample);
  return decode(sample_posterior ? posterior.sample(generator) : posterior.mode());
}

SF_MODEL(AutoencoderKLCogVideoX)
    .doc(
        "diffusers' AutoencoderKLCogVideoX: videos [B, 3, T, H, W] in [-1, 1] to normal distributions of latents [B, "
        "16, 1 + (T - 1) / 4, H / 8, W / 8], and latents to videos.")
    .forward<&AutoencoderKLCogVideoX::forward>("sample, sample_posterior=False, generator=None")
    .method<&AutoencoderKLCogVideoX::moments>("moments", "x")
    .method<&AutoencoderKLCogVideoX::decode>("decode", "z")
    .method<&AutoencoderKLCogVideoX::tiled_encode>("tiled_encode", "x")
    .method<&AutoencoderKLCogVideoX::tiled_decode>("tiled_decode", "z")
    .field<&AutoencoderKLCogVideoX::use_slicing>("use_slicing")
    .field<&AutoencoderKLCogVideoX::use_tiling>("use_tiling")
    .field<&AutoencoderKLCogVideoX::num_sample_frames_batch_size>("num_sample_frames_batch_size")
    .field<&AutoencoderKLCogVideoX::num_latent_frames_batch_size>("num_latent_frames_batch_size")
    .field<&AutoencoderKLCogVideoX::tile_sample_min_height>("tile_sample_min_height")
    .field<&AutoencoderKLCogVideoX::tile_sample_min_width>("tile_sample_min_width")
    .field<&AutoencoderKLCogVideoX::tile_latent_min_height>("tile_latent_min_height")
    .field<&AutoencoderKLCogVideoX::tile_latent_min_width>("tile_latent_min_width")
    .field<&AutoencoderKLCogVideoX::tile_overlap_factor_height>("tile_overlap_factor_height")
    .field<&AutoencoderKLCogVideoX::tile_overlap_factor_width>("tile_overlap_factor_width");

}  // namespace sf::models
