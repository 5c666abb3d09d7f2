#include "scaffolding/models/names/name_rules.h"

namespace sf::models {

namespace {

// Lightricks' files, behind "audio_vae.".
SF_NAMES(AutoencoderKLLTX2Audio, "ltx2")
    .same({"encoder", "decoder"})
    .rename("latents_mean", "per_channel_statistics.mean-of-means")
    .rename("latents_std", "per_channel_statistics.std-of-means");

}  // namespace
}  // namespace sf::models
