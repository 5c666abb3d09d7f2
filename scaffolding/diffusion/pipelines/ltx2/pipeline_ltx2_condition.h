// LTX2ConditionPipeline: clips with sound that go through given pictures and clips, at places of one's own, with
// LTX-2.0 and LTX-2.3.
#pragma once
#include "scaffolding/diffusion/pipelines/ltx2/ltx2.h"

namespace sf::diffusion {

struct LTX2ConditionOptions : LTX2Options {
  LTX2ConditionOptions() { noise_scale = {}; }  // as much as the first noise level says
  // What the clip goes through: [T, 3, H, W] each, in [-1, 1], of any size: filled and cut to the clip's.
  Tensors conditions;
  // Of each: the latent that it begins at, from the end where below 0; and how closely it is kept, 0 to 1. One for
  // all, or as many as there are.
  std::vector<double> condition_indices{0}, condition_strengths{1};
  Tensor image;                      // [1, 3, H, W] in [-1, 1]: one more, that the clip begins with
  std::optional<int64_t> image_crf;  // as LTX2ImageToVideoOptions has it
  OptionFields fields();
};

struct LTX2ConditionPipeline : PipelineOf<LTX2ConditionPipeline, LTX2ConditionOptions, LTX2Base> {
  static constexpr const char* kName = "LTX2ConditionPipeline";
  std::unique_ptr<Run> prepare(const LTX2ConditionOptions& options) const;
};

}  // namespace sf::diffusion
