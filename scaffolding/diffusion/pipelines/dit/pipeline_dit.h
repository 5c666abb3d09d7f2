// DiTPipeline: pictures of a class with DiT (Peebles and Xie 2022, arXiv 2212.09748).
#pragma once
#include "scaffolding/diffusion/pipelines/pipeline.h"

namespace sf::diffusion {

struct DiTOptions {
  std::vector<int64_t> class_labels;  // one for each picture
  double guidance_scale = 4;          // above 1: classifier-free guidance
  int64_t num_inference_steps = 50;
  GuidanceMode guidance_mode = GuidanceMode::Batched;
  Generators generator;
  Tensor latents;               // [B, C, h, w] of unit noise, instead of drawing
  bool output_latents = false;  // the result is latents, not pictures
  bool capture = true, cache_prompt = true;
  StepCallback callback_on_step_end;
  StepProgress progress;
  std::stop_token stop;
  Ref<Scheduler> scheduler;  // of this run alone; absent: the pipeline's
  OptionFields fields();
};

struct DiTPipeline : PipelineOf<DiTPipeline, DiTOptions> {
  static constexpr const char* kName = "DiTPipeline";
  Ref<Denoiser> transformer;
  Ref<Autoencoder> vae;
  Ref<Scheduler> scheduler;
  io::Object id2label;  // {"207": "golden retriever, ..."}: names of classes by their numbers; or None
  SF_COMPONENTS(transformer, vae, scheduler)
  io::Fields fields() override { return {{"id2label", &id2label}}; }

  std::map<std::string, int64_t> labels() const override;  // each name of id2label alone
  std::unique_ptr<Run> prepare(const DiTOptions& options) const;
};

}  // namespace sf::diffusion
