// Another autoencoder in a pipeline: the one in a file or a folder, where its latents are those of the model.
#pragma once
#include "scaffolding/diffusion/pipelines/pipeline.h"
#include "scaffolding/models/model_files.h"

namespace sf::diffusion {

// path: a checkpoint with the tensors of an autoencoder of the class that the pipeline has, under the names of any
// layout and whatever else is in it; or a folder with its config and weights, or a pipeline's with one in `vae`. A file
// says nothing of its scaling, which stays the pipeline's. how: dtype and device. ValueError naming what does not fit:
// latent channels, pixels for a latent, or, of a folder, the scaling.
void replace_vae(DiffusionPipeline& pipeline, const std::string& path, const models::LoadModelOptions& how = {});

}  // namespace sf::diffusion
