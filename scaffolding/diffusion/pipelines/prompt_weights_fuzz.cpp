#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/diffusion/pipelines/prompt_embedding.h"

SF_FUZZ_TARGET(prompt_weights) { sf::diffusion::parse_weights({reinterpret_cast<const char*>(data), size}); }
