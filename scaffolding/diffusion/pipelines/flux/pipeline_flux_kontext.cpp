#include "scaffolding/diffusion/pipelines/flux/pipeline_flux_kontext.h"

#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/registry.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

OptionFields FluxKontextOptions::fields() {
  return FluxOptions::fields() +
         OptionFields{
             {"image", &image, "the picture that is changed; absent: the text alone", OptionRole::Picture},
             {"max_area", &max_area, "pixels of the result, whose height and width say its shape"},
         };
}

DiffusionPipeline::Size FluxKontextPipeline::trained_size(int64_t height, int64_t width) {
  // widths and heights, narrow ones first; each is a multiple of 16 near a million pixels
  constexpr Size kSizes[] = {{1568, 672}, {1504, 688}, {1456, 720},  {1392, 752}, {1328, 800}, {1248, 832},
                             {1184, 880}, {1104, 944}, {1024, 1024}, {944, 1104}, {880, 1184}, {832, 1248},
                             {800, 1328}, {752, 1392}, {720, 1456},  {688, 1504}, {672, 1568}};
  const double wanted = double(width) / double(height);
  Size best = kSizes[0];
  auto off = [&](const Size& s) { return std::abs(wanted - double(s.width) / double(s.height)); };
  for (const Size& s : kSizes)
    if (off(s) < off(best)) best = s;
  return best;
}

std::unique_ptr<Run> FluxKontextPipeline::prepare(const FluxKontextOptions& given) const {
  FluxKontextOptions o = given;
  SF_CHECK(o.max_area > 0, kName, ": max_area must be above 0, got ", o.max_area);
  {
    const auto [height, width] = size(o.height, o.width);
    SF_CHECK(height > 0 && width > 0, kName, ": height and width must be above 0, got ", height, " and ", width);
    const double area = double(o.max_area), shape = double(width) / double(height);
    auto whole = [&](double side) { return int64_t(std::nearbyint(side)) / side_multiple() * side_multiple(); };
    o.width = whole(std::sqrt(area * shape)), o.height = whole(std::sqrt(area / shape));
  }
  check_flux(o);
  auto run = std::make_unique<FluxRun>();
  prepare_run(*run, o);
  const Shape shape = latent_shape(*run, o);
  const DType dtype = run->prompt_embeds().dtype();
  const Device device = transformer->device();
  Tensor beside;
  if (o.image) {
    check_image(o.image);
    Tensor latents = o.image.to(device).to(dtype);
    if (vae && o.image.size(1) != shape[1])
      latents = vae->scaled(vae->encode_mode(o.image.to(vae->device()).to(vae->dtype())).to(device).to(dtype));
    latents = fill_batch(kName, "images", latents, shape[0]);
    const int64_t h = latents.size(2), w = latents.size(3);
    SF_CHECK(h % 2 == 0 && w % 2 == 0, kName, ": sides of the picture must be divisible by ", side_multiple(),
             ", got latents ", latents.shape());
    beside = packed_latents(latents);
    Tensor& places = run->told.at("img_ids");
    places = cat({places, flux_places(h / 2, w / 2, dtype, device, 1)}, 0);
  }
  run->latents = o.latents ? given_latents(*run, o) : packed_latents(randn_tensor(shape, o.generator, device, dtype));
  if (beside) {
    run->told.push_back({"", run->guidance.on() ? cat({beside, beside}, 0) : beside, ArgumentRole::Tokens});
    run->output_channels = run->latents.size(1);
  }
  return run;
}

SF_PIPELINE(FluxKontextPipeline)
    .family("flux-kontext")
    .task(Task::ImageToImage)
    .takes("transformer", "FluxTransformer2DModel")
    .takes("text_encoder_2", "T5EncoderModel")
    .optional("text_encoder, tokenizer, text_encoder_2, tokenizer_2, image_encoder, feature_extractor")
    .call(
        "image, prompt, prompt_2, negative_prompt, negative_prompt_2, true_cfg_scale, height, width, "
        "num_inference_steps, sigmas, guidance_scale, num_images_per_prompt, generator, latents, prompt_embeds, "
        "pooled_prompt_embeds, ip_adapter_image, ip_adapter_image_embeds, negative_ip_adapter_image, "
        "negative_ip_adapter_image_embeds, negative_prompt_embeds, negative_pooled_prompt_embeds, output_type, "
        "return_dict, joint_attention_kwargs, callback_on_step_end, callback_on_step_end_tensor_inputs, "
        "max_sequence_length, max_area, _auto_resize, guidance_mode")
    .callbacks("latents, prompt_embeds")
    .doc("A picture changed as a sentence says, with FLUX.1 Kontext.");

}  // namespace sf::diffusion
