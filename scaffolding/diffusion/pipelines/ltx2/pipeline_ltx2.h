// LTX2Pipeline: text to clips with sound, with LTX-2.0 and LTX-2.3.
#pragma once
#include "scaffolding/diffusion/pipelines/ltx2/ltx2.h"

namespace sf::diffusion {

struct LTX2Pipeline : PipelineOf<LTX2Pipeline, LTX2Options, LTX2Base> {
  static constexpr const char* kName = "LTX2Pipeline";
  std::unique_ptr<Run> prepare(const LTX2Options& options) const;
};

}  // namespace sf::diffusion
