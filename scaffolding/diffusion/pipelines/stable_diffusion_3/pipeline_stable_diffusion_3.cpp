#include "scaffolding/diffusion/pipelines/stable_diffusion_3/pipeline_stable_diffusion_3.h"

#include <cmath>

#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/registry.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

OptionFields StableDiffusion3TextOptions::fields() {
  return StableDiffusion3Options::fields() +
         OptionFields{
             {"skip_guidance_layers", &skip_guidance_layers,
              "numbers of blocks without which the denoiser is called once more, to go away from what it says then"},
             {"skip_layer_guidance_scale", &skip_layer_guidance_scale, "how far to go away from it"},
             {"skip_layer_guidance_stop", &skip_layer_guidance_stop,
              "the share of the steps after which it is left out"},
             {"skip_layer_guidance_start", &skip_layer_guidance_start, "the share of the steps before it begins"},
         };
}

namespace {

struct SkipLayerRun final : Run {
  SkipLayerRun() { shares_calls = false; }
  Tensor layers;  // int64 [n], on the host
  double scale = 0, start = 0, stop = 0;

 protected:
  Tensor predicted(Denoiser& denoiser, const Tensor& samples, const DenoiserCall& call) override {
    const double i = double(at()), steps = double(schedule.num_inference_steps);
    if (!guidance.on() || !(i > steps * start && i < steps * stop)) return Run::predicted(denoiser, samples, call);
    cpu::LeanMemory lean;
    const int64_t n = samples.size(0);
    const Tensor timestep = schedule.told_timestep(at()),
                 x = scheduler->scale_model_input(samples, schedule.values[at()]);
    const DenoiserCall negative = call.half(0, n), positive = call.half(1, n);
    const Tensor output =
        guidance.mode == GuidanceMode::Batched
            ? denoiser.predict(call.with(cat({x, x}, 0), timestep))
            : cat({denoiser.predict(negative.with(x, timestep)), denoiser.predict(positive.with(x, timestep))}, 0);
    DenoiserCall skipping = positive.with(x, timestep);
    skipping.push_back({"skip_layers", layers, ArgumentRole::Setting});
    return guided(output, guidance) + (output.narrow(0, n, n) - denoiser.predict(skipping)) * scale;
  }
};

}  // namespace

std::unique_ptr<Run> StableDiffusion3Pipeline::prepare(const StableDiffusion3TextOptions& o) const {
  check_sd3(o);
  const int64_t scale = vae_scale_factor();
  Size pixels = size(o.height, o.width);
  if (o.latents && o.latents.ndim() == 4) pixels = {o.latents.size(2) * scale, o.latents.size(3) * scale};
  check_patches(pixels.height, pixels.width);
  std::unique_ptr<Run> run;
  if (o.skip_guidance_layers) {
    const int64_t blocks = transformer->config_int("num_layers", 0);
    std::vector<int64_t> layers;
    for (double i : *o.skip_guidance_layers) {
      SF_CHECK(i >= 0 && i < double(blocks) && i == std::floor(i), kName,
               ": skip_guidance_layers must be numbers of the denoiser's ", blocks, " blocks, got ", i);
      layers.push_back(int64_t(i));
    }
    auto skipping = std::make_unique<SkipLayerRun>();
    skipping->layers = tensor(layers, {int64_t(layers.size())}, kInt64);
    skipping->scale = o.skip_layer_guidance_scale;
    skipping->start = o.skip_layer_guidance_start, skipping->stop = o.skip_layer_guidance_stop;
    run = std::move(skipping);
  } else {
    run = std::make_unique<Run>();
  }
  prepare_run(*run, o, pixels);
  const Shape shape{prompts(o) * o.num_images_per_prompt, transformer->config_int("in_channels", 16),
                    pixels.height / scale, pixels.width / scale};
  run->latents =
      initial_latents(*run->scheduler, o.latents, o.generator, shape, run->told.of(ArgumentRole::Text).dtype());
  return run;
}

SF_PIPELINE(StableDiffusion3Pipeline)
    .family("stable-diffusion-3")
    .task(Task::TextToImage)
    .takes("transformer", "SD3Transformer2DModel")
    .optional(
        "tokenizer, tokenizer_2, tokenizer_3, text_encoder, text_encoder_2, text_encoder_3, image_encoder, "
        "feature_extractor")
    .call(
        "prompt, prompt_2, prompt_3, height, width, num_inference_steps, sigmas, guidance_scale, negative_prompt, "
        "negative_prompt_2, negative_prompt_3, num_images_per_prompt, generator, latents, prompt_embeds, "
        "negative_prompt_embeds, pooled_prompt_embeds, negative_pooled_prompt_embeds, ip_adapter_image, "
        "ip_adapter_image_embeds, output_type, return_dict, joint_attention_kwargs, clip_skip, callback_on_step_end, "
        "callback_on_step_end_tensor_inputs, max_sequence_length, skip_guidance_layers, skip_layer_guidance_scale, "
        "skip_layer_guidance_stop, skip_layer_guidance_start, mu, guidance_mode")
    .callbacks("latents, prompt_embeds, pooled_prompt_embeds")
    .doc("Text to pictures with Stable Diffusion 3 and 3.5.");

}  // namespace sf::diffusion
