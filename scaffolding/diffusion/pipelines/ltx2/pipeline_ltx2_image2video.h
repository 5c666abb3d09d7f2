// LTX2ImageToVideoPipeline: clips with sound that begin with a picture, with LTX-2.0 and LTX-2.3.
#pragma once
#include "scaffolding/diffusion/pipelines/ltx2/ltx2.h"

namespace sf::diffusion {

struct LTX2ImageToVideoOptions : LTX2Options {
  Tensor image;  // [n, 3, H, W] in [-1, 1], of the clip's size: one for all, or one for each sample
  // How much H.264 has taken from the picture (0: nothing), which is for whoever prepares it: told_picture. Absent: as
  // much as from those of the training.
  std::optional<int64_t> image_crf;
  OptionFields fields();
};

struct LTX2ImageToVideoPipeline : PipelineOf<LTX2ImageToVideoPipeline, LTX2ImageToVideoOptions, LTX2Base> {
  static constexpr const char* kName = "LTX2ImageToVideoPipeline";
  std::unique_ptr<Run> prepare(const LTX2ImageToVideoOptions& options) const;
};

}  // namespace sf::diffusion
