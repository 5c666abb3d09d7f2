// --profile, --max-vram and --max-ram: the networks go where a memory plan puts them. Functions only.
#pragma once
#include "apps/cli/generation.h"

namespace sf::cli {

bool is_planned(const GenerationSettings& settings);
// ValueError naming the option for an amount that is none; says the plan unless that is unwanted.
void carry_out_plan(const char* command, const GenerationSettings& settings, diffusion::DiffusionPipeline& pipeline);

}  // namespace sf::cli
