#include "scaffolding/diffusion/pipelines/pipeline.h"

#include <cmath>

#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

void check_embeds(const char* who, const char* name, const Tensor& t, int64_t ndim) {
  if (!t) return;
  SF_CHECK(t.ndim() == ndim && t.numel() > 0, who, ": ", name, " must be ", ndim == 3 ? "[prompts, tokens, features]" : "[prompts, features]", ", got ",
           t.shape());
  check_floating(who, name, t);
}

// A smaller list may be one text for all.
void check_count(const char* who, const char* name, const std::vector<std::string>& texts, int64_t prompts) {
  SF_CHECK(texts.empty() || texts.size() == 1 || int64_t(texts.size()) == prompts, who, ": ", name, " must be one text, or one for each of ", prompts,
           " prompts, got ", texts.size());
}

}  // namespace

Tensor fill_batch(const char* who, const char* what, const Tensor& samples, int64_t batch) {
  int64_t n = samples.size(0);
  if (n >= batch) return samples;
  SF_CHECK(batch % n == 0, who, ": ", n, " of ", what, " cannot be spread over a batch of ", batch);
  return cat(Tensors(size_t(batch / n), samples), 0);
}

int64_t DiffusionPipeline::prompts(const GenerationOptions& o) const { return o.prompt_embeds ? o.prompt_embeds.size(0) : int64_t(o.prompt.size()); }

DiffusionPipeline::Size DiffusionPipeline::size(const GenerationOptions& o) const {
  int64_t h = 64, w = 64;
  io::Object config = unet->config();
  if (auto* s = config.find("sample_size")) {
    if (s->is_sequence() && s->items().size() == 2) h = s->items()[0].as_int(), w = s->items()[1].as_int();
    else if (!s->is(io::Object::None)) h = w = s->as_int();
  }
  return {o.height.value_or(h * vae_scale_factor()), o.width.value_or(w * vae_scale_factor())};
}

void DiffusionPipeline::check_call(const GenerationOptions& o) const {
  SF_CHECK(unet, name(), ": has no unet");
  SF_CHECK(scheduler, name(), ": has no scheduler");
  SF_CHECK(vae || o.output_latents, name(), ": has no vae to decode latents with; ask for output_type='latent'");
  for (auto [what, v] : {std::pair{"height", o.height}, {"width", o.width}})
    SF_CHECK(!v || (*v > 0 && *v % 8 == 0 && *v % vae_scale_factor() == 0), name(), ": height and width must be divisible by ",
             std::max<int64_t>(8, vae_scale_factor()), ", got ", what, "=", *v);
  SF_CHECK(std::isfinite(o.guidance_scale), name(), ": guidance_scale must be finite, got ", o.guidance_scale);
  SF_CHECK(std::isfinite(o.guidance_rescale) && o.guidance_rescale >= 0, name(), ": guidance_rescale must be finite and not negative, got ",
           o.guidance_rescale);
  SF_CHECK(std::isfinite(o.eta), name(), ": eta must be finite, got ", o.eta);
  SF_CHECK(o.num_images_per_prompt >= 1, name(), ": num_images_per_prompt must be at least 1, got ", o.num_images_per_prompt);
  SF_CHECK(!o.clip_skip || *o.clip_skip >= 0, name(), ": clip_skip must not be negative, got ", o.clip_skip.value_or(0));
  SF_CHECK(o.prompt.empty() || !o.prompt_embeds, name(), ": takes prompt or prompt_embeds, not both");
  SF_CHECK(!o.prompt.empty() || o.prompt_embeds, name(), ": needs prompt or prompt_embeds");
  SF_CHECK(o.negative_prompt.empty() || !o.negative_prompt_embeds, name(), ": takes negative_prompt or negative_prompt_embeds, not both");
  check_embeds(name(), "prompt_embeds", o.prompt_embeds, 3);
  check_embeds(name(), "negative_prompt_embeds", o.negative_prompt_embeds, 3);
  if (o.prompt_embeds && o.negative_prompt_embeds)
    SF_CHECK(o.prompt_embeds.shape() == o.negative_prompt_embeds.shape(), name(), ": prompt_embeds and negative_prompt_embeds must have one shape, got ",
             o.prompt_embeds.shape(), " and ", o.negative_prompt_embeds.shape());
  check_count(name(), "negative_prompt", o.negative_prompt, prompts(o));
  if (o.prompt_embeds) {
    int64_t wanted = unet->config_int("cross_attention_dim", o.prompt_embeds.size(2));
    SF_CHECK(unet->config_int("encoder_hid_dim", 0) || wanted == o.prompt_embeds.size(2), name(),
             ": prompt_embeds must have the denoiser's cross_attention_dim ", wanted, " of features, got ", o.prompt_embeds.shape());
  }
  check_generators(o, prompts(o) * o.num_images_per_prompt);
}

void DiffusionPipeline::check_image(const Tensor& image) const {
  check_defined(name(), "image", image);
  SF_CHECK(image.ndim() == 4 && image.numel() > 0 && is_floating(image.dtype()), name(), ": image must be [n, channels, height, width], got ", image.shape());
  int64_t latent = vae ? vae->config_int("latent_channels", 4) : 4, seen = vae ? vae->config_int("in_channels", 3) : 3;
  SF_CHECK(image.size(1) == latent || (vae && image.size(1) == seen), name(), ": image must have ", seen, " channels, or be latents of ", latent, ", got ",
           image.shape());
}

void DiffusionPipeline::check_generators(const GenerationOptions& o, int64_t batch) const {
  SF_CHECK(o.generator.size() < 2 || int64_t(o.generator.size()) == batch, name(), ": a list of generators must have one for each picture, got ",
           o.generator.size(), " for ", batch);
}

Guidance DiffusionPipeline::guidance(const GenerationOptions& o) const {
  return {.scale = o.guidance_scale, .rescale = o.guidance_rescale, .mode = o.guidance_mode, .embedded = unet->config_int("time_cond_proj_dim", 0) > 0};
}

Tensor DiffusionPipeline::timestep_cond(const GenerationOptions& o, int64_t batch, DType dtype) const {
  return guidance_scale_embedding(o.guidance_scale, batch, unet->config_int("time_cond_proj_dim", 0), dtype, unet->device());
}

Tensor DiffusionPipeline::initial_latents(const GenerationOptions& o, int64_t batch, int64_t channels, int64_t height, int64_t width, DType dtype) const {
  Shape shape{batch, channels, height / vae_scale_factor(), width / vae_scale_factor()};
  Tensor noise = o.latents ? o.latents.to(unet->device()) : randn_tensor(shape, o.generator, unet->device(), dtype);
  if (o.latents)
    SF_CHECK(noise.ndim() == 4 && noise.size(0) == batch && noise.size(1) == channels, name(), ": latents must be [", batch, ", ", channels, ", h, w], got ",
             noise.shape());
  return noise * scheduler->init_noise_sigma();
}

Tensor DiffusionPipeline::encode_images(const Tensor& images, const Generators& generator, DType dtype) const {
  auto latents = [&](const Tensor& t) { return t.to(unet->device()).to(dtype); };
  if (images.size(1) == (vae ? vae->config_int("latent_channels", 4) : images.size(1))) return latents(images);
  Tensor x = images.to(vae->device()).to(vae->dtype());
  if (generator.size() < 2) return vae->scaled(latents(vae->encode(x, generator.empty() ? Generator() : generator[0])));
  SF_CHECK(int64_t(generator.size()) >= x.size(0), name(), ": a list of generators must have one for each picture, got ", generator.size(), " for ", x.size(0));
  Tensors parts;
  for (int64_t i = 0; i < x.size(0); ++i) parts.push_back(vae->encode(x.narrow(0, i, 1), generator[size_t(i)]));
  return vae->scaled(latents(cat(parts, 0)));
}

Tensor DiffusionPipeline::decoded(const Tensor& latents) const {
  // Scaled in the latents' dtype, as diffusers does; components may have dtypes and devices of their own.
  Tensor z = vae->unscaled(latents.to(vae->device()));
  cpu::LeanMemory::give_back();  // what the denoiser's kernels kept is of no use to the autoencoder's
  return clamp(vae->decode(z.to(vae->dtype())) * 0.5 + 0.5, 0, 1).to(kFloat32);
}

StableDiffusionEmbeds StableDiffusionBase::encode_prompt(const GenerationOptions& o) const {
  int64_t n = prompts(o);
  bool guided = guidance(o).on();
  StableDiffusionEmbeds out;
  TextOptions text{.syntax = o.prompt_syntax};
  bool needs_encoder = !o.prompt_embeds || (guided && !o.negative_prompt.empty());
  SF_CHECK(!needs_encoder || (text_encoder && tokenizer), name(), ": has no text_encoder and tokenizer to encode prompts with; pass prompt_embeds");
  std::vector<std::string> negative = o.negative_prompt.empty() ? std::vector<std::string>{""} : o.negative_prompt;
  if (text.syntax == PromptSyntax::A1111 && text_encoder && tokenizer) {
    text.chunks = guided && !o.negative_prompt_embeds ? prompt_chunks(*tokenizer, *text_encoder, negative) : 1;
    if (o.prompt_embeds) text.chunks = std::max(text.chunks, o.prompt_embeds.size(1) / text_encoder->config_int("max_position_embeddings", 77));
    else text.chunks = std::max(text.chunks, prompt_chunks(*tokenizer, *text_encoder, o.prompt));
  }
  TextLayer layer;
  if (o.clip_skip) layer = {.from_end = *o.clip_skip, .normalized = true};
  out.prompt_embeds = o.prompt_embeds;
  if (!o.prompt_embeds) {
    text.layer = layer;
    TextEmbeds positive = embed_prompts(*tokenizer, *text_encoder, o.prompt, text);
    out.prompt_embeds = positive.embeds;
    out.truncated = positive.truncated;
  }
  DType dtype = text_encoder ? text_encoder->dtype() : unet->dtype();
  out.prompt_embeds = out.prompt_embeds.to(dtype).to(unet->device());
  if (guided) {
    Tensor embeds = o.negative_prompt_embeds;
    if (!embeds && text_encoder && tokenizer) {
      text.length = out.prompt_embeds.size(1);
      // diffusers leaves out layers of the positive prompt only; the web UI of both.
      text.layer = text.syntax == PromptSyntax::A1111 ? layer : TextLayer();
      embeds = embed_prompts(*tokenizer, *text_encoder, negative, text).embeds;
    } else if (!embeds) {
      embeds = zeros_like(out.prompt_embeds);  // a pipeline without an encoder has no embeds of the empty prompt
    }
    embeds = fill_batch(name(), "negative prompts", embeds.to(dtype).to(unet->device()), n);
    SF_CHECK(embeds.shape() == out.prompt_embeds.shape(), name(), ": prompt_embeds and negative_prompt_embeds must have one shape, got ",
             out.prompt_embeds.shape(), " and ", embeds.shape());
    out.negative_prompt_embeds = repeated_samples(embeds, o.num_images_per_prompt);
  }
  out.prompt_embeds = repeated_samples(out.prompt_embeds, o.num_images_per_prompt);
  return out;
}

}  // namespace sf::diffusion
