// Animations that commands write: a picture forming, and the walk between two prompts. Functions only.
#pragma once
#include "scaffolding/diffusion/pipelines/pipeline.h"

namespace sf::cli {

// What latents [B, C, h, w] look like now: uint8 [3, H, W] of each. Needs an autoencoder.
Tensors pictures_of(const diffusion::DiffusionPipeline& pipeline, const Tensor& latents);

// NotSupported naming the option where this build cannot write the format that the path's suffix says.
void check_animation(const char* option, const std::string& path);

// A picture after each step, and as it became in the end, which stays for a second and a half.
void save_forming(const std::string& path, Tensors steps, const Tensor& picture);

}  // namespace sf::cli
