#include "scaffolding/diffusion/pipelines/ltx2/ltx2_run.h"

#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/guidance.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

// ---- latents and tokens

Tensor ltx2_tokens(const LTX2Grid& g, const Tensor& latents) {
  const int64_t c = latents.size(1), p = g.patch, t = g.patch_t, f = g.frames / t, h = g.height / p, w = g.width / p;
  if (p == 1 && t == 1) return latents.flatten(2).transpose(1, 2).contiguous();
  return latents.reshape({latents.size(0), c, f, t, h, p, w, p})
      .permute({0, 2, 4, 6, 1, 3, 5, 7})
      .reshape({latents.size(0), f * h * w, c * t * p * p});
}

Tensor ltx2_latents(const LTX2Grid& g, const Tensor& tokens) {
  const int64_t n = tokens.size(0), p = g.patch, t = g.patch_t, c = tokens.size(2) / (t * p * p);
  const int64_t f = g.frames / t, h = g.height / p, w = g.width / p;
  return tokens.reshape({n, f, h, w, c, t, p, p})
      .permute({0, 4, 1, 5, 2, 6, 3, 7})
      .reshape({n, c, g.frames, g.height, g.width});
}

Tensor ltx2_audio_tokens(const Tensor& latents) { return latents.transpose(1, 2).flatten(2, 3).contiguous(); }

Tensor ltx2_audio_latents(const Tensor& tokens, int64_t channels) {
  return tokens.reshape({tokens.size(0), tokens.size(1), channels, tokens.size(2) / channels}).transpose(1, 2);
}

// ---- a step

struct LTX2Run::Streams {
  Tensor video, audio;  // float32 [B, N, C] and [B, L, D]
  Streams half(int64_t which) const { return {video.chunk(2, 0)[size_t(which)], audio.chunk(2, 0)[size_t(which)]}; }
};

void LTX2Run::prepare_step() {
  const int64_t batch = latents.size(0);
  if (!guidance.on()) {  // a callback may have turned it off, for good
    for (auto& a : told)
      if (a.tensor && !is_shared(a.role) && a.tensor.ndim() > 0 && a.tensor.size(0) == 2 * batch)
        a.tensor = a.tensor.narrow(0, batch, batch);
  }
  auto both = [&](const Tensor& t) { return guidance.on() ? cat({t, t}, 0) : t; };
  told.at("audio_hidden_states") = both(audio_latents);
  if (strength) told.at("timestep") = both(schedule.told_timestep(at()) * (1 - strength.squeeze(-1)));
}

LTX2Run::Streams LTX2Run::asked(Denoiser& denoiser, const DenoiserCall& call) const {
  const Tensors out = denoiser.outputs(call);
  SF_CHECK_AS(RuntimeError, out.size() >= 2, "LTX2: the transformer must give a clip's sample and its sound's, got ",
              out.size(), " tensors");
  return {out[0].to(kFloat32), out[1].to(kFloat32)};
}

double LTX2Run::sigma() const {
  const Tensor& sigmas = scheduler->sigmas();
  return sigmas ? sigmas.select(0, int64_t(at())).item<double>()
                : schedule.values[at()] / double(scheduler->num_train_timesteps());
}

// What the denoiser gives are velocities, and guidance is of the signals that they lead to.
Tensor LTX2Run::guided(const LTX2Scales& scales, const Tensor& sample, const Tensor& text, const Tensor& negative,
                       const Tensor& unattending, const Tensor& alone) const {
  const double noise = sigma();
  auto signal = [&](const Tensor& velocity) { return sample - velocity * noise; };
  const Tensor x = signal(text);
  Tensor guided = x;
  auto away_from = [&](const Tensor& velocity, double scale) {
    if (velocity) guided = guided + scale * (x - signal(velocity));
  };
  away_from(negative, scales.guidance - 1);
  away_from(unattending, scales.stg);
  away_from(alone, scales.modality - 1);
  return scales.rescale > 0 ? rescale_noise_cfg(guided, x, scales.rescale) : guided;
}

Tensor LTX2Run::predicted(Denoiser& denoiser, const Tensor& samples, const DenoiserCall& given) {
  cpu::LeanMemory lean;
  const int64_t n = samples.size(0);
  const Tensor timestep = schedule.told_timestep(at()), x = samples.to(narrow);
  DenoiserCall call = given;
  Tensor& heard = call.at("audio_hidden_states");
  const Tensor sound = heard.narrow(0, heard.size(0) - n, n);  // as it is kept
  heard = heard.to(narrow);

  Streams text, negative, unattending, alone;
  const DenoiserCall positive = guidance.on() ? call.half(1, n) : call;
  if (!guidance.on()) {
    text = asked(denoiser, call.with(x, timestep));
  } else if (guidance.mode == GuidanceMode::Batched) {
    const Streams all = asked(denoiser, call.with(cat({x, x}, 0), timestep));
    negative = all.half(0), text = all.half(1);
  } else {
    negative = asked(denoiser, call.half(0, n).with(x, timestep));
    text = asked(denoiser, positive.with(x, timestep));
  }
  auto asked_with = [&](DenoiserArgument setting) {
    DenoiserCall changed = positive.with(x, timestep);
    changed.push_back(std::move(setting));
    return asked(denoiser, changed);
  };
  if (stg_blocks) unattending = asked_with({"spatio_temporal_guidance_blocks", stg_blocks, ArgumentRole::Setting});
  if (video.modality > 1 || audio.modality > 1)
    alone = asked_with({"isolate_modalities", ones({}, kFloat32), ArgumentRole::Setting});

  LTX2Scales of_video = video;
  of_video.guidance = guidance.scale, of_video.rescale = guidance.rescale;
  return cat({guided(of_video, samples, text.video, negative.video, unattending.video, alone.video).flatten(1),
              guided(audio, sound, text.audio, negative.audio, unattending.audio, alone.audio).flatten(1)},
             1);
}

// From signals, as velocities. One step of one scheduler for both streams: its arithmetic is a number's at a time.
void LTX2Run::advance(const Tensor& signals) {
  const int64_t n = latents[0].numel();
  Tensor x = signals;
  if (strength) {
    const Tensor seen = x.narrow(1, 0, n).reshape(latents.shape());
    const Tensor told_too = seen * (1 - strength) + clean * strength;
    x = cat({told_too.flatten(1), x.narrow(1, n, x.size(1) - n)}, 1);
  }
  const Tensor both = cat({latents.flatten(1), audio_latents.flatten(1)}, 1);
  const Tensor velocity = (both - x) / sigma();
  const Tensor next = scheduler->step(velocity, schedule.values[at()], both, step_options).prev_sample;
  latents = next.narrow(1, 0, n).reshape(latents.shape()).contiguous();
  audio_latents = next.narrow(1, n, next.size(1) - n).reshape(audio_latents.shape()).contiguous();
}

void LTX2Run::keep_more(const Tensor& places) {
  for (Tensor* t :
       {&audio_latents, &strength, &clean, &decode_timestep, &decode_noise, &prompt_embeds, &negative_prompt_embeds})
    if (*t) *t = index_select(*t, 0, places.to(t->device()));
}

// ---- what comes of it

Tensor LTX2Run::video_of(const Tensor& tokens) const { return ltx2_latents(grid, tokens.narrow(1, 0, grid.tokens())); }

Tensor LTX2Run::decodable(const Tensor& of) const {
  const Tensor z = video_of(of).to(narrow);
  if (!decode_timestep) return z;
  const int64_t n = z.size(0);
  vae->tell_timestep(decode_timestep.narrow(0, 0, n).to(vae->device()).to(vae->dtype()));
  if (!done()) return z;  // previews draw nothing
  const Tensor noise = randn_tensor(z.shape(), step_options.generator, z.device(), z.dtype()),
               share = decode_noise.to(z.device()).to(z.dtype()).reshape({n, 1, 1, 1, 1});
  return (1 - share) * z + share * noise;
}

Tensor LTX2Run::returned_latents() const {
  const Tensor whole = video_of(latents);
  return vae ? vae->unscaled(whole) : whole;
}

Sound LTX2Run::sound() const {
  Tensor tokens = audio_latents;
  if (audio_vae)
    if (const auto range = audio_vae->latent_range(); range.mean)
      tokens = tokens * range.std.to(tokens.device()) + range.mean.to(tokens.device());
  const Tensor z = ltx2_audio_latents(tokens, grid.audio_channels);
  const int64_t rate = vocoder ? vocoder->config_int("output_sampling_rate", 24000) : 0;
  if (output_latents) return {z, rate};
  if (!audio_vae || !vocoder) return {};
  const Tensor mel = audio_vae->decode(z.to(audio_vae->device()).to(audio_vae->dtype()));
  const Tensor heard = mel.to(vocoder->device()).to(vocoder->dtype());
  return {vocoder->call({{"", heard, ArgumentRole::PerSample}}).at(0).to(kFloat32), rate};
}

}  // namespace sf::diffusion
