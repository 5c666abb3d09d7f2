// RecipeRun: what the stages of a training by a recipe share: the folder they work in, where they compute, and where
// they say what they do. Each stage looks for its result first, so that the same command goes on where a run was
// stopped.
#pragma once
#include <functional>

#include "scaffolding/nn/module.h"
#include "scaffolding/train/stage_recipe.h"

namespace sf::train {

struct RecipeRun {
  std::string output_dir;
  Device device;                                // where the networks are trained, encode and paint
  bool cuda_graph = false;                      // on CUDA: steps are captured (TrainerOptions)
  bool quiet = false;                           // no progress lines
  std::function<void(const std::string&)> say;  // a line about each stage; may be null

  explicit RecipeRun(std::string output_dir);  // ValueError for an empty name
  // The folder, and pipeline/ in it: once it is known that there is something to train on. RuntimeError where it cannot
  // be made.
  void make_folder() const;
  std::string place(const std::string& name) const;
  bool done(const std::string& name) const;  // whether that file is there
  void tell(const std::string& text) const;
  void move(nn::Module& model) const;  // to the device; on CUDA channels-last, as its convolutions read weights
};

}  // namespace sf::train
