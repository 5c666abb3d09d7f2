#include "scaffolding/diffusion/pipelines/usual_guidance.h"

#include "scaffolding/diffusion/pipelines/text_to_image.h"

namespace sf::diffusion {

double usual_guidance(const DiffusionPipeline& pipeline) {
  constexpr double kUsual = 5;
  if (pipeline.advised_guidance_scale) return *pipeline.advised_guidance_scale;
  const AnyOptions options = pipeline.make_options();
  const double own = options.find("guidance_scale") ? options.at<double>("guidance_scale") : kUsual;
  return own == GenerationOptions().guidance_scale ? kUsual : own;
}

}  // namespace sf::diffusion
