#include "scaffolding/diffusion/pipelines/text_to_image.h"

#include <cmath>

#include "scaffolding/core/error.h"

namespace sf::diffusion {

OptionFields GenerationOptions::fields() {
  const OptionFields own{
      {"prompt", &prompt, "what the pictures show: a text or a list of them"},
      {"negative_prompt", &negative_prompt, "what they should not show: one for all, or one for each prompt"},
      {"height", &height, "pixels; absent: what the model was trained on"},
      {"width", &width, "pixels; absent: what the model was trained on"},
      {"timesteps", &timesteps, "timesteps of one's own, where the scheduler takes them"},
      {"sigmas", &sigmas, "noise levels of one's own, where the scheduler takes them"},
      {"guidance_scale", &guidance_scale, "how closely to follow the prompt; on above 1"},
      {"guidance_rescale", &guidance_rescale, "against pictures that guidance has overexposed: 0 to 1"},
      {"clip_skip", &clip_skip, "layers of the text encoder that are left out, from its end"},
      {"prompt_syntax",
       choice<&sf::diffusion::prompt_syntax, static_cast<const char* (*)(PromptSyntax)>(&name_of)>(&prompt_syntax),
       "'plain' is diffusers'; 'a1111' understands (word:1.2), [word] and BREAK and takes longer prompts"},
      {"num_images_per_prompt", &num_images_per_prompt, "pictures of each prompt"},
      {"eta", &eta, "DDIM: 0 adds no noise in the steps, 1 as much as DDPM"},
      {"prompt_embeds", &prompt_embeds, "[prompts, tokens, features] instead of prompts"},
      {"negative_prompt_embeds", &negative_prompt_embeds, "[prompts, tokens, features] instead of negative prompts"},
      {"cache_prompt", &cache_prompt, "what the denoiser makes of the text is computed once a run"},
  };
  return own + fields_of_every_call(*this);
}

namespace {

void check_embeds(const char* who, const char* name, const Tensor& t, int64_t ndim) {
  if (!t) return;
  SF_CHECK(t.ndim() == ndim && t.numel() > 0, who, ": ", name, " must be ",
           ndim == 3 ? "[prompts, tokens, features]" : "[prompts, features]", ", got ", t.shape());
  check_floating(who, name, t);
}

}  // namespace

void check_texts(const char* who, int64_t prompts,
                 std::initializer_list<std::pair<const char*, const std::vector<std::string>*>> lists) {
  for (auto& [name, texts] : lists)
    SF_CHECK(texts->size() < 2 || int64_t(texts->size()) == prompts, who, ": ", name,
             " must be one text, or one for each of ", prompts, " prompts, got ", texts->size());
}

void check_pooled(const char* who, int64_t prompts, std::initializer_list<PooledBeside> lists) {
  for (auto& [name, embeds, pooled] : lists) {
    std::string other = name;
    other.insert(other.find("prompt"), "pooled_");
    SF_CHECK(!*embeds || *pooled, who, ": ", name, " need ", other, " of the same text encoders");
    SF_CHECK(!*pooled || (pooled->ndim() == 2 && pooled->size(0) == prompts && is_floating(pooled->dtype())), who, ": ",
             other, " must be [", prompts, ", features], got ", pooled->shape());
  }
}

int64_t TextPipeline::prompts(const GenerationOptions& o) const {
  return o.prompt_embeds ? o.prompt_embeds.size(0) : int64_t(o.prompt.size());
}

void TextPipeline::check_call(const GenerationOptions& o) const {
  check_components();
  SF_CHECK(the_autoencoder() || o.output_latents, name(),
           ": has no vae to decode latents with; ask for output_type='latent'");
  for (auto [what, v] : {std::pair{"height", o.height}, {"width", o.width}})
    SF_CHECK(!v || (*v > 0 && *v % 8 == 0 && *v % side_multiple() == 0), name(),
             ": height and width must be divisible by ", std::max<int64_t>(8, side_multiple()), ", got ", what, "=",
             *v);
  SF_CHECK(std::isfinite(o.guidance_scale), name(), ": guidance_scale must be finite, got ", o.guidance_scale);
  SF_CHECK(std::isfinite(o.guidance_rescale) && o.guidance_rescale >= 0, name(),
           ": guidance_rescale must be finite and not negative, got ", o.guidance_rescale);
  SF_CHECK(std::isfinite(o.eta), name(), ": eta must be finite, got ", o.eta);
  SF_CHECK(o.num_images_per_prompt >= 1, name(), ": num_images_per_prompt must be at least 1, got ",
           o.num_images_per_prompt);
  SF_CHECK(!o.clip_skip || *o.clip_skip >= 0, name(), ": clip_skip must not be negative, got ",
           o.clip_skip.value_or(0));
  SF_CHECK(o.prompt.empty() || !o.prompt_embeds, name(), ": takes prompt or prompt_embeds, not both");
  SF_CHECK(!o.prompt.empty() || o.prompt_embeds, name(), ": needs prompt or prompt_embeds");
  SF_CHECK(o.negative_prompt.empty() || !o.negative_prompt_embeds, name(),
           ": takes negative_prompt or negative_prompt_embeds, not both");
  check_embeds(name(), "prompt_embeds", o.prompt_embeds, 3);
  check_embeds(name(), "negative_prompt_embeds", o.negative_prompt_embeds, 3);
  if (o.prompt_embeds && o.negative_prompt_embeds)
    SF_CHECK(o.prompt_embeds.shape() == o.negative_prompt_embeds.shape(), name(),
             ": prompt_embeds and negative_prompt_embeds must have one shape, got ", o.prompt_embeds.shape(), " and ",
             o.negative_prompt_embeds.shape());
  check_texts(name(), prompts(o), {{"negative_prompt", &o.negative_prompt}});
  check_generators(o.generator, prompts(o) * o.num_images_per_prompt);
}

void TextPipeline::check_cross_attention(const GenerationOptions& o) const {
  if (!o.prompt_embeds) return;
  auto denoiser = the_denoiser();
  int64_t wanted = denoiser->config_int("cross_attention_dim", o.prompt_embeds.size(2));
  SF_CHECK(denoiser->config_int("encoder_hid_dim", 0) || wanted == o.prompt_embeds.size(2), name(),
           ": prompt_embeds must have the denoiser's cross_attention_dim ", wanted, " of features, got ",
           o.prompt_embeds.shape());
}

Guidance TextPipeline::guidance(const GenerationOptions& o) const {
  const bool embedded = the_denoiser()->config_int("time_cond_proj_dim", 0) > 0;
  return {.scale = o.guidance_scale, .rescale = o.guidance_rescale, .mode = o.guidance_mode, .embedded = embedded};
}

Tensor TextPipeline::timestep_cond(const GenerationOptions& o, int64_t batch, DType dtype) const {
  auto denoiser = the_denoiser();
  return guidance_scale_embedding(o.guidance_scale, batch, denoiser->config_int("time_cond_proj_dim", 0), dtype,
                                  denoiser->device());
}

StepSchedule TextPipeline::schedule(Scheduler& scheduler, const GenerationOptions& o, std::optional<double> mu) const {
  return make_schedule(name(), scheduler, {o.num_inference_steps, o.timesteps, o.sigmas, the_denoiser()->device(), mu});
}

}  // namespace sf::diffusion
