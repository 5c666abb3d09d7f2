// The parts of a run that is written in C++: what Trainer gives its loop.
#pragma once
#include "scaffolding/train/trainer.h"
#include "scaffolding/train/training_parts.h"

namespace sf::train {

// Tensors where a model is; a copy from the host to a GPU waits for nothing.
Tensors uploaded(const Tensors& tensors, Device device);
// Tensors of a safetensors file in the order of `names`, each on the device of the one in `like`. ValueError for a name
// that the file does not have.
Tensors load_named(const std::string& path, const std::vector<std::string>& names, const Tensors& like);
std::vector<std::string> parameter_names(nn::Module& model);

// `interrupted` is asked after each step.
Parts native_parts(nn::Module& model, optim::Optimizer& optimizer, data::DataLoader& loader, Trainer::Step step,
                   const TrainerOptions& options, std::function<bool()> interrupted);
Parts native_parts(nn::Module& model, optim::Optimizer& optimizer, data::DataLoader& loader, Trainer::Prepare prepare,
                   Trainer::PreparedStep step, const TrainerOptions& options, std::function<bool()> interrupted);

}  // namespace sf::train
