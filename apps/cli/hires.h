// --hires and what belongs to it.
#pragma once
#include "apps/cli/generation.h"
#include "scaffolding/diffusion/pipelines/hires.h"

namespace sf::cli {

void add_hires_options(CLI::App& command, GenerationSettings& settings);
// Of settings with hires. ValueError for an upscaler that there is not.
diffusion::HiresOptions hires_options(const GenerationSettings& settings);
// "Denoising strength: 0.7, Hires upscale: 2, ..." as the web UI writes it.
std::string hires_text(const GenerationSettings& settings);

}  // namespace sf::cli
