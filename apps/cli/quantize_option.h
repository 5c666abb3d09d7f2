// --quantize: weights that become few bits while a model is read. Functions only.
#pragma once
#include <string>

#include "scaffolding/diffusion/pipelines/pipeline_files.h"

namespace CLI {
class App;
}

namespace sf::cli {

void add_quantize_option(CLI::App& command, std::string& value);

// What pipelines are read with: of "q4_K" all networks but autoencoders, with their activations as they are; of
// "int8-dynamic" activations in int8 too. Empty for "". ValueError, which begins with the option, for another name.
diffusion::QuantizeConfigs quantize_configs(const std::string& value);

}  // namespace sf::cli
