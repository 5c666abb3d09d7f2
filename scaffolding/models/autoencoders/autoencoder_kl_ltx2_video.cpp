#include "scaffolding/models/autoencoders/autoencoder_kl_ltx2_video.h"

#include <algorithm>

#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/models/autoencoders/tiles.h"
#include "scaffolding/models/parts/config_checks.h"

namespace sf::models {

io::Object the_same_for_blocks(size_t blocks, bool value) {
  return io::Object::container(io::Object::List, std::vector<io::Object>(blocks, io::Object(value)));
}

io::Fields AutoencoderKLLTX2VideoConfig::fields() {
  return {{"in_channels", &in_channels},
          {"out_channels", &out_channels},
          {"latent_channels", &latent_channels},
          {"block_out_channels", &block_out_channels},
          {"down_block_types", &down_block_types},
          {"decoder_block_out_channels", &decoder_block_out_channels},
          {"layers_per_block", &layers_per_block},
          {"decoder_layers_per_block", &decoder_layers_per_block},
          {"spatio_temporal_scaling", &spatio_temporal_scaling},
          {"decoder_spatio_temporal_scaling", &decoder_spatio_temporal_scaling},
          {"decoder_inject_noise", &decoder_inject_noise},
          {"downsample_type", &downsample_type},
          {"upsample_type", &upsample_type},
          {"upsample_residual", &upsample_residual},
          {"upsample_factor", &upsample_factor},
          {"timestep_conditioning", &timestep_conditioning},
          {"patch_size", &patch_size},
          {"patch_size_t", &patch_size_t},
          {"resnet_norm_eps", &resnet_norm_eps},
          {"scaling_factor", &scaling_factor},
          {"encoder_causal", &encoder_causal},
          {"decoder_causal", &decoder_causal},
          {"encoder_spatial_padding_mode", &encoder_spatial_padding_mode},
          {"decoder_spatial_padding_mode", &decoder_spatial_padding_mode},
          {"spatial_compression_ratio", &spatial_compression_ratio},
          {"temporal_compression_ratio", &temporal_compression_ratio}};
}

namespace {

using Ltx2Config = AutoencoderKLLTX2VideoConfig;

constexpr const char* kLtx2Vae = AutoencoderKLLTX2Video::kName;
constexpr size_t kMostBlocks = 16;

// More, as defaults are for fewer blocks, are not looked at.
void check_length(const char* field, size_t got, const char* of, size_t wanted) {
  SF_CHECK(got >= wanted, kLtx2Vae, ": ", field, " must have ", wanted, " entries for the blocks of ", of, ", got ",
           got);
}

std::vector<int64_t> each_block(const char* field, const io::Object& value, size_t blocks) {
  return io::ints_for_blocks(kLtx2Vae, field, value, blocks);
}

// What a block does to frames, lines and columns; empty for an unknown type.
Shape stride_of(const std::string& type) {
  if (type == "spatial") return {1, 2, 2};
  if (type == "temporal") return {2, 1, 1};
  return type == "spatiotemporal" ? Shape{2, 2, 2} : Shape{};
}

// What both halves ask of their lists.
void check_lists(const char* channels_field, const std::vector<int64_t>& channels, const char* layers_field,
                 const std::vector<int64_t>& layers) {
  SF_CHECK(!channels.empty() && channels.size() <= kMostBlocks, kLtx2Vae, ": ", channels_field, " must have 1 to ",
           kMostBlocks, " entries, got ", channels.size());
  for (int64_t n : channels) check_sizes(kLtx2Vae, {{channels_field, n}});
  SF_CHECK(layers.size() == channels.size() + 1, kLtx2Vae, ": ", layers_field, " must have one entry more than ",
           channels_field, ", for the middle, got ", layers.size(), " and ", channels.size());
  for (int64_t n : layers)
    SF_CHECK(n >= 1 && n <= kMostLayers, kLtx2Vae, ": ", layers_field, " must be between 1 and ", kMostLayers, ", got ",
             n);
}

LTX2VideoHalfOptions encoder_of(const Ltx2Config& c) {
  const size_t n = c.block_out_channels.size();
  const auto scaling = each_block("spatio_temporal_scaling", c.spatio_temporal_scaling, n);
  LTX2VideoHalfOptions half{.in_channels = c.in_channels,
                            .out_channels = c.latent_channels,
                            .patch_size = c.patch_size,
                            .mid_block = {},
                            .blocks = {}};
  LTX2VideoBlockOptions block{.eps = c.resnet_norm_eps, .padding_mode = c.encoder_spatial_padding_mode};
  block.out_channels = c.latent_channels;
  for (size_t i = 0; i < n; ++i) {
    block.in_channels = block.out_channels, block.out_channels = c.block_out_channels[i];
    block.num_layers = c.layers_per_block[i];
    block.by_convolution = c.downsample_type[i] == "conv";
    block.stride = !scaling[i] ? Shape{} : block.by_convolution ? Shape{2, 2, 2} : stride_of(c.downsample_type[i]);
    const int64_t in = block.in_channels, out = block.out_channels, factor = numel(block.stride);
    SF_CHECK(!scaling[i] || block.stride.size() == 3, kLtx2Vae,
             ": downsample_type must be conv, spatial, temporal or spatiotemporal, got '", c.downsample_type[i], "'");
    if (!scaling[i] || block.by_convolution)
      SF_CHECK(in == out, kLtx2Vae, ": block_out_channels must stay where a block ",
               scaling[i] ? "is scaled by a convolution" : "is not scaled", ", got ", out, " after ", in);
    else
      SF_CHECK(out % factor == 0 && in * factor % out == 0, kLtx2Vae, ": block_out_channels must be a multiple of ",
               factor, " and divide ", in * factor, ", ", factor, " times the channels before, got ", out);
    half.blocks.push_back(block);
  }
  half.mid_block = block;
  half.mid_block.in_channels = block.out_channels, half.mid_block.num_layers = c.layers_per_block[n];
  return half;
}

// diffusers gives most lists in the encoder's order, the types in the decoder's.
LTX2VideoHalfOptions decoder_of(const Ltx2Config& c) {
  const size_t n = c.decoder_block_out_channels.size();
  const auto scaling = each_block("decoder_spatio_temporal_scaling", c.decoder_spatio_temporal_scaling, n),
             noise = each_block("decoder_inject_noise", c.decoder_inject_noise, n + 1),
             residual = each_block("upsample_residual", c.upsample_residual, n);
  LTX2VideoHalfOptions half{.in_channels = c.latent_channels,
                            .out_channels = c.out_channels,
                            .patch_size = c.patch_size,
                            .mid_block = {},
                            .blocks = {}};
  LTX2VideoBlockOptions block{.eps = c.resnet_norm_eps,
                              .padding_mode = c.decoder_spatial_padding_mode,
                              .timestep_conditioning = c.timestep_conditioning};
  block.in_channels = block.out_channels = c.decoder_block_out_channels[n - 1];
  block.num_layers = c.decoder_layers_per_block[n], block.inject_noise = noise[n] != 0;
  half.mid_block = block;
  int64_t before = block.out_channels;
  for (size_t i = 0; i < n; ++i) {
    const size_t from = n - 1 - i;
    const int64_t channels = c.decoder_block_out_channels[from], factor = c.upsample_factor[from];
    const bool scales = scaling[from] != 0;
    block.stride = scales ? stride_of(c.upsample_type[i]) : Shape{};
    SF_CHECK(!scales || block.stride.size() == 3, kLtx2Vae,
             ": upsample_type must be spatial, temporal or spatiotemporal, got '", c.upsample_type[i], "'");
    SF_CHECK(factor >= 1 && channels % factor == 0, kLtx2Vae,
             ": upsample_factor must divide decoder_block_out_channels, got ", factor, " for ", channels);
    SF_CHECK(factor == 1 || (scales && before == channels), kLtx2Vae,
             ": upsample_factor must be 1 where a block is not ", "scaled or changes the channels otherwise, got ",
             factor, " for ", channels, " after ", before);
    block.in_channels = before / factor, block.out_channels = channels / factor;
    block.num_layers = c.decoder_layers_per_block[from], block.inject_noise = noise[from] != 0;
    block.residual = residual[from] != 0, block.upscale_factor = factor;
    const int64_t pixels = numel(block.stride);
    SF_CHECK(!scales || !block.residual || (pixels % factor == 0 && channels % pixels == 0), kLtx2Vae,
             ": upsample_residual needs an upsample_factor that divides the ", pixels,
             " pixels of a block and channels ", "that these divide, got ", factor, " and ", channels);
    SF_CHECK(block.in_channels == block.out_channels || !(block.inject_noise || c.timestep_conditioning), kLtx2Vae,
             ": timestep_conditioning and decoder_inject_noise need decoder_block_out_channels that only ",
             "upsample_factor changes, got ", block.out_channels, " after ", block.in_channels);
    before = block.out_channels;
    half.blocks.push_back(block);
  }
  return half;
}

Ltx2Config checked_ltx2(Ltx2Config c) {
  check_sizes(kLtx2Vae, {{"in_channels", c.in_channels},
                         {"out_channels", c.out_channels},
                         {"latent_channels", c.latent_channels},
                         {"patch_size", c.patch_size},
                         {"spatial_compression_ratio", c.spatial_compression_ratio.value_or(1)},
                         {"temporal_compression_ratio", c.temporal_compression_ratio.value_or(1)}});
  SF_CHECK(c.patch_size <= 64, kLtx2Vae, ": patch_size must be at most 64, got ", c.patch_size);
  SF_CHECK_AS(NotSupported, c.patch_size_t == 1, kLtx2Vae, ": patch_size_t must be 1, got ", c.patch_size_t);
  check_lists("block_out_channels", c.block_out_channels, "layers_per_block", c.layers_per_block);
  check_lists("decoder_block_out_channels", c.decoder_block_out_channels, "decoder_layers_per_block",
              c.decoder_layers_per_block);
  const size_t down = c.block_out_channels.size(), up = c.decoder_block_out_channels.size();
  check_length("down_block_types", c.down_block_types.size(), "the encoder", down);
  check_length("downsample_type", c.downsample_type.size(), "the encoder", down);
  check_length("upsample_type", c.upsample_type.size(), "the decoder", up);
  SF_CHECK(c.upsample_factor.size() == up, kLtx2Vae, ": upsample_factor must have one entry for each of the ", up,
           " blocks, got ", c.upsample_factor.size());
  for (auto& type : c.down_block_types)
    SF_CHECK(type == "LTX2VideoDownBlock3D", kLtx2Vae, ": down_block_types must be LTX2VideoDownBlock3D, got '", type,
             "'");
  return c;
}

// What a half really does to frames (0) or to sides (1).
int64_t ratio_of(const LTX2VideoHalfOptions& half, int64_t dim) {
  int64_t ratio = dim == 0 ? 1 : half.patch_size;
  for (auto& block : half.blocks)
    if (block.stride.size() > 0) ratio *= block.stride[dim];
  return ratio;
}

// diffusers takes every block that scales for one that halves frames and sides.
int64_t default_ratio(const Ltx2Config& c, int64_t patch) {
  const auto scaling = each_block("spatio_temporal_scaling", c.spatio_temporal_scaling, c.block_out_channels.size());
  return patch << std::count_if(scaling.begin(), scaling.end(), [](int64_t on) { return on != 0; });
}

// Whether a side, or (dim 0) a number of frames, goes through the encoder. Frames are doubled but for the first one;
// convolutions that leave frames and pixels out take any number.
bool fits(const LTX2VideoHalfOptions& half, int64_t dim, int64_t n) {
  if (dim > 0 && n % half.patch_size != 0) return false;
  if (dim > 0) n /= half.patch_size;
  for (auto& block : half.blocks) {
    if (block.stride.size() == 0 || block.stride[dim] == 1) continue;
    if (!block.by_convolution && n % 2 != (dim == 0 ? 1 : 0)) return false;
    n = (n + 1) / 2;
  }
  return n > 0;
}

void check_ltx2_video(const char* method, const char* name, const Tensor& x, int64_t channels) {
  const std::string who = std::string(kLtx2Vae) + "." + method;
  check_defined(who.c_str(), name, x);
  SF_CHECK(x.ndim() == 5 && x.size(1) == channels && x.size(2) > 0, who, ": ", name, " must be [B, ", channels,
           ", T, H, W], got ", x.shape());
}

// A side's tiles, of which `size` and `step` pixels are whole latents: what goes in, and what comes out.
Tiling tiling(const char* side, int64_t size, int64_t step, int64_t ratio, int64_t real_ratio, bool decodes) {
  SF_CHECK(ratio == real_ratio, kLtx2Vae, ": tiles need the compression ratio that the network has, ", real_ratio,
           " for each ", side, ", got ", ratio, " in the config");
  SF_CHECK(size % ratio == 0 && step % ratio == 0 && step > 0 && step <= size, kLtx2Vae, ": tiles' ", side,
           " and strides must be multiples of ", ratio, ", the strides no larger, got ", size, " and ", step);
  const Tiling pixels{size, step, size - step, step},
      latents{size / ratio, step / ratio, (size - step) / ratio, step / ratio};
  return decodes ? Tiling{latents.size, latents.step, pixels.extent, pixels.kept}
                 : Tiling{pixels.size, pixels.step, latents.extent, latents.kept};
}

// take(tile(a run of frames), the share that is done), in all `frames`: of runs that are one frame longer than t.size,
// from t.step to t.step, and that pass into each other. Of what each one gives, but the first, a frame is left out: the
// first one or the last.
template <class F, class Take>
void in_runs_of_frames(const Tensor& x, const Tiling& t, bool first_left_out, int64_t frames, const F& tile,
                       const Take& take) {
  Tensor before;  // frames that go over into the next run's
  for (int64_t i = 0, done = 0; i < x.size(2) && done < frames; i += t.step) {
    stop_here(kLtx2Vae);
    Tensor run = tile(x.slice(2, i, i + t.size + 1));
    if (i > 0) {
      run = run.narrow(2, first_left_out ? 1 : 0, run.size(2) - 1);
      run = blend(before, run, 2, t.extent);
    }
    const int64_t kept = std::min({t.kept + (i == 0), run.size(2), frames - done}),
                  over = std::min(t.extent, run.size(2));
    before = run.narrow(2, run.size(2) - over, over).clone();
    done += kept;
    if (kept > 0) take(run.narrow(2, 0, kept), double(done) / double(frames));
  }
}

// Parts behind each other along dim: each_part(take) takes them one by one.
template <class F> Tensor all_parts(int64_t dim, const F& each_part) {
  Tensors parts;
  each_part([&](const Tensor& part, double) { parts.push_back(part); });
  return parts.size() == 1 ? parts[0] : cat(parts, dim);
}

// Channels-last where x is, which may be some channels of another tensor.
Tensor laid_as(const Tensor& x, const Tensor& y) { return x.size(1) > 1 && x.strides()[1] == 1 ? y : y.contiguous(); }

}  // namespace

AutoencoderKLLTX2Video::AutoencoderKLLTX2Video(Config config)
    : ConfiguredModel(checked_ltx2(std::move(config))),
      encoder(encoder_of(options)),
      decoder(decoder_of(options)),
      latents_mean(zeros({options.latent_channels})),
      latents_std(ones({options.latent_channels})),
      spatial_compression_ratio(options.spatial_compression_ratio.value_or(default_ratio(options, options.patch_size))),
      temporal_compression_ratio(options.temporal_compression_ratio.value_or(default_ratio(options, 1))) {}

bool AutoencoderKLLTX2Video::has_large_pictures(const Tensor& x, int64_t ratio) const {
  return use_tiling && (x.size(4) > tile_sample_min_width / ratio || x.size(3) > tile_sample_min_height / ratio);
}
bool AutoencoderKLLTX2Video::decodes_by_frames(const Tensor& z) const {
  return use_framewise_decoding && z.size(2) > tile_sample_min_num_frames / temporal_compression_ratio;
}

// ---- encoding

Tensor AutoencoderKLLTX2Video::encoded(const Tensor& x, bool causal) const {
  const LTX2VideoHalfOptions half = encoder_of(options);
  SF_CHECK(fits(half, 0, x.size(2)) && fits(half, 1, x.size(3)) && fits(half, 2, x.size(4)), kLtx2Vae,
           ".encode: x must have ", ratio_of(half, 0), " k + 1 frames and sides that are multiples of ",
           ratio_of(half, 1), ", got ", x.shape());
  return encoder(x, causal);
}

Tensor AutoencoderKLLTX2Video::encoded_in_tiles(const Tensor& x, bool causal) const {
  const int64_t ratio = spatial_compression_ratio, real = ratio_of(encoder_of(options), 1);
  return in_tiles(kLtx2Vae, x, tiling("height", tile_sample_min_height, tile_sample_stride_height, ratio, real, false),
                  tiling("width", tile_sample_min_width, tile_sample_stride_width, ratio, real, false),
                  [&](const Tensor& tile) { return encoded(tile, causal); });
}

Tensor AutoencoderKLLTX2Video::encoded_by_frames(const Tensor& x, bool causal) const {
  const int64_t ratio = temporal_compression_ratio;
  const Tiling runs = tiling("number of frames", tile_sample_min_num_frames, tile_sample_stride_num_frames, ratio,
                             ratio_of(encoder_of(options), 0), false);
  const auto of_run = [&](const Tensor& run) {
    return has_large_pictures(run, 1) ? encoded_in_tiles(run, causal) : encoded(run, causal);
  };
  return all_parts(
      2, [&](const auto& take) { in_runs_of_frames(x, runs, true, (x.size(2) - 1) / ratio + 1, of_run, take); });
}

Tensor AutoencoderKLLTX2Video::moments(const Tensor& videos, std::optional<bool> causal_or_config) const {
  check_ltx2_video("encode", "x", videos, options.in_channels);
  const bool causal = causal_or_config.value_or(false) || options.encoder_causal;
  const Tensor y = in_slices(videos, use_slicing, [&](const Tensor& x) {
    const bool by_frames = use_framewise_encoding || use_framewise_decoding;
    if (by_frames && x.size(2) > tile_sample_min_num_frames) return encoded_by_frames(x, causal);
    return has_large_pictures(x, 1) ? encoded_in_tiles(x, causal) : encoded(x, causal);
  });
  return laid_as(videos, y);
}

Tensor AutoencoderKLLTX2Video::tiled_encode(const Tensor& x, std::optional<bool> causal) const {
  check_ltx2_video("tiled_encode", "x", x, options.in_channels);
  return laid_as(x, encoded_in_tiles(x, causal.value_or(false) || options.encoder_causal));
}

// ---- decoding

AutoencoderKLLTX2Video::Call AutoencoderKLLTX2Video::call_of(const char* method, const Tensor& z, const Tensor& temb,
                                                             std::optional<bool> causal) const {
  check_ltx2_video(method, "z", z, options.latent_channels);
  const std::string who = std::string(kLtx2Vae) + "." + method;
  Call call{{}, causal.value_or(false) || options.decoder_causal};
  if (!options.timestep_conditioning) return call;
  check_defined(who.c_str(), "temb", temb);
  SF_CHECK(temb.numel() == z.size(0), who, ": temb must be one number for each of the ", z.size(0), " videos, got ",
           temb.shape());
  call.temb = temb.flatten();
  return call;
}

// A side of one latent, which cannot be reflected and which the last tile may have, is decoded as two equal ones.
Tensor AutoencoderKLLTX2Video::decoded(const Tensor& z, const Call& call) const {
  if (options.decoder_spatial_padding_mode == "reflect")
    for (int64_t side : {3, 4})
      if (z.size(side) == 1) {
        const Tensor both = decoded(cat({z, z}, side), call);
        return both.narrow(side, 0, both.size(side) / 2);
      }
  return decoder(z, call.temb, call.causal);
}

template <class Take>
void AutoencoderKLLTX2Video::decode_rows(const Tensor& z, const Call& call, const Take& take) const {
  const int64_t ratio = spatial_compression_ratio, real = ratio_of(decoder_of(options), 1);
  in_rows_of_tiles(
      kLtx2Vae, z, tiling("height", tile_sample_min_height, tile_sample_stride_height, ratio, real, true),
      tiling("width", tile_sample_min_width, tile_sample_stride_width, ratio, real, true),
      [&](const Tensor& tile) { return decoded(tile, call); }, take);
}

Tensor AutoencoderKLLTX2Video::decoded_in_tiles(const Tensor& z, const Call& call) const {
  return all_parts(3, [&](const auto& take) { decode_rows(z, call, take); });
}

template <class Take>
void AutoencoderKLLTX2Video::decode_frames(const Tensor& z, const Call& call, const Take& take) const {
  const int64_t ratio = temporal_compression_ratio;
  const Tiling runs = tiling("number of frames", tile_sample_min_num_frames, tile_sample_stride_num_frames, ratio,
                             ratio_of(decoder_of(options), 0), true);
  const auto of_run = [&](const Tensor& run) {
    return has_large_pictures(run, spatial_compression_ratio) ? decoded_in_tiles(run, call) : decoded(run, call);
  };
  in_runs_of_frames(z, runs, false, (z.size(2) - 1) * ratio + 1, of_run, take);
}

void AutoencoderKLLTX2Video::decode_in_parts(const Tensor& latents, const TakeVideoPart& take, const Tensor& temb,
                                             std::optional<bool> causal) const {
  const Call all = call_of("decode", latents, temb, causal);
  cpu::LeanMemory lean;
  const int64_t batch = latents.size(0), at_a_time = use_slicing ? 1 : batch;
  for (int64_t sample = 0; sample < batch; sample += at_a_time) {
    if (sample > 0) stop_here(kLtx2Vae);
    const Tensor z = latents.narrow(0, sample, at_a_time);
    const Call call{all.temb ? all.temb.narrow(0, sample, at_a_time) : Tensor(), all.causal};
    const auto done = [&](double of_these) { return (double(sample) + of_these * double(at_a_time)) / double(batch); };
    int64_t frame = 0;
    if (decodes_by_frames(z))
      decode_frames(z, call, [&](const Tensor& frames, double share) {
        take({frames, sample, frame, done(share)});
        frame += frames.size(2);
      });
    else if (has_large_pictures(z, spatial_compression_ratio))
      decode_rows(z, call, [&](const Tensor& row, double share) { take({row, sample, 0, done(share)}); });
    else take({decoded(z, call), sample, 0, done(1)});
  }
}

// Of one size all parts that belong to the same samples: runs of frames, or rows of tiles.
Tensor AutoencoderKLLTX2Video::decode(const Tensor& latents, const Tensor& temb, std::optional<bool> causal) const {
  Tensors samples, parts;
  int64_t of = 0;
  const auto together = [&] {
    if (!parts.empty())
      samples.push_back(parts.size() == 1 ? parts[0] : cat(parts, decodes_by_frames(latents) ? 2 : 3));
    parts.clear();
  };
  const auto take = [&](const VideoPart& part) {
    if (part.sample != of) together();
    of = part.sample;
    parts.push_back(part.values);
  };
  decode_in_parts(latents, take, temb, causal);
  together();
  return laid_as(latents, samples.size() == 1 ? samples[0] : cat(samples));
}

Tensor AutoencoderKLLTX2Video::tiled_decode(const Tensor& z, const Tensor& temb, std::optional<bool> causal) const {
  const Call call = call_of("tiled_decode", z, temb, causal);
  cpu::LeanMemory lean;
  return laid_as(z, decoded_in_tiles(z, call));
}

Tensor AutoencoderKLLTX2Video::forward(const Tensor& sample, const Tensor& temb, bool sample_posterior,
                                       std::optional<bool> encoder_causal, std::optional<bool> decoder_causal,
                                       const Generator& generator) const {
  const DiagonalGaussianDistribution posterior = encode(sample, encoder_causal);
  return decode(sample_posterior ? posterior.sample(generator) : posterior.mode(), temb, decoder_causal);
}

SF_MODEL(AutoencoderKLLTX2Video)
    .doc(
        "diffusers' AutoencoderKLLTX2Video: videos [B, 3, T, H, W] in [-1, 1] to normal distributions of latents [B, "
        "128, 1 + (T - 1) / 8, H / 32, W / 32], and latents to videos.")
    .forward<&AutoencoderKLLTX2Video::forward>(
        "sample, temb=None, sample_posterior=False, encoder_causal=None, decoder_causal=None, generator=None")
    .method<&AutoencoderKLLTX2Video::moments>("moments", "x, causal=None")
    .method<&AutoencoderKLLTX2Video::decode>("decode", "z, temb=None, causal=None")
    .method<&AutoencoderKLLTX2Video::tiled_encode>("tiled_encode", "x, causal=None")
    .method<&AutoencoderKLLTX2Video::tiled_decode>("tiled_decode", "z, temb=None, causal=None")
    .field<&AutoencoderKLLTX2Video::spatial_compression_ratio>("spatial_compression_ratio")
    .field<&AutoencoderKLLTX2Video::temporal_compression_ratio>("temporal_compression_ratio")
    .field<&AutoencoderKLLTX2Video::use_slicing>("use_slicing")
    .field<&AutoencoderKLLTX2Video::use_tiling>("use_tiling")
    .field<&AutoencoderKLLTX2Video::use_framewise_encoding>("use_framewise_encoding")
    .field<&AutoencoderKLLTX2Video::use_framewise_decoding>("use_framewise_decoding")
    .field<&AutoencoderKLLTX2Video::tile_sample_min_height>("tile_sample_min_height")
    .field<&AutoencoderKLLTX2Video::tile_sample_min_width>("tile_sample_min_width")
    .field<&AutoencoderKLLTX2Video::tile_sample_min_num_frames>("tile_sample_min_num_frames")
    .field<&AutoencoderKLLTX2Video::tile_sample_stride_height>("tile_sample_stride_height")
    .field<&AutoencoderKLLTX2Video::tile_sample_stride_width>("tile_sample_stride_width")
    .field<&AutoencoderKLLTX2Video::tile_sample_stride_num_frames>("tile_sample_stride_num_frames");

}  // namespace sf::models
