#include "scaffolding/train/text_to_image/sample_grid.h"

#include <filesystem>

#include "scaffolding/diffusion/pipelines/image_processor.h"
#include "scaffolding/diffusion/pipelines/pipeline_files.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/train/picture_grid.h"

namespace sf::train {

namespace {
// A handle of what the trainer owns.
template <class M> std::shared_ptr<models::Model> borrowed(M& model) { return {std::shared_ptr<void>(), &model}; }
}  // namespace

SampleGrid::SampleGrid(const TextToImageRun& run, std::shared_ptr<const tokenizers::CLIPTokenizer> tokenizer)
    : run_(run) {
  parts_.tokenizer = std::move(tokenizer);
  parts_.vae = diffusion::autoencoder(models::load_model(run.place("pipeline/vae")));
  run.move(*parts_.vae->model());
  parts_.scheduler = run.recipe.make_scheduler();
  parts_.requires_safety_checker = false;
}

diffusion::StableDiffusionPipeline SampleGrid::pipeline(TextToImageModel& model) const {
  diffusion::StableDiffusionPipeline whole = parts_;
  whole.text_encoder = diffusion::text_encoder(borrowed(model.text_encoder));
  whole.unet = diffusion::denoiser(borrowed(model.unet));
  return whole;
}

void SampleGrid::write(TextToImageModel& model, int64_t step) const {
  auto& prompts = run_.recipe.denoiser.sample_prompts;
  if (prompts.empty()) return;
  model.eval();
  diffusion::GenerationOptions options;
  options.prompt = prompts;
  options.num_inference_steps = 20;
  options.guidance_scale = run_.recipe.denoiser.guidance_scale;
  options.generator = {make_generator()};
  options.generator[0]->manual_seed(uint64_t(run_.recipe.seed));
  Tensor images = pipeline(model)(options).images;
  model.train();
  char name[40];
  std::snprintf(name, sizeof name, "step-%06lld.png", static_cast<long long>(step));
  std::filesystem::create_directories(run_.place("denoiser/samples"));
  io::write_image(run_.place(std::string("denoiser/samples/") + name),
                  picture_grid(diffusion::VaeImageProcessor::pictures(images), 4));
}

void SampleGrid::save_pipeline(TextToImageModel& model) const {
  const nn::ToOptions as_written{.device = Device::CPU, .dtype = kFloat16};
  nn::to(model, as_written);
  nn::to(*parts_.vae->model(), as_written);
  auto whole = pipeline(model);
  whole.advised_guidance_scale = run_.recipe.denoiser.guidance_scale;
  diffusion::save_pipeline(whole, run_.place("pipeline"));
}

}  // namespace sf::train
