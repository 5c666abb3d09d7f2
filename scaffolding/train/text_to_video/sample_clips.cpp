#include "scaffolding/train/text_to_video/sample_clips.h"

#include <filesystem>

#include "scaffolding/diffusion/pipelines/cogvideox/pipeline_cogvideox.h"
#include "scaffolding/diffusion/pipelines/image_processor.h"
#include "scaffolding/diffusion/pipelines/pipeline_files.h"
#include "scaffolding/diffusion/pipelines/tora/pipeline_tora.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/models/model_files.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/train/picture_grid.h"

namespace sf::train {

namespace {

constexpr int64_t kSteps = 20;

template <class Pipeline>
Pipeline pipeline_of(const TextToVideoRun& run, const TextToVideoModel& model,
                     const std::shared_ptr<const tokenizers::Tokenizer>& tokenizer,
                     const diffusion::Ref<diffusion::Autoencoder>& vae) {
  Pipeline pipeline;
  pipeline.tokenizer = tokenizer;
  pipeline.text_encoder = diffusion::text_encoder(model.text_encoder);
  pipeline.vae = vae;
  pipeline.transformer = diffusion::denoiser(model.transformer);
  pipeline.scheduler = recipe_scheduler(run.recipe.scheduler);
  pipeline.advised_guidance_scale = run.recipe.denoiser.guidance_scale;
  return pipeline;
}

}  // namespace

SampleClips::SampleClips(const TextToVideoRun& run, std::shared_ptr<const tokenizers::Tokenizer> tokenizer)
    : run_(run), tokenizer_(std::move(tokenizer)) {
  vae_ = diffusion::autoencoder(models::load_model(run.place("pipeline/vae")));
  run.move(*vae_->model());
}

void SampleClips::write(TextToVideoModel& model, int64_t step) const {
  const ClipDenoiserRecipe& o = run_.recipe.denoiser;
  if (o.sample_prompts.empty()) return;
  model.eval();
  Tensors pictures;
  const auto make = [&](const auto& pipeline, auto options, size_t i) {
    options.prompt = {o.sample_prompts[i]};
    options.num_inference_steps = kSteps;
    options.guidance_scale = o.guidance_scale;
    options.generator = {make_generator()};
    options.generator[0]->manual_seed(uint64_t(run_.recipe.seed));
    const Tensor clip = pipeline(options).images.select(0, 0);  // [T, 3, H, W]
    for (auto& frame : diffusion::VaeImageProcessor::pictures(clip)) pictures.push_back(frame);
  };
  for (size_t i = 0; i < o.sample_prompts.size(); ++i) {
    if (model.steered()) {
      diffusion::ToraOptions options;
      if (!o.sample_trajectories.empty()) options.steering.trajectory = {o.sample_trajectories[i]};
      make(pipeline_of<diffusion::ToraPipeline>(run_, model, tokenizer_, vae_), options, i);
    } else {
      make(pipeline_of<diffusion::CogVideoXPipeline>(run_, model, tokenizer_, vae_), diffusion::CogVideoXOptions(), i);
    }
  }
  model.train();
  char name[40];
  std::snprintf(name, sizeof name, "step-%06lld.png", static_cast<long long>(step));
  std::filesystem::create_directories(run_.place("denoiser/samples"));
  io::write_image(run_.place(std::string("denoiser/samples/") + name),
                  picture_grid(pictures, run_.recipe.data.num_frames));
}

void SampleClips::save_pipeline(TextToVideoModel& model) const {
  const nn::ToOptions as_written{.device = Device::CPU, .dtype = kFloat16};
  model.eval();
  nn::to(model, as_written);
  nn::to(*vae_->model(), as_written);
  if (model.steered())
    diffusion::save_pipeline(pipeline_of<diffusion::ToraPipeline>(run_, model, tokenizer_, vae_),
                             run_.place("pipeline"));
  else
    diffusion::save_pipeline(pipeline_of<diffusion::CogVideoXPipeline>(run_, model, tokenizer_, vae_),
                             run_.place("pipeline"));
}

}  // namespace sf::train
