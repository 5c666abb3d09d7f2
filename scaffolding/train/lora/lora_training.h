// Trains a LoRA beside the denoiser of a text-to-image pipeline, whatever the pipeline and however its weights are
// stored: the base is frozen and never changes, the LoRA's factors are float32.
//
//   auto loaded = diffusion::load_pipeline("stable-diffusion-v1-5", {.dtype = kFloat32});
//   data::ImageFolder pictures("pictures", training_pictures(512));
//   auto encoded = std::make_shared<EncodedPictures>(pictures, *loaded.pipeline, EncodedPictures::Options{});
//   LoraTraining training({.max_steps = 500}, *loaded.pipeline, encoded);
//   training.options.run.output_dir = "runs/style";
//   if (training.train()) training.save("runs/style/pytorch_lora_weights.safetensors");
#pragma once
#include "scaffolding/train/lora/encoded_pictures.h"
#include "scaffolding/train/lora/lora_recipe.h"
#include "scaffolding/train/trainer.h"

namespace sf::train {

// How pictures are read for it: the shorter side becomes `resolution`, and the middle square is taken.
data::ImageOptions training_pictures(int64_t resolution);
// The recipe's resolution, or the one that the pipeline's denoiser was trained on. ValueError for one that is no
// multiple of what the pipeline's pictures are made of.
int64_t training_resolution(const LoraRecipe& recipe, const diffusion::DiffusionPipeline& pipeline);

class LoraTraining {
 public:
  static constexpr const char* kAdapter = "lora";  // its name beside the denoiser
  // The pipeline must outlive it. ValueError for a recipe that makes no sense or does not fit the denoiser,
  // NotSupported for a pipeline that is not of prompts and pictures.
  LoraTraining(LoraRecipe recipe, diffusion::DiffusionPipeline& pipeline,
               std::shared_ptr<const data::Dataset> encoded_pictures);
  ~LoraTraining();
  LoraTraining(const LoraTraining&) = delete;

  TrainerOptions options;  // may be changed before train()
  // To the recipe's last step, from the last checkpoint in options.run.output_dir. False: SIGINT stopped it.
  bool train();
  int64_t step() const;
  // Calls f while nothing is dropped, between steps: what the pipeline draws then is with the LoRA as it is.
  void show(const std::function<void()>& f);
  void save(const std::string& path) const;  // the LoRA as it is, as diffusers writes it

 private:
  struct Parameters;  // as a module, for the Trainer
  Tensor loss(const data::Batch& batch);

  LoraRecipe recipe_;
  diffusion::DiffusionPipeline& pipeline_;
  models::Model& denoiser_;
  EncodedPrompts prompts_;
  std::unique_ptr<diffusion::Scheduler> scheduler_;
  data::DataLoader loader_;
  std::unique_ptr<Parameters> parameters_;
  std::optional<optim::AdamW> optimizer_;
  std::unique_ptr<optim::LRScheduler> schedule_;
  std::optional<Trainer> trainer_;
};

}  // namespace sf::train
