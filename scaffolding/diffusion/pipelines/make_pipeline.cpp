#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/pipelines.h"

namespace sf::diffusion {

namespace {
template <class... P> std::unique_ptr<DiffusionPipeline> make_one_of(const std::string& class_name, PipelineComponents& components) {
  std::unique_ptr<DiffusionPipeline> made;
  ((class_name == P::kName ? void(made = std::make_unique<P>(std::move(components))) : void()), ...);
  if (made) return made;
  std::string known;
  ((known += (known.empty() ? "" : ", ") + std::string(P::kName)), ...);
  fail("pipeline: there is no class '", class_name, "'; there are ", known);
}
}  // namespace

std::unique_ptr<DiffusionPipeline> make_pipeline(const std::string& class_name, PipelineComponents components) {
  return make_one_of<StableDiffusionPipeline, StableDiffusionImg2ImgPipeline, StableDiffusionInpaintPipeline, StableDiffusionXLPipeline,
                     StableDiffusionXLImg2ImgPipeline>(class_name, components);
}

}  // namespace sf::diffusion
