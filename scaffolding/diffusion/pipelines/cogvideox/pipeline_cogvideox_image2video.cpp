#include "scaffolding/diffusion/pipelines/cogvideox/pipeline_cogvideox_image2video.h"

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/registry.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

OptionFields CogVideoXImageToVideoOptions::fields() {
  return OptionFields{
             {"image", &image, "the picture that the clip begins with, or a list of them", OptionRole::Picture}} +
         CogVideoXOptions::fields();
}

Tensor CogVideoXImageToVideoPipeline::image_latents(const CogVideoXImageToVideoOptions& o, DType dtype) const {
  const Clip c = clip(o);
  const auto [height, width] = size(o.height, o.width);
  SF_CHECK(vae, kName, ": has no vae to encode the picture with");
  check_image(o.image);
  SF_CHECK(o.image.size(2) == height && o.image.size(3) == width, kName, ": image must be as large as the clip, ",
           height, " x ", width, " pixels, got ", o.image.size(2), " x ", o.image.size(3));
  const Tensor images = fill_batch(kName, "images", o.image, c.batch).to(vae->device()).to(vae->dtype());
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

std::unique_ptr<Run> CogVideoXImageToVideoPipeline::prepare(const CogVideoXImageToVideoOptions& o) const {
  auto run = prepare_run(o);
  const DType dtype = run->prompt_embeds().dtype();
  const Tensor beside = image_latents(o, dtype);  // draws before the noise is drawn
  draw_latents(*run, o, transformer->config_int("in_channels", 32) / 2);
  run->told.push_back({"", run->guidance.on() ? cat({beside, beside}, 0) : beside, ArgumentRole::Channels});
  if (transformer->config_int("ofs_embed_dim", 0))
    run->told.push_back({"ofs", full({1}, 2.0, dtype, transformer->device()), ArgumentRole::Shared});
  return run;
}

SF_PIPELINE(CogVideoXImageToVideoPipeline)
    .family("cogvideox")
    .task(Task::ImageToVideo)
    .takes("text_encoder", "T5EncoderModel")
    .call(
        "image, prompt, negative_prompt, height, width, num_frames, num_inference_steps, timesteps, guidance_scale, "
        "use_dynamic_cfg, num_videos_per_prompt, eta, generator, latents, prompt_embeds, negative_prompt_embeds, "
        "output_type, return_dict, attention_kwargs, callback_on_step_end, callback_on_step_end_tensor_inputs, "
        "max_sequence_length, guidance_mode")
    .callbacks("latents, prompt_embeds, negative_prompt_embeds")
    .doc("Clips that begin with a picture, with CogVideoX.");

}  // namespace sf::diffusion
