// How strongly pictures are guided where nobody says, in the program and the server. A free function; any thread.
#pragma once
#include "scaffolding/diffusion/pipelines/pipeline.h"

namespace sf::diffusion {

// What the model's makers advise, else what the pipeline's class has for its models (FLUX 3.5, its Fill 30, SD 3 7,
// clips 6); of Stable Diffusion 5, since pictures with its 7.5 are overexposed more often.
double usual_guidance(const DiffusionPipeline& pipeline);

}  // namespace sf::diffusion
