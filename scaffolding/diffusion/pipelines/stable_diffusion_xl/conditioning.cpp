#include "scaffolding/diffusion/pipelines/stable_diffusion_xl/conditioning.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

OptionFields StableDiffusionXLOptions::fields() {
  return GenerationOptions::fields() +
         OptionFields{
             {"prompt_2", &prompt_2, "for the second text encoder; absent or empty: the same as the first's"},
             {"negative_prompt_2", &negative_prompt_2,
              "for the second text encoder; absent or empty: the same as the first's"},
             {"pooled_prompt_embeds", &pooled_prompt_embeds, "[prompts, features], with prompt_embeds"},
             {"negative_pooled_prompt_embeds", &negative_pooled_prompt_embeds,
              "[prompts, features], with negative_prompt_embeds"},
             {"denoising_end", &denoising_end,
              "the share of the process after which the run ends, for a refiner to go on"},
             {"original_size", &original_size, "height,width that the picture is told to have had"},
             {"target_size", &target_size, "height,width that the picture should look like"},
             {"crops_coords_top_left", &crops_coords_top_left, "top,left of the part that the picture is told to be"},
             {"negative_original_size", &negative_original_size, "height,width that it should not look like"},
             {"negative_target_size", &negative_target_size, "height,width that it should not look like"},
             {"negative_crops_coords_top_left", &negative_crops_coords_top_left,
              "top,left that it should not look like"},
         };
}

void StableDiffusionXLBase::check_xl(const StableDiffusionXLOptions& o) const {
  check_call(o);
  check_cross_attention(o);
  SF_CHECK((o.prompt_2.empty() && o.negative_prompt_2.empty()) || !o.prompt_embeds, name(),
           ": takes prompt_2 and negative_prompt_2 with prompt, not with prompt_embeds");
  SF_CHECK(o.negative_prompt_2.empty() || !o.negative_prompt_embeds, name(),
           ": takes negative_prompt_2 or negative_prompt_embeds, not both");
  check_pooled(name(), prompts(o),
               {{"prompt_embeds", &o.prompt_embeds, &o.pooled_prompt_embeds},
                {"negative_prompt_embeds", &o.negative_prompt_embeds, &o.negative_pooled_prompt_embeds}});
  check_texts(name(), prompts(o), {{"prompt_2", &o.prompt_2}, {"negative_prompt_2", &o.negative_prompt_2}});
  SF_CHECK(!o.denoising_end || std::isfinite(*o.denoising_end), name(), ": denoising_end must be finite, got ",
           o.denoising_end.value_or(0));
}

StableDiffusionXLEmbeds StableDiffusionXLBase::encode_prompt(const StableDiffusionXLOptions& o) const {
  int64_t n = prompts(o);
  bool guided = guidance(o).on();
  // whatever negative_prompt_2 says, as in diffusers
  bool zero_negative = o.negative_prompt.empty() && force_zeros_for_empty_prompt;
  struct Part {
    const tokenizers::Tokenizer& tokenizer;
    TextEncoder& encoder;
    std::vector<std::string> prompt, negative;
  };
  std::vector<Part> parts;
  auto all = [&](std::vector<std::string> texts, const std::vector<std::string>& otherwise) {
    if (texts.empty()) texts = otherwise;
    if (texts.size() == 1) texts.resize(size_t(n), texts[0]);
    return texts;
  };
  std::vector<std::string> negative = all(o.negative_prompt, {""});
  if (text_encoder && tokenizer) parts.push_back({*tokenizer, *text_encoder, o.prompt, negative});
  // The second encoder alone (SDXL's refiner) reads the first prompts.
  auto second = [&](const std::vector<std::string>& texts, const std::vector<std::string>& first) {
    return all(parts.empty() ? first : texts, first);
  };
  if (text_encoder_2 && tokenizer_2)
    parts.push_back(
        {*tokenizer_2, *text_encoder_2, second(o.prompt_2, o.prompt), second(o.negative_prompt_2, negative)});
  bool needs_encoder = !o.prompt_embeds || (guided && !o.negative_prompt_embeds && !zero_negative);
  SF_CHECK(
      !needs_encoder || (text_encoder_2 && tokenizer_2), name(),
      ": has no text_encoder_2 and tokenizer_2 to encode prompts with; pass prompt_embeds and pooled_prompt_embeds");

  TextOptions text{.syntax = o.prompt_syntax, .layer = {.from_end = o.clip_skip.value_or(0) + 1, .normalized = false}};
  if (text.syntax == PromptSyntax::A1111) {
    if (o.prompt_embeds && !parts.empty())
      text.chunks = o.prompt_embeds.size(1) / parts.back().encoder.config_int("max_position_embeddings", 77);
    for (auto& p : parts) {
      if (!o.prompt_embeds) text.chunks = std::max(text.chunks, prompt_chunks(p.tokenizer, p.encoder, p.prompt));
      if (guided && !o.negative_prompt_embeds && !zero_negative)
        text.chunks = std::max(text.chunks, prompt_chunks(p.tokenizer, p.encoder, p.negative));
    }
  }
  StableDiffusionXLEmbeds out;
  // Layers of both encoders side by side; the pooled embeds are the second one's.
  auto embed = [&](std::vector<std::string> Part::*texts, Tensor& embeds, Tensor& pooled) {
    Tensors layers;
    for (auto& p : parts) {
      TextEmbeds e = embed_prompts(p.tokenizer, p.encoder, p.*texts, text);
      layers.push_back(e.embeds);
      if (!pooled && e.pooled) pooled = e.pooled;
      for (auto& lost : e.truncated)
        if (std::find(out.truncated.begin(), out.truncated.end(), lost) == out.truncated.end())
          out.truncated.push_back(lost);
    }
    embeds = cat(layers, -1);
  };
  out.prompt_embeds = o.prompt_embeds, out.pooled_prompt_embeds = o.pooled_prompt_embeds;
  // In one batch where both take the same way: the encoders' weights are read once.
  const bool together = !o.prompt_embeds && !o.pooled_prompt_embeds && guided && !o.negative_prompt_embeds &&
                        !o.negative_pooled_prompt_embeds && !zero_negative && !parts.empty() &&
                        (text.syntax == PromptSyntax::A1111 || text.layer.from_end == 1);
  if (together)
    for (auto& p : parts) p.prompt.insert(p.prompt.end(), p.negative.begin(), p.negative.end());
  if (!out.prompt_embeds) embed(&Part::prompt, out.prompt_embeds, out.pooled_prompt_embeds);
  SF_CHECK(out.pooled_prompt_embeds, name(),
           ": text_encoder_2 must be a CLIPTextModelWithProjection, whose text_embeds the denoiser takes");
  if (guided) {
    out.negative_prompt_embeds = o.negative_prompt_embeds,
    out.negative_pooled_prompt_embeds = o.negative_pooled_prompt_embeds;
    if (together) {
      auto split = [n](Tensor& both, Tensor& rest) {
        rest = both.narrow(0, n, both.size(0) - n);
        both = both.narrow(0, 0, n);
      };
      split(out.prompt_embeds, out.negative_prompt_embeds);
      split(out.pooled_prompt_embeds, out.negative_pooled_prompt_embeds);
    } else if (!out.negative_prompt_embeds && zero_negative) {
      out.negative_prompt_embeds = zeros_like(out.prompt_embeds),
      out.negative_pooled_prompt_embeds = zeros_like(out.pooled_prompt_embeds);
    } else if (!out.negative_prompt_embeds) {
      text.length = out.prompt_embeds.size(1);
      // diffusers leaves out layers of the positive prompt only
      if (text.syntax == PromptSyntax::Plain) text.layer.from_end = 1;
      embed(&Part::negative, out.negative_prompt_embeds, out.negative_pooled_prompt_embeds);
    }
    SF_CHECK(out.negative_prompt_embeds.shape() == out.prompt_embeds.shape(), name(),
             ": prompt_embeds and negative_prompt_embeds must have one shape, got ", out.prompt_embeds.shape(), " and ",
             out.negative_prompt_embeds.shape());
  }
  DType dtype = text_encoder_2 ? text_encoder_2->dtype() : unet->dtype();
  for (Tensor* t :
       {&out.prompt_embeds, &out.negative_prompt_embeds, &out.pooled_prompt_embeds, &out.negative_pooled_prompt_embeds})
    if (*t) *t = repeated_samples(t->to(dtype).to(unet->device()), o.num_images_per_prompt);
  return out;
}

Tensor StableDiffusionXLBase::time_ids(const std::vector<double>& ids, const Tensor& pooled) const {
  int64_t wanted = unet->config_int("projection_class_embeddings_input_dim", 0),
          each = unet->config_int("addition_time_embed_dim", 0);
  int64_t got = each * int64_t(ids.size()) + pooled.size(1);
  SF_CHECK(wanted == 0 || wanted == got, name(), ": the denoiser takes an added embedding of ", wanted,
           " numbers, and ", got, " come of ", ids.size(), " time ids and ", pooled.size(1),
           " text features; is requires_aesthetics_score as the denoiser was trained?");
  return tensor(ids, {1, int64_t(ids.size())}, kFloat64).to(pooled.dtype()).to(pooled.device());
}

int64_t StableDiffusionXLBase::training_cutoff(double share) const {
  double n = double(scheduler->num_train_timesteps());
  return int64_t(std::nearbyint(n - share * n));
}

void StableDiffusionXLBase::end_at(StepSchedule& schedule, std::optional<double> denoising_end) const {
  if (!denoising_end || *denoising_end <= 0 || *denoising_end >= 1) return;
  auto cutoff = double(training_cutoff(*denoising_end));
  int64_t n = std::count_if(schedule.values.begin(), schedule.values.end(), [&](double t) { return t >= cutoff; });
  schedule.keep(0, n);
  schedule.num_inference_steps = n;
}

StableDiffusionXLBase::UpcastVae::UpcastVae(Autoencoder& vae) {
  if (vae.dtype() != kFloat16 || !vae.config_bool("force_upcast", true)) return;
  widened_ = vae.widened(kFloat32);
}

Tensor StableDiffusionXLBase::decoded(const Tensor& latents) const {
  check_components();
  UpcastVae upcast(*vae);
  return TextPipeline::decoded(vae->dtype() == kFloat32 ? latents.to(kFloat32) : latents);  // before they are scaled
}

StableDiffusionXLEmbeds StableDiffusionXLBase::prepare_run(Run& run, const StableDiffusionXLOptions& o) const {
  run.guidance = guidance(o);
  StableDiffusionXLEmbeds embeds = encode_prompt(o);
  run.scheduler = o.scheduler ? o.scheduler : scheduler;
  run.schedule = schedule(*run.scheduler, o);
  return embeds;
}

void StableDiffusionXLBase::tell_sizes(Run& run, const StableDiffusionXLOptions& o,
                                       const StableDiffusionXLEmbeds& embeds, int64_t height, int64_t width) const {
  const int64_t batch = prompts(o) * o.num_images_per_prompt;
  auto ids_of = [&](const PixelPair& original, const PixelPair& crop, const PixelPair& target) {
    return time_ids({double(original[0]), double(original[1]), double(crop[0]), double(crop[1]), double(target[0]),
                     double(target[1])},
                    embeds.pooled_prompt_embeds);
  };
  const PixelPair pixels{height, width};
  Tensor add_time_ids =
             ids_of(o.original_size.value_or(pixels), o.crops_coords_top_left, o.target_size.value_or(pixels)),
         negative_ids = add_time_ids;
  if (o.negative_original_size && o.negative_target_size)
    negative_ids = ids_of(*o.negative_original_size, o.negative_crops_coords_top_left, *o.negative_target_size);
  if (run.guidance.on()) add_time_ids = cat({negative_ids, add_time_ids}, 0);
  // Repeated as diffusers does: with negative sizes of their own, negative and positive rows alternate.
  add_time_ids = repeat(add_time_ids, {batch, 1});

  run.scheduler->set_begin_index(0);
  tell(run, o, embeds, add_time_ids);
}

void StableDiffusionXLBase::tell(Run& run, const StableDiffusionXLOptions& o, const StableDiffusionXLEmbeds& embeds,
                                 const Tensor& add_time_ids) const {
  end_at(run.schedule, o.denoising_end);
  auto both = [&](const Tensor& negative, const Tensor& positive) {
    return run.guidance.on() ? cat({negative, positive}, 0) : positive;
  };
  run.told = {{"", {}, ArgumentRole::Sample},
              {"", {}, ArgumentRole::Timestep},
              {"encoder_hidden_states", both(embeds.negative_prompt_embeds, embeds.prompt_embeds), ArgumentRole::Text},
              {"added_cond_kwargs.text_embeds", both(embeds.negative_pooled_prompt_embeds, embeds.pooled_prompt_embeds),
               ArgumentRole::PerSample},
              {"added_cond_kwargs.time_ids", add_time_ids, ArgumentRole::PerSample}};
  if (Tensor cond = timestep_cond(o, prompts(o) * o.num_images_per_prompt, embeds.prompt_embeds.dtype()))
    run.told.push_back({"timestep_cond", cond, ArgumentRole::PerSample});
  run.step_options = step_options(*run.scheduler, o.eta, o.generator);
  run.truncated = embeds.truncated;
  run.tensors = {{"latents", &run.latents},
                 {"prompt_embeds", &run.told.at("encoder_hidden_states")},
                 {"add_text_embeds", &run.told.at("added_cond_kwargs.text_embeds")},
                 {"add_time_ids", &run.told.at("added_cond_kwargs.time_ids")}};
}

std::vector<std::pair<std::string, Tensor>> StableDiffusionXLBase::prompt_tensors(
    const StableDiffusionXLOptions& o) const {
  auto e = encode_prompt(o);
  return {{"prompt_embeds", e.prompt_embeds},
          {"negative_prompt_embeds", e.negative_prompt_embeds},
          {"pooled_prompt_embeds", e.pooled_prompt_embeds},
          {"negative_pooled_prompt_embeds", e.negative_pooled_prompt_embeds}};
}

}  // namespace sf::diffusion
