#include "scaffolding/diffusion/pipelines/pixart/pipeline_pixart_sigma.h"

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/pixart/picture_size.h"
#include "scaffolding/diffusion/pipelines/registry.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/tokenizers/unicode.h"

namespace sf::diffusion {

PixArtSigmaOptions::PixArtSigmaOptions() {
  num_inference_steps = 20;
  guidance_scale = 4.5;
  negative_prompt = {""};
}

OptionFields PixArtSigmaOptions::fields() {
  return GenerationOptions::fields() +
         OptionFields{
             {"prompt_attention_mask", &prompt_attention_mask,
              "[prompts, tokens]: 0 where prompt_embeds are of padding"},
             {"negative_prompt_attention_mask", &negative_prompt_attention_mask,
              "[prompts, tokens]: 0 where negative_prompt_embeds are of padding"},
             {"use_resolution_binning", &use_resolution_binning,
              "computed in the nearest size that the network was trained on, then resized and cropped"},
             {"max_sequence_length", &max_sequence_length, "tokens of a prompt"},
         };
}

namespace {

TextEmbeds read(const tokenizers::Tokenizer& tokenizer, TextEncoder& encoder, std::vector<std::string> texts,
                int64_t length) {
  for (auto& text : texts) text = tokenizers::lowercase(text);
  return embed_prompts(tokenizer, encoder, texts, {.length = length, .masked = true});
}

struct PixArtRun : Run {
  DiffusionPipeline::Size wanted;  // pixels
  Tensor negative_prompt_embeds;   // for callbacks; the denoiser sees them beside the positive ones
  Tensor& prompt_embeds() { return told.of(ArgumentRole::Text); }

 protected:
  Tensor shaped(const Tensor& values) const override {
    return resized_and_cropped(values, wanted.height, wanted.width);
  }
  void keep_more(const Tensor& places) override {
    if (negative_prompt_embeds)
      negative_prompt_embeds = index_select(negative_prompt_embeds, 0, places.to(negative_prompt_embeds.device()));
  }
};

}  // namespace

PixArtSigmaEmbeds PixArtSigmaPipeline::encode_prompt(const PixArtSigmaOptions& o) const {
  const bool guided = guidance(o).on();
  SF_CHECK(!o.prompt_embeds == !o.prompt_attention_mask, kName,
           ": prompt_embeds and prompt_attention_mask go together");
  SF_CHECK(!o.negative_prompt_embeds == !o.negative_prompt_attention_mask, kName,
           ": negative_prompt_embeds and negative_prompt_attention_mask go together");
  for (auto& [embeds, mask] : {std::pair{o.prompt_embeds, o.prompt_attention_mask},
                               {o.negative_prompt_embeds, o.negative_prompt_attention_mask}})
    if (embeds) check_shape(kName, "the embeds' attention mask", mask, {embeds.size(0), embeds.size(1)});
  SF_CHECK(o.max_sequence_length > 0, kName, ": max_sequence_length must be positive, got ", o.max_sequence_length);
  const bool reads = !o.prompt_embeds || (guided && !o.negative_prompt_embeds);
  SF_CHECK(!reads || (text_encoder && tokenizer), kName,
           ": has no text_encoder and tokenizer to encode prompts with; pass embeds and their masks");

  PixArtSigmaEmbeds out{.prompt_embeds = o.prompt_embeds, .prompt_attention_mask = o.prompt_attention_mask};
  if (!o.prompt_embeds) {
    TextEmbeds words = read(*tokenizer, *text_encoder, o.prompt, o.max_sequence_length);
    out.prompt_embeds = words.embeds, out.prompt_attention_mask = words.attention_mask, out.truncated = words.truncated;
  }
  const DType dtype = text_encoder ? text_encoder->dtype() : transformer->dtype();
  auto sample = [&](Tensor& embeds, Tensor& mask, int64_t n) {
    embeds = repeated_samples(fill_batch(kName, "negative prompts", embeds.to(dtype).to(transformer->device()), n),
                              o.num_images_per_prompt);
    mask = repeated_samples(fill_batch(kName, "negative prompts", mask.to(transformer->device()), n),
                            o.num_images_per_prompt);
  };
  if (guided) {
    out.negative_prompt_embeds = o.negative_prompt_embeds,
    out.negative_prompt_attention_mask = o.negative_prompt_attention_mask;
    if (!out.negative_prompt_embeds) {
      TextEmbeds words =
          read(*tokenizer, *text_encoder, o.negative_prompt.empty() ? std::vector<std::string>{""} : o.negative_prompt,
               out.prompt_embeds.size(1));
      out.negative_prompt_embeds = words.embeds, out.negative_prompt_attention_mask = words.attention_mask;
    }
    sample(out.negative_prompt_embeds, out.negative_prompt_attention_mask, out.prompt_embeds.size(0));
  }
  sample(out.prompt_embeds, out.prompt_attention_mask, out.prompt_embeds.size(0));
  return out;
}

std::vector<std::pair<std::string, Tensor>> PixArtSigmaPipeline::prompt_tensors(const PixArtSigmaOptions& o) const {
  auto e = encode_prompt(o);
  return {{"prompt_embeds", e.prompt_embeds},
          {"prompt_attention_mask", e.prompt_attention_mask},
          {"negative_prompt_embeds", e.negative_prompt_embeds},
          {"negative_prompt_attention_mask", e.negative_prompt_attention_mask}};
}

std::unique_ptr<Run> PixArtSigmaPipeline::prepare(const PixArtSigmaOptions& given) const {
  check_components();
  PixArtSigmaOptions o = given;
  // the default
  if (o.negative_prompt_embeds && o.negative_prompt == std::vector<std::string>{""}) o.negative_prompt.clear();
  const Size wanted = size(o.height, o.width);
  if (o.use_resolution_binning) {
    auto [height, width] = trained_size(wanted.height, wanted.width, transformer->config_int("sample_size", 128));
    o.height = height, o.width = width;
  }
  check_call(o);
  auto [height, width] = size(o.height, o.width);

  auto run = std::make_unique<PixArtRun>();
  run->guidance = guidance(o);
  auto e = encode_prompt(o);
  run->truncated = e.truncated;
  run->negative_prompt_embeds = e.negative_prompt_embeds;
  if (run->guidance.on()) {
    e.prompt_embeds = cat({e.negative_prompt_embeds, e.prompt_embeds}, 0);
    e.prompt_attention_mask = cat({e.negative_prompt_attention_mask, e.prompt_attention_mask}, 0);
  }
  run->scheduler = o.scheduler ? o.scheduler : scheduler;
  run->schedule = schedule(*run->scheduler, o);
  run->step_options = step_options(*run->scheduler, o.eta, o.generator);
  const int64_t channels = transformer->config_int("in_channels", 4), scale = vae_scale_factor();
  const Shape shape{prompts(o) * o.num_images_per_prompt, channels, height / scale, width / scale};
  run->latents = initial_latents(*run->scheduler, o.latents, o.generator, shape, e.prompt_embeds.dtype());
  run->told = {{"", {}, ArgumentRole::Sample},
               {"encoder_hidden_states", e.prompt_embeds, ArgumentRole::Text},
               {"timestep", {}, ArgumentRole::Timestep},
               {"encoder_attention_mask", e.prompt_attention_mask, ArgumentRole::PerSample}};
  // the rest is a learned variance
  if (transformer->config_int("out_channels", channels) / 2 == channels) run->output_channels = channels;
  run->tensors = {{"latents", &run->latents},
                  {"prompt_embeds", &run->prompt_embeds()},
                  {"negative_prompt_embeds", &run->negative_prompt_embeds}};
  run->wanted = o.use_resolution_binning ? wanted : Size{height, width};
  return run;
}

SF_PIPELINE(PixArtSigmaPipeline)
    .family("pixart")
    .task(Task::TextToImage)
    .takes("transformer", "PixArtTransformer2DModel")
    .takes("text_encoder", "T5EncoderModel")
    .optional("tokenizer, text_encoder")
    .call(
        "prompt, negative_prompt, num_inference_steps, timesteps, sigmas, guidance_scale, num_images_per_prompt, "
        "height, width, eta, generator, latents, "
        "prompt_embeds, prompt_attention_mask, negative_prompt_embeds, negative_prompt_attention_mask, output_type, "
        "return_dict, use_resolution_binning, "
        "max_sequence_length, callback_on_step_end, callback_on_step_end_tensor_inputs, guidance_mode")
    .callbacks("latents, prompt_embeds, negative_prompt_embeds")
    .doc("Text to pictures with PixArt-Sigma.");

}  // namespace sf::diffusion
