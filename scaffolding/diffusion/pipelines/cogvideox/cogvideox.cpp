#include "scaffolding/diffusion/pipelines/cogvideox/cogvideox.h"

#include <cmath>
#include <numbers>

#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/cogvideox/positions.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

CogVideoXOptions::CogVideoXOptions() { guidance_scale = 6; }

OptionFields CogVideoXOptions::fields() {
  return OptionFields{
             {"prompt", &prompt, "what the clips show: a text or a list of them"},
             {"negative_prompt", &negative_prompt, "what they should not show: one for all, or one for each prompt"},
             {"height", &height, "pixels; absent: what the model was trained on"},
             {"width", &width, "pixels; absent: what the model was trained on"},
             {"num_frames", &num_frames,
              "of a clip, 4 k + 1 where latents have 4 in one; absent: what the model was trained on"},
             {"timesteps", &timesteps, "timesteps of one's own, where the scheduler takes them"},
             {"guidance_scale", &guidance_scale, "how closely to follow the prompt; on above 1"},
             {"use_dynamic_cfg", &use_dynamic_cfg, "guidance grows from step to step, up to 1 + guidance_scale"},
             {"num_videos_per_prompt", &num_images_per_prompt, "clips of each prompt"},
             {"eta", &eta, "DDIM: 0 adds no noise in the steps, 1 as much as DDPM"},
             {"prompt_embeds", &prompt_embeds, "[prompts, tokens, features] instead of prompts"},
             {"negative_prompt_embeds", &negative_prompt_embeds,
              "[prompts, tokens, features] instead of negative prompts"},
             {"max_sequence_length", &max_sequence_length, "tokens of a prompt"},
         } +
         fields_of_every_call(*this);
}

// ---- a run

void CogVideoXRun::prepare_step() {
  if (!guidance.varies) return;
  const auto n = double(schedule.num_inference_steps);
  const double done = (n - schedule.values[at()]) / n;  // diffusers' arithmetic: a timestep is no number of steps
  guidance.scale = 1 + guidance_scale * (1 - std::cos(std::numbers::pi * std::pow(done, 5.0))) / 2;
}

void CogVideoXRun::advance(const Tensor& model_output) {
  StepOptions options = step_options;
  if (scheduler->step_parameters().find("old_pred_original_sample") != std::string_view::npos) {
    options.old_pred_original_sample = predicted_;
    if (at() > 0) options.timestep_back = schedule.values[at() - 1];
  }
  StepOutput out = scheduler->step(model_output, schedule.values[at()], latents, options);
  latents = out.prev_sample.to(prompt_embeds().dtype());
  predicted_ = out.pred_original_sample;
}

void CogVideoXRun::keep_more(const Tensor& places) {
  for (Tensor* t : {&negative_prompt_embeds, &predicted_})
    if (*t) *t = index_select(*t, 0, places.to(t->device()));
}

// ---- sizes

int64_t CogVideoXBase::frames_per_latent() const { return vae ? vae->config_int("temporal_compression_ratio", 4) : 1; }

DiffusionPipeline::Size CogVideoXBase::size(std::optional<int64_t> height, std::optional<int64_t> width) const {
  const int64_t scale = vae_scale_factor(), h = transformer->config_int("sample_height", 0),
                w = transformer->config_int("sample_width", 0);
  if (!h || !w) return TextPipeline::size(height, width);
  return {height.value_or(h * scale), width.value_or(w * scale)};
}

int64_t CogVideoXBase::num_frames(const CogVideoXOptions& o) const {
  return o.num_frames.value_or(transformer->config_int("sample_frames", 49));
}

CogVideoXBase::Clip CogVideoXBase::clip(const CogVideoXOptions& o) const {
  const auto [height, width] = size(o.height, o.width);
  const int64_t frames = num_frames(o);
  const int64_t scale = vae_scale_factor(), side = scale * transformer->config_int("patch_size", 2),
                ratio = frames_per_latent(), patch = transformer->config_int("patch_size_t", 1);
  for (auto [what, v] : {std::pair{"height", height}, {"width", width}})
    SF_CHECK(v > 0 && v % side == 0, name(), ": height and width must be divisible by ", side, ", got ", what, "=", v);
  SF_CHECK(ratio > 1 || frames > 0, name(), ": num_frames must be above 0, got ", frames);
  SF_CHECK(frames > 0 && (frames - 1) % ratio == 0, name(), ": num_frames must be ", ratio, " k + 1, got ", frames,
           "; the closest are ", std::max<int64_t>(1, (frames - 1) / ratio * ratio + 1), " and ",
           (std::max<int64_t>(frames, 1) - 1) / ratio * ratio + ratio + 1);
  const int64_t latent_frames = (frames - 1) / ratio + 1, surplus = (patch - latent_frames % patch) % patch;
  return {prompts(o) * o.num_images_per_prompt, latent_frames + surplus, height / scale, width / scale, surplus};
}

// ---- the prompt

CogVideoXEmbeds CogVideoXBase::encode_prompt(const CogVideoXOptions& o) const {
  const bool guided = guidance(o).on(), encodes = text_encoder && tokenizer;
  SF_CHECK(o.max_sequence_length > 0, name(), ": max_sequence_length must be positive, got ", o.max_sequence_length);
  SF_CHECK(encodes || (o.prompt_embeds && o.negative_prompt.empty()), name(),
           ": has no text_encoder and tokenizer to encode prompts with; pass prompt_embeds and negative_prompt_embeds");
  int64_t length = o.max_sequence_length;
  if (tokenizer) length = std::min(length, tokenizer->config().model_max_length);  // which a small model was trained on
  const TextOptions text{.length = length};
  CogVideoXEmbeds out{o.prompt_embeds, {}, {}};
  if (!out.prompt_embeds) {
    TextEmbeds words = embed_prompts(*tokenizer, *text_encoder, o.prompt, text);
    out.prompt_embeds = words.embeds, out.truncated = words.truncated;
  }
  const DType dtype = text_encoder ? text_encoder->dtype() : transformer->dtype();
  auto ready = [&](const Tensor& embeds) { return embeds.to(dtype).to(transformer->device()); };
  out.prompt_embeds = ready(out.prompt_embeds);
  if (guided) {
    Tensor embeds = o.negative_prompt_embeds;
    if (!embeds && !encodes) embeds = zeros_like(out.prompt_embeds);  // nobody knows what the empty prompt is
    if (!embeds)
      embeds = embed_prompts(*tokenizer, *text_encoder,
                             o.negative_prompt.empty() ? std::vector<std::string>{""} : o.negative_prompt, text)
                   .embeds;
    embeds = fill_batch(name(), "negative prompts", ready(embeds), out.prompt_embeds.size(0));
    SF_CHECK(embeds.shape() == out.prompt_embeds.shape(), name(),
             ": prompt_embeds and negative_prompt_embeds must have one shape, got ", out.prompt_embeds.shape(), " and ",
             embeds.shape());
    out.negative_prompt_embeds = repeated_samples(embeds, o.num_images_per_prompt);
  }
  out.prompt_embeds = repeated_samples(out.prompt_embeds, o.num_images_per_prompt);
  return out;
}

std::vector<std::pair<std::string, Tensor>> CogVideoXBase::prompt_tensors(const CogVideoXOptions& o) const {
  auto e = encode_prompt(o);
  return {{"prompt_embeds", e.prompt_embeds}, {"negative_prompt_embeds", e.negative_prompt_embeds}};
}

// ---- before the first step

Tensor CogVideoXBase::rotary_positions(const Clip& c) const {
  const CogVideoXPatches patches{.patch_size = transformer->config_int("patch_size", 2),
                                 .patch_size_t = transformer->config_int("patch_size_t", 0),
                                 .sample_height = transformer->config_int("sample_height", 60),
                                 .sample_width = transformer->config_int("sample_width", 90),
                                 .attention_head_dim = transformer->config_int("attention_head_dim", 64)};
  return cogvideox_positions(patches, c.frames, c.height, c.width, transformer->device());
}

std::unique_ptr<CogVideoXRun> CogVideoXBase::prepare_run(const CogVideoXOptions& o) const {
  check_call(o);
  const Clip c = clip(o);
  auto run = std::make_unique<CogVideoXRun>();
  run->guidance = guidance(o);
  run->guidance.wide = true;
  run->guidance.varies = o.use_dynamic_cfg && run->guidance.on();
  run->guidance_scale = o.guidance_scale;
  run->surplus = c.surplus;
  CogVideoXEmbeds e = encode_prompt(o);
  run->truncated = std::move(e.truncated);
  run->negative_prompt_embeds = e.negative_prompt_embeds;
  if (run->guidance.on()) e.prompt_embeds = cat({e.negative_prompt_embeds, e.prompt_embeds}, 0);

  run->scheduler = o.scheduler ? o.scheduler : scheduler;
  run->schedule = schedule(*run->scheduler, o);
  run->step_options = step_options(*run->scheduler, o.eta, o.generator);
  run->frames_first = transformer->config_int("sample_frames", 0) > 0;
  run->told = {{"", {}, ArgumentRole::Sample},
               {"encoder_hidden_states", e.prompt_embeds, ArgumentRole::PerSample},
               {"timestep", {}, ArgumentRole::Timestep}};
  if (transformer->config_bool("use_rotary_positional_embeddings", false))
    run->told.push_back({"image_rotary_emb", rotary_positions(c), ArgumentRole::Shared});
  run->tensors = {{"latents", &run->latents},
                  {"prompt_embeds", &run->prompt_embeds()},
                  {"negative_prompt_embeds", &run->negative_prompt_embeds}};
  return run;
}

void CogVideoXBase::draw_latents(CogVideoXRun& run, const CogVideoXOptions& o, int64_t channels) const {
  const Clip c = clip(o);
  const Shape shape = run.frames_first ? Shape{c.batch, c.frames, channels, c.height, c.width}
                                       : Shape{c.batch, channels, c.frames, c.height, c.width};
  SF_CHECK(!o.latents || o.latents.shape() == shape, name(), ": latents must be ", shape,
           run.frames_first ? " (batch, frames, channels, height, width)" : " (batch, channels, frames, height, width)",
           ", got ", o.latents.shape());
  run.latents = initial_latents(*run.scheduler, o.latents, o.generator, shape, run.prompt_embeds().dtype());
}

Tensor CogVideoXBase::picture_latents(const CogVideoXOptions& o, const Tensor& image, DType dtype) const {
  const Clip c = clip(o);
  const auto [height, width] = size(o.height, o.width);
  SF_CHECK(vae, name(), ": has no vae to encode the picture with");
  check_image(image);
  SF_CHECK(image.size(2) == height && image.size(3) == width, name(), ": image must be as large as the clip, ", height,
           " x ", width, " pixels, got ", image.size(2), " x ", image.size(3));
  const Tensor images = fill_batch(name(), "images", image, c.batch).to(vae->device()).to(vae->dtype());
  Tensors parts;  // one by one: each draws for itself
  for (int64_t i = 0; i < c.batch; ++i) {
    const Generator g = o.generator.empty() ? Generator() : o.generator[o.generator.size() > 1 ? size_t(i) : 0];
    parts.push_back(vae->encode(images.narrow(0, i, 1).unsqueeze(2), g));
  }
  const double factor = vae->config_float("scaling_factor", 0.7);
  const bool inverted = vae->config_bool("invert_scale_latents", false);
  Tensor latents = cat(parts, 0).to(transformer->device()).to(dtype).permute({0, 2, 1, 3, 4});
  latents = (inverted ? 1.0 / factor : factor) * latents;
  if (c.frames == 1) return latents;
  return cat({latents, zeros({c.batch, c.frames - 1, latents.size(2), c.height, c.width}, dtype, latents.device())}, 1);
}

void CogVideoXBase::begin_with(CogVideoXRun& run, const CogVideoXOptions& o, const Tensor& image) const {
  const DType dtype = run.prompt_embeds().dtype();
  const Tensor beside = picture_latents(o, image, dtype);  // draws before the noise is drawn
  draw_latents(run, o, transformer->config_int("in_channels", 32) / 2);
  run.told.push_back({"", run.guidance.on() ? cat({beside, beside}, 0) : beside, ArgumentRole::Channels});
  if (transformer->config_int("ofs_embed_dim", 0))
    run.told.push_back({"ofs", full({1}, 2.0, dtype, transformer->device()), ArgumentRole::Shared});
}

Tensor CogVideoXBase::decoded(const Tensor& latents) const {
  SF_CHECK(vae, name(), ": has no vae to decode latents with; ask for output_type='latent'");
  const double factor = 1.0 / vae->config_float("scaling_factor", 0.7);
  const Tensor z = factor * latents.to(vae->device()).permute({0, 2, 1, 3, 4});
  cpu::LeanMemory::give_back_much();  // what the denoiser's kernels kept is of no use to the autoencoder's
  return vae->decode(z.to(vae->dtype()));
}

}  // namespace sf::diffusion
