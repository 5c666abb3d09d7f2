#include "scaffolding/diffusion/pipelines/unconditional/pipeline_ddim.h"

#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/registry.h"
#include "scaffolding/diffusion/schedulers/scheduling_ddim.h"

namespace sf::diffusion {

OptionFields DDIMPipelineOptions::fields() {
  const OptionFields own{
      {"eta", &eta, "0 adds no noise in the steps, 1 as much as DDPM"},
      {"use_clipped_model_output", &use_clipped_model_output,
       "steps with the noise that goes with the clipped picture"},
  };
  return own + UnconditionalOptions::fields();
}

void DDIMPipeline::take_components() {
  if (scheduler && std::string_view(scheduler->name()) != DDIMScheduler::kName)
    scheduler = make_scheduler(DDIMScheduler::kName, scheduler->config());
}

std::unique_ptr<Run> DDIMPipeline::prepare(const DDIMPipelineOptions& o) const {
  SF_CHECK(std::isfinite(o.eta), kName, ": eta must be finite, got ", o.eta);
  auto run = from_noise(o, o.eta);
  if (run->scheduler->step_parameters().find("use_clipped_model_output") != std::string_view::npos)
    run->step_options.use_clipped_model_output = o.use_clipped_model_output;
  return run;
}

SF_PIPELINE(DDIMPipeline)
    .family("unconditional-ddim")
    .task(Task::Unconditional)
    .takes("unet", "UNet2DModel")
    .call(
        "batch_size, generator, eta, num_inference_steps, use_clipped_model_output, output_type, return_dict, latents, "
        "callback_on_step_end, callback_on_step_end_tensor_inputs")
    .callbacks("latents")
    .doc("Pictures from noise in few steps, by a UNet that was trained on such pictures.");

}  // namespace sf::diffusion
