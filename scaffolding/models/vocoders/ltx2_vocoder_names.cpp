#include "scaffolding/models/names/name_rules.h"

namespace sf::models {

namespace {

// Lightricks' files, behind "vocoder.": HiFi-GAN's names, and BigVGAN's of what is anti-aliased.
NameRules hifi_gan() {
  NameRules rules;
  rules.rename("conv_in", "conv_pre")
      .rename("conv_out", "conv_post")
      .rename("upsamplers", "ups")
      .rename("resnets", "resblocks")
      .rename("act_out", "act_post")
      .rename("act_out.downsample", "act_post.downsample.lowpass");
  for (const std::string acts : {"acts1", "acts2"})
    rules.rename("resnets.{i}." + acts + ".{j}.downsample", "resblocks.{i}." + acts + ".{j}.downsample.lowpass");
  return rules;
}

SF_NAMES(LTX2Vocoder, "ltx2").inside("", "", hifi_gan());
SF_NAMES(LTX2VocoderWithBWE, "ltx2")
    .inside("vocoder", "vocoder", hifi_gan())
    .inside("bwe_generator", "bwe_generator", hifi_gan())
    .same({"mel_stft"});

}  // namespace
}  // namespace sf::models
