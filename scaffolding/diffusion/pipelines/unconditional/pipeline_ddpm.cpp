#include "scaffolding/diffusion/pipelines/unconditional/pipeline_ddpm.h"

#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::diffusion {

SF_PIPELINE(DDPMPipeline)
    .family("unconditional")
    .task(Task::Unconditional)
    .takes("unet", "UNet2DModel")
    .call(
        "batch_size, generator, num_inference_steps, output_type, return_dict, latents, callback_on_step_end, "
        "callback_on_step_end_tensor_inputs")
    .callbacks("latents")
    .doc("Pictures from noise, by a UNet that was trained on such pictures.");

}  // namespace sf::diffusion
