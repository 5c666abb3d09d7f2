// Samplers by the short names that people know.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::cli {

std::vector<std::string> sampler_names();
// The sampler of that name with the config of the model's own scheduler; "" is that one itself. scheduler_options:
// "field=value", values as in JSON. ValueError naming what there is.
std::unique_ptr<diffusion::Scheduler> make_sampler(const std::string& name, diffusion::Scheduler& own,
                                                   const std::vector<std::string>& scheduler_options);

}  // namespace sf::cli
