#include "scaffolding/diffusion/pipelines/flux/flux.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/timestep_spacing.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

constexpr int64_t kPatch = 2;            // latents on a side of a token
constexpr int64_t kMostWords = 512;      // that FLUX was trained on
constexpr int64_t kDefaultSample = 128;  // latents on a side
constexpr double kTrainingTimesteps = 1000;

}  // namespace

Tensor flux_places(int64_t h, int64_t w, DType dtype, Device device, int64_t picture) {
  std::vector<double> places;
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x) places.insert(places.end(), {double(picture), double(y), double(x)});
  return tensor(places, {h * w, 3}, kFloat32).to(dtype).to(device);  // which rounds as diffusers does
}

FluxOptions::FluxOptions() {
  num_inference_steps = 28;
  guidance_scale = 3.5;
}

OptionFields FluxOptions::fields() {
  return GenerationOptions::fields() +
         OptionFields{
             {"prompt_2", &prompt_2, "for T5; absent or empty: the same as CLIP's"},
             {"negative_prompt_2", &negative_prompt_2, "for T5; absent or empty: the same as CLIP's"},
             {"true_cfg_scale", &true_cfg_scale,
              "classifier-free guidance, with a negative prompt; on above 1, and twice the time"},
             {"pooled_prompt_embeds", &pooled_prompt_embeds, "[prompts, features], with prompt_embeds"},
             {"negative_pooled_prompt_embeds", &negative_pooled_prompt_embeds,
              "[prompts, features], with negative_prompt_embeds"},
             {"max_sequence_length", &max_sequence_length, "tokens of a prompt that T5 reads, at most 512"},
         };
}

Tensor packed_latents(const Tensor& latents) {
  const int64_t b = latents.size(0), c = latents.size(1), h = latents.size(2) / kPatch, w = latents.size(3) / kPatch;
  return latents.reshape({b, c, h, kPatch, w, kPatch})
      .permute({0, 2, 4, 1, 3, 5})
      .reshape({b, h * w, c * kPatch * kPatch});
}

Tensor unpacked_latents(const Tensor& tokens, int64_t h, int64_t w) {
  const int64_t b = tokens.size(0), c = tokens.size(2) / (kPatch * kPatch);
  return tokens.reshape({b, h / kPatch, w / kPatch, c, kPatch, kPatch})
      .permute({0, 3, 1, 4, 2, 5})
      .reshape({b, c, h, w});
}

Tensor FluxRun::told_times(const Tensor& timesteps) const {
  return timesteps.to(told.of(ArgumentRole::Text).dtype()) / kTrainingTimesteps;
}

DiffusionPipeline::Size FluxBase::size(std::optional<int64_t> height, std::optional<int64_t> width) const {
  const int64_t usual = kDefaultSample * vae_scale_factor();
  return {height.value_or(usual), width.value_or(usual)};
}

int64_t FluxBase::side_multiple() const { return kPatch * vae_scale_factor(); }

Guidance FluxBase::guidance(const FluxOptions& o) const {
  const bool has_negative = !o.negative_prompt.empty() || o.negative_prompt_embeds;
  return {.scale = has_negative ? o.true_cfg_scale : 1, .mode = o.guidance_mode, .fixed = true};
}

void FluxBase::check_flux(const FluxOptions& o) const {
  check_call(o);
  SF_CHECK(o.num_inference_steps > 0, name(), ": num_inference_steps must be above 0, got ", o.num_inference_steps);
  SF_CHECK(std::isfinite(o.true_cfg_scale), name(), ": true_cfg_scale must be finite, got ", o.true_cfg_scale);
  SF_CHECK(o.max_sequence_length > 0 && o.max_sequence_length <= kMostWords, name(),
           ": max_sequence_length must be from 1 to ", kMostWords, ", got ", o.max_sequence_length);
  check_texts(name(), prompts(o), {{"prompt_2", &o.prompt_2}, {"negative_prompt_2", &o.negative_prompt_2}});
  check_pooled(name(), prompts(o),
               {{"prompt_embeds", &o.prompt_embeds, &o.pooled_prompt_embeds},
                {"negative_prompt_embeds", &o.negative_prompt_embeds, &o.negative_pooled_prompt_embeds}});
  SF_CHECK((o.prompt_2.empty() || !o.prompt_embeds) && (o.negative_prompt_2.empty() || !o.negative_prompt_embeds),
           name(), ": takes prompt_2 with prompt, not with prompt_embeds, and so of the negative ones");
}

FluxEmbeds FluxBase::encode_prompt(const FluxOptions& o) const {
  const bool guided = guidance(o).on();
  const int64_t n = prompts(o);
  SF_CHECK((o.prompt_embeds && (!guided || o.negative_prompt_embeds)) ||
               (text_encoder && tokenizer && text_encoder_2 && tokenizer_2),
           name(),
           ": has not both text encoders and tokenizers to encode prompts with; pass prompt_embeds and "
           "pooled_prompt_embeds");
  FluxEmbeds out{
      o.prompt_embeds, o.negative_prompt_embeds, o.pooled_prompt_embeds, o.negative_pooled_prompt_embeds, {}};
  auto embed = [&](std::vector<std::string> first, std::vector<std::string> second, Tensor& embeds, Tensor& pooled) {
    if (second.empty()) second = first;
    for (auto* texts : {&first, &second})
      if (texts->size() == 1) texts->resize(size_t(n), (*texts)[0]);
    const TextEmbeds clip = embed_prompts(*tokenizer, *text_encoder, first, {});
    SF_CHECK(clip.pooler_output, name(),
             ": text_encoder must be a CLIPTextModel, whose pooler_output the denoiser is told");
    const TextEmbeds t5 = embed_prompts(*tokenizer_2, *text_encoder_2, second, {.length = o.max_sequence_length});
    embeds = t5.embeds, pooled = clip.pooler_output;
    // what CLIP does not read T5 does
    out.truncated.insert(out.truncated.end(), t5.truncated.begin(), t5.truncated.end());
  };
  if (!out.prompt_embeds) embed(o.prompt, o.prompt_2, out.prompt_embeds, out.pooled_prompt_embeds);
  if (guided && !out.negative_prompt_embeds)
    embed(o.negative_prompt, o.negative_prompt_2, out.negative_prompt_embeds, out.negative_pooled_prompt_embeds);
  if (!guided) out.negative_prompt_embeds = out.negative_pooled_prompt_embeds = {};
  else
    SF_CHECK(out.negative_prompt_embeds.shape() == out.prompt_embeds.shape(), name(),
             ": prompt_embeds and negative_prompt_embeds must have one shape, got ", out.prompt_embeds.shape(), " and ",
             out.negative_prompt_embeds.shape());
  const DType dtype = text_encoder_2 ? text_encoder_2->dtype() : transformer->dtype();
  for (Tensor* t :
       {&out.prompt_embeds, &out.negative_prompt_embeds, &out.pooled_prompt_embeds, &out.negative_pooled_prompt_embeds})
    if (*t) *t = repeated_samples(t->to(dtype).to(transformer->device()), o.num_images_per_prompt);
  return out;
}

std::vector<std::pair<std::string, Tensor>> FluxBase::prompt_tensors(const FluxOptions& o) const {
  auto e = encode_prompt(o);
  return {{"prompt_embeds", e.prompt_embeds},
          {"pooled_prompt_embeds", e.pooled_prompt_embeds},
          {"negative_prompt_embeds", e.negative_prompt_embeds},
          {"negative_pooled_prompt_embeds", e.negative_pooled_prompt_embeds}};
}

void FluxBase::prepare_run(FluxRun& run, const FluxOptions& o) const {
  const auto [height, width] = size(o.height, o.width);
  const int64_t scale = vae_scale_factor(), batch = prompts(o) * o.num_images_per_prompt;
  run.height = height / scale, run.width = width / scale;
  run.guidance = guidance(o);
  const FluxEmbeds e = encode_prompt(o);
  run.truncated = e.truncated;
  const DType dtype = e.prompt_embeds.dtype();
  const Device device = transformer->device();

  run.scheduler = o.scheduler ? o.scheduler : scheduler;
  ScheduleOptions schedule{.num_inference_steps = o.num_inference_steps, .sigmas = o.sigmas, .device = device};
  const io::Object config = run.scheduler->config();
  auto* flow = config.find("use_flow_sigmas");  // a sampler that makes them itself
  if (!schedule.sigmas && !(flow && flow->is(io::Object::Bool) && flow->as_bool())) {
    schedule.sigmas = linspace64(1, 1 / double(o.num_inference_steps), o.num_inference_steps);
  }
  const int64_t h = run.height / kPatch, w = run.width / kPatch;
  schedule.mu = flow_shift(*run.scheduler, h * w);
  run.schedule = make_schedule(name(), *run.scheduler, schedule);
  run.step_options = step_options(*run.scheduler, o.eta, o.generator);

  auto both = [&](const Tensor& negative, const Tensor& positive) {
    return run.guidance.on() ? cat({negative, positive}, 0) : positive;
  };
  run.told = {
      {"", {}, ArgumentRole::Sample},
      {"encoder_hidden_states", both(e.negative_prompt_embeds, e.prompt_embeds), ArgumentRole::Text},
      {"pooled_projections", both(e.negative_pooled_prompt_embeds, e.pooled_prompt_embeds), ArgumentRole::PerSample},
      {"timestep", {}, ArgumentRole::Timestep},
      {"img_ids", flux_places(h, w, dtype, device), ArgumentRole::Shared},
      {"txt_ids", zeros({e.prompt_embeds.size(1), 3}, dtype, device), ArgumentRole::Shared}};
  if (transformer->config_bool("guidance_embeds", false))
    run.told.push_back({"guidance", full({batch * (run.guidance.on() ? 2 : 1)}, o.guidance_scale, kFloat32, device),
                        ArgumentRole::PerSample});
  run.schedule.told = run.told_times(run.schedule.timesteps);
  run.tensors = {{"latents", &run.latents}, {"prompt_embeds", &run.prompt_embeds()}};
}

Tensor FluxBase::noised_picture(FluxRun& run, const FluxOptions& o, const Tensor& image) const {
  check_image(image);
  const Shape shape = latent_shape(run, o);
  const DType dtype = run.prompt_embeds().dtype();
  const Tensor latents = fill_batch(name(), "images", encode_images(image, o.generator, dtype), shape[0]);
  SF_CHECK(latents.shape() == shape, name(), ": the picture must be as large as what is asked for, latents ", shape,
           ", got ", latents.shape());
  const Tensor noise = randn_tensor(shape, o.generator, transformer->device(), dtype);
  return packed_latents(run.scheduler->add_noise(latents, noise, run.schedule.timestep(0)));
}

Shape FluxBase::latent_shape(const FluxRun& run, const FluxOptions& o) const {
  return {prompts(o) * o.num_images_per_prompt, vae ? vae->config_int("latent_channels", 16) : 16, run.height,
          run.width};
}

Tensor FluxBase::given_latents(FluxRun& run, const FluxOptions& o) const {
  const Shape shape = latent_shape(run, o);
  check_shape(name(), "latents", o.latents,
              {shape[0], run.height / kPatch * (run.width / kPatch), shape[1] * kPatch * kPatch});
  return o.latents.to(transformer->device()).to(run.prompt_embeds().dtype());
}

}  // namespace sf::diffusion
