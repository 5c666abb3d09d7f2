// What the stages of a text-to-image training share: the folder they work in, and where they say what they do.
// Everything lies in one folder, and each stage goes on where it was stopped:
//   autoencoder/, text_encoder/, denoiser/   checkpoints, metrics.jsonl, TensorBoard files, sample grids
//   latents.safetensors       the icons as the autoencoder sees them
//   pipeline/                 what was made: a StableDiffusionPipeline in diffusers' layout
#pragma once
#include <functional>

#include "scaffolding/nn/module.h"
#include "scaffolding/train/text_to_image/recipe.h"

namespace sf::train {

struct TextToImageRun {
  Recipe recipe;
  std::string output_dir;
  std::shared_ptr<const data::IconDataset> icons;
  Device device;                                // where the networks are trained, encode and paint
  bool cuda_graph = false;                      // on CUDA: steps are captured (TrainerOptions)
  bool quiet = false;                           // no progress lines
  std::function<void(const std::string&)> say;  // a line about each stage; may be null

  // Opens the data. ValueError where there are none.
  TextToImageRun(Recipe recipe, std::string output_dir);
  std::string place(const std::string& name) const;
  bool done(const std::string& name) const;  // whether that file is there
  void tell(const std::string& text) const;
  void move(nn::Module& model) const;  // to the device; on CUDA channels-last, as its convolutions read weights
};

}  // namespace sf::train
