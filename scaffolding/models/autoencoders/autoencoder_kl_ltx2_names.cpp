// LTX-2's autoencoder of videos in Lightricks' files. Both halves are lists of blocks there, in which what changes the
// size is a block of its own and the middle is the encoder's last and the decoder's first one. diffusers'
// scripts/convert_ltx2_to_diffusers.py says which tensor is which.
#include <algorithm>

#include "scaffolding/io/checkpoint.h"
#include "scaffolding/models/autoencoders/autoencoder_kl_ltx2_video.h"
#include "scaffolding/models/names/name_rules.h"

namespace sf::models {

namespace {

std::string at(const std::string& list, int64_t i) { return list + "." + std::to_string(i); }

void ltx(const TensorList& vae, NameRules& rules) {
  int64_t place = 0;
  auto block = [&](const std::string& ours, const std::string& theirs) {
    rules.rename(ours + ".resnets", at(theirs, place++) + ".res_blocks");
  };
  auto resampling = [&](const std::string& ours, const std::string& theirs) {
    if (vae.has(ours)) rules.rename(ours, at(theirs, place++));
  };
  for (int64_t i = 0; i < vae.count("encoder.down_blocks"); ++i) {
    const std::string ours = at("encoder.down_blocks", i);
    block(ours, "encoder.down_blocks");
    resampling(ours + ".downsamplers.0", "encoder.down_blocks");
  }
  block("encoder.mid_block", "encoder.down_blocks");
  place = 0;
  block("decoder.mid_block", "decoder.up_blocks");
  for (int64_t i = 0; i < vae.count("decoder.up_blocks"); ++i) {
    const std::string ours = at("decoder.up_blocks", i);
    resampling(ours + ".upsamplers.0", "decoder.up_blocks");
    block(ours, "decoder.up_blocks");
  }
}

// No file is of a decoder that is told timesteps, whose time embedders there have the names of others here.
SF_NAMES(AutoencoderKLLTX2Video, "ltx")
    .same({"encoder.conv_in", "encoder.conv_out", "decoder.conv_in", "decoder.conv_out"})
    .rename("latents_mean", "per_channel_statistics.mean-of-means")
    .rename("latents_std", "per_channel_statistics.std-of-means")
    .with(ltx);

}  // namespace

io::Object AutoencoderKLLTX2Video::config_of_weights(const std::vector<io::CheckpointEntry>& tensors) {
  auto has = [&](std::string_view part) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](auto& t) { return std::string_view(t.name).find(part) != std::string_view::npos; });
  };
  Config c;
  c.decoder_causal = false, c.spatial_compression_ratio = 32, c.temporal_compression_ratio = 8;
  c.timestep_conditioning = has("decoder.timestep_scale_multiplier");
  if (has("decoder.up_blocks.8.res_blocks.") || has("decoder.up_blocks.3.resnets.")) {
    c.block_out_channels = {256, 512, 1024, 1024};
    c.decoder_block_out_channels = {256, 512, 512, 1024};
    c.layers_per_block = c.decoder_layers_per_block = {4, 6, 4, 2, 2};
    c.decoder_spatio_temporal_scaling = the_same_for_blocks(4, true);
    c.decoder_inject_noise = the_same_for_blocks(5, false);
    c.upsample_type = {"spatiotemporal", "spatiotemporal", "temporal", "spatial"};
    c.upsample_residual = the_same_for_blocks(4, false);
    c.upsample_factor = {2, 2, 1, 2};
    c.decoder_spatial_padding_mode = "zeros";
  }
  return io::write_fields(c.fields());
}

}  // namespace sf::models
