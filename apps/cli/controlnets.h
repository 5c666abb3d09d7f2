// --controlnet of txt2img, img2img and inpaint: networks beside the UNet, and the pictures that they see.
#pragma once
#include "apps/cli/generation.h"

namespace sf::cli {

void add_controlnet_options(CLI::App& command, GenerationSettings& settings);

// The networks that the settings name, which then say where they were found.
std::vector<std::shared_ptr<models::Model>> load_controlnets(GenerationSettings& settings, DType dtype,
                                                             std::optional<int64_t> keep_half_from);
// ValueError for pictures that are not there, or not for each network, and for settings that contradict each other.
void check_controlnets(const GenerationSettings& settings);
// Gives a call the pictures, as large as what is made. image: the picture to begin with, or none.
void set_control_pictures(const diffusion::AnyOptions& call, const GenerationSettings& settings,
                          const diffusion::DiffusionPipeline& pipeline, const Tensor& image);

}  // namespace sf::cli
