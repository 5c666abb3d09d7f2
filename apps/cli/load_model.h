// The model that a command works with, as its settings ask for it. Functions only.
#pragma once
#include "apps/cli/generation.h"

namespace sf::cli {

// The pipeline of one of the tasks for the model that was asked for (a folder, a checkpoint file, or a repository of
// the hub), with the scheduler and the LoRAs that were asked for, by options or in the prompt. ValueError naming
// `command` and what is wrong with them.
std::shared_ptr<diffusion::DiffusionPipeline> load_model(const char* command, GenerationSettings& settings,
                                                         std::initializer_list<diffusion::Task> tasks);
// The same for a command that needs this class.
std::shared_ptr<diffusion::StableDiffusionPipeline> load_stable_diffusion(const char* command,
                                                                          GenerationSettings& settings);

// What --model is where it was not given: SF_MODEL, else the name of the model that ships. ValueError saying where it
// was looked for.
std::string shipped_model();

}  // namespace sf::cli
