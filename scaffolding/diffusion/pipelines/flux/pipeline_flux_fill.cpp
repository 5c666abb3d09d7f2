#include "scaffolding/diffusion/pipelines/flux/pipeline_flux_fill.h"

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/registry.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

FluxFillOptions::FluxFillOptions() {
  num_inference_steps = 50;
  guidance_scale = 30;
}

OptionFields FluxFillOptions::fields() {
  return FluxOptions::fields() +
         OptionFields{
             {"image", &image, "the picture, or a list of them", OptionRole::Picture},
             {"mask_image", &mask, "white where the picture is made anew, black where it stays", OptionRole::Mask},
             {"strength", &strength, "how far the result may be from the picture: the share of the steps that is run"},
         };
}

Tensor FluxFillPipeline::seen(const FluxRun& run, const FluxFillOptions& o, DType dtype) const {
  const Shape latents = latent_shape(run, o);
  const int64_t batch = latents[0], scale = vae_scale_factor();
  check_defined(kName, "mask_image", o.mask);
  SF_CHECK(o.mask.ndim() == 4 && o.mask.size(1) == 1 && o.mask.size(2) == run.height * scale &&
               o.mask.size(3) == run.width * scale && o.image.size(1) == 3,
           kName, ": mask_image must be [n, 1, ", run.height * scale, ", ", run.width * scale,
           "] beside a picture of that size, got ", o.mask.shape(), " and ", o.image.shape());
  const Tensor left = o.image * (1 - o.mask);
  const Tensor picture = fill_batch(kName, "images", encode_images(left, o.generator, dtype), batch);
  // the mask's pixels of each latent are channels
  const Tensor mask = fill_batch(kName, "masks", o.mask.to(transformer->device()).to(dtype), batch)
                          .reshape({batch, run.height, scale, run.width, scale})
                          .permute({0, 2, 4, 1, 3})
                          .reshape({batch, scale * scale, run.height, run.width});
  return cat({packed_latents(picture), packed_latents(mask)}, 2);
}

std::unique_ptr<Run> FluxFillPipeline::prepare(const FluxFillOptions& given) const {
  FluxFillOptions o = given;
  check_defined(kName, "image", o.image);
  if (!o.height && !o.width && o.image.ndim() == 4)  // as large as the picture
    o.height = o.image.size(2), o.width = o.image.size(3);
  check_flux(o);
  auto run = std::make_unique<FluxRun>();
  prepare_run(*run, o);
  start_at_strength(kName, *run->scheduler, run->schedule, o.strength, PartOfStep::Run);
  run->latents = o.latents ? given_latents(*run, o) : noised_picture(*run, o, o.image);
  const Tensor beside = seen(*run, o, run->latents.dtype());
  const int64_t wanted = transformer->config_int("in_channels", 384);
  SF_CHECK(run->latents.size(2) + beside.size(2) == wanted, kName, ": the denoiser takes ", wanted,
           " channels, and latents, picture and mask have ", run->latents.size(2) + beside.size(2),
           "; is it FLUX.1 Fill's?");
  run->told.push_back({"", run->guidance.on() ? cat({beside, beside}, 0) : beside, ArgumentRole::Channels});
  return run;
}

SF_PIPELINE(FluxFillPipeline)
    .family("flux-fill")
    .task(Task::Inpainting)
    .takes("transformer", "FluxTransformer2DModel")
    .takes("text_encoder_2", "T5EncoderModel")
    .optional("text_encoder, tokenizer, text_encoder_2, tokenizer_2")
    .call(
        "prompt, prompt_2, image, mask_image, height, width, strength, num_inference_steps, "
        "sigmas, guidance_scale, num_images_per_prompt, generator, latents, prompt_embeds, pooled_prompt_embeds, "
        "output_type, return_dict, joint_attention_kwargs, callback_on_step_end, callback_on_step_end_tensor_inputs, "
        "max_sequence_length")
    .callbacks("latents, prompt_embeds")
    .doc("A part of a picture made anew, or what is around it, with FLUX.1 Fill.");

}  // namespace sf::diffusion
