// Pictures enlarged by a network, tile by tile, so that memory depends on the tile and not on the picture.
#pragma once
#include <functional>

#include "scaffolding/core/tensor.h"
#include "scaffolding/models/model.h"
#include "scaffolding/models/upscalers/upscaling_model.h"

namespace sf::models {

struct UpscaleOptions {
  int64_t tile = 512;    // pixels of the input on a side, without what overlaps; 0: the whole picture at once
  int64_t overlap = 16;  // pixels of the input around each tile that are computed and thrown away
  std::function<void(int64_t done, int64_t tiles)> progress;  // after each tile; what it throws ends the call
};

// ValueError where `model` does not enlarge pictures.
const UpscalingModel& upscaling_model(const Model& model);

// x[B, C, H, W] in [0, 1], of any device and floating dtype -> [B, C, factor * H, factor * W], not clamped, in float32
// on the CPU. Tiles see `overlap` pixels of what is around them: where that is as much as the model's reach, the result
// is that of the whole picture, and mostly much less is enough.
Tensor upscale_tensor(Model& model, const Tensor& x, const UpscaleOptions& options = {});

// uint8 [C, H, W], C 1 to 4 as io/pictures/image.h has it, -> the same, larger. Grey goes through the model as
// colours; an alpha channel as a grey picture, beside them.
Tensor upscale_picture(Model& model, const Tensor& picture, const UpscaleOptions& options = {});

}  // namespace sf::models
