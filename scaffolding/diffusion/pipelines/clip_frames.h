// Clips as bytes, of an autoencoder's parts as they come. Of the clip nothing is in memory as floating numbers but the
// part at hand.
#pragma once
#include "scaffolding/diffusion/pipelines/pipeline.h"

namespace sf::diffusion {

// An autoencoder's values, about -1 to 1, as float32 in [0, 1].
Tensor in_unit_range(Tensor values);

// What pipeline.decoded(latents) would be, part by part where the autoencoder decodes so.
void decode_in_parts(const DiffusionPipeline& pipeline, const Tensor& latents, const models::TakeVideoPart& take);

class ClipFrames {
 public:
  void take(const models::VideoPart& part);  // values about -1 to 1
  // Of each clip its frames, uint8 [H, W, C] on the values' device, rounded to the nearest, half to even. What was
  // taken is gone then.
  std::vector<Tensors> joined();

 private:
  std::vector<std::vector<Tensors>> rows_;  // of each clip's frames, from the top down
};

}  // namespace sf::diffusion
