// LTX2Run: a clip's latents and those of its sound, from step to step. Tokens are patches of latents [B, N, channels],
// and spans of the sound [B, L, channels * mel]; the run's `latents` are the former. Behind the clip's own tokens may
// be others, of pictures that it is told.
#pragma once
#include "scaffolding/diffusion/pipelines/run.h"

namespace sf::diffusion {

// A clip in latents, and how they become tokens; its sound in latents.
struct LTX2Grid {
  int64_t batch = 1, channels = 0, frames = 0, height = 0, width = 0;
  int64_t patch = 1, patch_t = 1;
  int64_t audio_channels = 0, audio_frames = 0, mel = 0;
  Shape latents() const { return {batch, channels, frames, height, width}; }
  Shape audio_latents() const { return {batch, audio_channels, audio_frames, mel}; }
  int64_t tokens() const { return (frames / patch_t) * (height / patch) * (width / patch); }
};
Tensor ltx2_tokens(const LTX2Grid& grid, const Tensor& latents);    // [B, C, F, h, w] -> [B, N, C patch_t patch²]
Tensor ltx2_latents(const LTX2Grid& grid, const Tensor& tokens);    // and back
Tensor ltx2_audio_tokens(const Tensor& latents);                    // [B, C, L, M] -> [B, L, C M]
Tensor ltx2_audio_latents(const Tensor& tokens, int64_t channels);  // and back

// How much of each kind of guidance one of the streams gets.
struct LTX2Scales {
  double guidance = 1;  // on above 1
  double stg = 0;       // spatio-temporal guidance (Hyung et al. 2024, arXiv 2411.18664); on above 0
  double modality = 1;  // away from the stream without the other one; on above 1
  double rescale = 0;
};

struct LTX2Run : Run {
  LTX2Run() { shares_calls = false; }
  LTX2Grid grid;
  LTX2Scales video, audio;  // video.guidance and .rescale: as `guidance` says, which callbacks change
  Tensor stg_blocks;        // float [n]: blocks that do not attend for spatio-temporal guidance
  Tensor audio_latents;     // tokens
  // Of tokens that are told: [B, N, 1] from 0 for those that are made to 1 for those that stay as they are, and what
  // they should be [B, N, channels]; undefined: all are made.
  Tensor strength, clean;
  Tensor prompt_embeds, negative_prompt_embeds;  // for callbacks, where there is one
  Tensor decode_timestep, decode_noise;          // [B], of an autoencoder that is told of noise
  DType narrow = kFloat32;                       // of the text, as which the networks get latents
  Ref<Autoencoder> vae, audio_vae;
  Ref<Network> vocoder;

  Tensor decodable(const Tensor& latents) const override;
  Tensor still(const Tensor& latents) const override { return video_of(latents).select(2, 0); }
  Tensor returned_latents() const override;
  Sound sound() const override;

 protected:
  void prepare_step() override;
  Tensor predicted(Denoiser& denoiser, const Tensor& samples,
                   const DenoiserCall& call) override;  // signals [B, numbers of both]
  void advance(const Tensor& signals) override;
  void keep_more(const Tensor& places) override;
  Tensor shaped(const Tensor& values) const override { return values.permute({0, 2, 1, 3, 4}); }

 private:
  struct Streams;
  Tensor video_of(const Tensor& tokens) const;  // without those behind it: [B, C, F, h, w]
  Streams asked(Denoiser& denoiser, const DenoiserCall& call) const;
  double sigma() const;
  // What guidance makes of a stream's velocities: its signal.
  Tensor guided(const LTX2Scales& scales, const Tensor& sample, const Tensor& text, const Tensor& negative,
                const Tensor& unattending, const Tensor& alone) const;
};

}  // namespace sf::diffusion
