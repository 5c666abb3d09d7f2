#include "scaffolding/diffusion/pipelines/controlnet/controlled_pipeline.h"

#include <filesystem>

#include "scaffolding/core/error.h"
#include "scaffolding/data/canny.h"
#include "scaffolding/models/controlnets/controlnet.h"
#include "scaffolding/models/single_file/single_model.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

std::shared_ptr<models::Model> load_controlnet(const std::string& path, const models::LoadModelOptions& options) {
  std::error_code error;
  constexpr const char* kClass = models::ControlNetModel::kName;
  if (!std::filesystem::is_regular_file(path, error)) return models::load_model(path, options, kClass);
  return models::load_single_model(path, kClass, io::Object::container(io::Object::Dict), options);
}

const PipelineEntry* find_controlled_pipeline(const DiffusionPipeline& pipeline, Task task) {
  std::string family = pipeline_entry(pipeline.name()).family_name;
  constexpr std::string_view kBeside = "-controlnet";
  if (!family.ends_with(kBeside)) family += kBeside;
  return find_pipeline(family, task);
}

std::shared_ptr<DiffusionPipeline> controlled_pipeline(const std::string& who, const DiffusionPipeline& pipeline,
                                                       Task task,
                                                       const std::vector<std::shared_ptr<models::Model>>& networks) {
  const PipelineEntry* entry = find_controlled_pipeline(pipeline, task);
  SF_CHECK_AS(NotSupported, entry, who, ": there is no ", name_of(task), " with ControlNets beside a ",
              pipeline.name());
  std::shared_ptr<DiffusionPipeline> made = entry->make();
  for (size_t i = 0; i < networks.size(); ++i) {
    const std::string name = i == 0 ? "controlnet" : "controlnet_" + std::to_string(i);
    if (i > 0) made->add_slot(name);
    for (auto& slot : made->components())
      if (slot.name == name) slot.take(networks[i]);
  }
  share_components(pipeline, *made);
  return made;
}

const std::vector<std::string>& control_modes() {
  static const std::vector<std::string> all{"none", "canny"};
  return all;
}

Tensor control_picture(const DiffusionPipeline& pipeline, const Tensor& picture, std::string_view mode,
                       const PreprocessOptions& size) {
  const VaeImageProcessor processor({.vae_scale_factor = pipeline.vae_scale_factor(), .do_normalize = false});
  const Tensor seen = mode == "canny" ? contiguous(data::canny(picture).expand({3, -1, -1})) : picture;
  return processor.preprocess(Tensors{seen}, size);
}

}  // namespace sf::diffusion
