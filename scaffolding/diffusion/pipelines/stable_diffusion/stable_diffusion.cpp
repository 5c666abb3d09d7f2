#include "scaffolding/diffusion/pipelines/stable_diffusion/stable_diffusion.h"

#include <algorithm>

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

StableDiffusionEmbeds StableDiffusionBase::encode_prompt(const GenerationOptions& o) const {
  int64_t n = prompts(o);
  bool guided = guidance(o).on();
  StableDiffusionEmbeds out;
  TextOptions text{.syntax = o.prompt_syntax};
  bool needs_encoder = !o.prompt_embeds || (guided && !o.negative_prompt.empty());
  SF_CHECK(!needs_encoder || (text_encoder && tokenizer), name(),
           ": has no text_encoder and tokenizer to encode prompts with; pass prompt_embeds");
  std::vector<std::string> negative = o.negative_prompt.empty() ? std::vector<std::string>{""} : o.negative_prompt;
  if (text.syntax == PromptSyntax::A1111 && text_encoder && tokenizer) {
    text.chunks = guided && !o.negative_prompt_embeds ? prompt_chunks(*tokenizer, *text_encoder, negative) : 1;
    if (o.prompt_embeds)
      text.chunks =
          std::max(text.chunks, o.prompt_embeds.size(1) / text_encoder->config_int("max_position_embeddings", 77));
    else text.chunks = std::max(text.chunks, prompt_chunks(*tokenizer, *text_encoder, o.prompt));
  }
  TextLayer layer;
  if (o.clip_skip) layer = {.from_end = *o.clip_skip, .normalized = true};
  out.prompt_embeds = o.prompt_embeds;
  Tensor negative_embeds = o.negative_prompt_embeds;
  if (!o.prompt_embeds) {
    // In one batch where they take the same way: the encoder's weights are read once.
    const bool together = guided && !negative_embeds && (text.syntax == PromptSyntax::A1111 || !o.clip_skip);
    std::vector<std::string> texts = o.prompt;
    if (together) texts.insert(texts.end(), negative.begin(), negative.end());
    text.layer = layer, text.told = int64_t(o.prompt.size());
    const TextEmbeds made = embed_prompts(*tokenizer, *text_encoder, texts, text);
    out.prompt_embeds = made.embeds.narrow(0, 0, text.told);
    if (together) negative_embeds = made.embeds.narrow(0, text.told, int64_t(negative.size()));
    out.truncated = made.truncated;
  }
  DType dtype = text_encoder ? text_encoder->dtype() : unet->dtype();
  out.prompt_embeds = out.prompt_embeds.to(dtype).to(unet->device());
  if (guided) {
    Tensor embeds = negative_embeds;
    if (!embeds && text_encoder && tokenizer) {
      text.length = out.prompt_embeds.size(1);
      // diffusers leaves out layers of the positive prompt only; the web UI of both.
      text.layer = text.syntax == PromptSyntax::A1111 ? layer : TextLayer();
      embeds = embed_prompts(*tokenizer, *text_encoder, negative, text).embeds;
    } else if (!embeds) {
      embeds = zeros_like(out.prompt_embeds);  // a pipeline without an encoder has no embeds of the empty prompt
    }
    embeds = fill_batch(name(), "negative prompts", embeds.to(dtype).to(unet->device()), n);
    SF_CHECK(embeds.shape() == out.prompt_embeds.shape(), name(),
             ": prompt_embeds and negative_prompt_embeds must have one shape, got ", out.prompt_embeds.shape(), " and ",
             embeds.shape());
    out.negative_prompt_embeds = repeated_samples(embeds, o.num_images_per_prompt);
  }
  out.prompt_embeds = repeated_samples(out.prompt_embeds, o.num_images_per_prompt);
  return out;
}

void StableDiffusionRun::keep_more(const Tensor& places) {
  if (negative_prompt_embeds)
    negative_prompt_embeds = index_select(negative_prompt_embeds, 0, places.to(negative_prompt_embeds.device()));
}

void StableDiffusionBase::begin_with_picture(StableDiffusionRun& run, const GenerationOptions& o,
                                             const Tensor& image) const {
  const DType dtype = run.prompt_embeds().dtype();
  const int64_t batch = prompts(o) * o.num_images_per_prompt;
  const Tensor images = o.generator.size() > 1 ? fill_batch(name(), "images", image, batch) : image;
  const Tensor latents = fill_batch(name(), "images", encode_images(images, o.generator, dtype), batch);
  const Tensor noise = randn_tensor(latents.shape(), o.generator, unet->device(), dtype);
  run.latents = run.scheduler->add_noise(latents, noise, run.schedule.timestep(0));
}

void StableDiffusionBase::prepare_run(StableDiffusionRun& run, const GenerationOptions& o,
                                      std::optional<double> strength) const {
  run.guidance = guidance(o);
  auto [prompt_embeds, negative_prompt_embeds, truncated] = encode_prompt(o);
  const DType dtype = prompt_embeds.dtype();
  run.truncated = std::move(truncated);
  run.negative_prompt_embeds = negative_prompt_embeds;
  if (run.guidance.on()) prompt_embeds = cat({negative_prompt_embeds, prompt_embeds}, 0);

  run.scheduler = o.scheduler ? o.scheduler : scheduler;
  run.schedule = schedule(*run.scheduler, o);
  if (strength) start_at_strength(name(), *run.scheduler, run.schedule, *strength);
  run.step_options = step_options(*run.scheduler, o.eta, o.generator);
  run.told = {{"", {}, ArgumentRole::Sample},
              {"", {}, ArgumentRole::Timestep},
              {"encoder_hidden_states", prompt_embeds, ArgumentRole::Text}};
  if (Tensor cond = timestep_cond(o, prompts(o) * o.num_images_per_prompt, dtype))
    run.told.push_back({"timestep_cond", cond, ArgumentRole::PerSample});
  run.tensors = {{"latents", &run.latents},
                 {"prompt_embeds", &run.prompt_embeds()},
                 {"negative_prompt_embeds", &run.negative_prompt_embeds}};
}

}  // namespace sf::diffusion
