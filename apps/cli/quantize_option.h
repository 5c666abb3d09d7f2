// --quantize: weights that become few bits while a model is read. Functions only.
#pragma once
#include <string>

#include "scaffolding/diffusion/pipelines/pipeline_files.h"

namespace CLI {
class App;
}

namespace sf::cli {

void add_quantize_option(CLI::App& command, std::string& value);
std::vector<std::string> quantize_words();  // its values, for completions

// What pipelines are read with, for all networks but autoencoders; empty for "". ValueError that names the option.
diffusion::QuantizeConfigs quantize_configs(const std::string& value);

}  // namespace sf::cli
