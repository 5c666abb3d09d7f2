#include "scaffolding/diffusion/pipelines/lora.h"

#include <filesystem>

namespace sf::diffusion {

models::AdaptedModels adapted_models(DiffusionPipeline& pipeline) {
  models::AdaptedModels out;
  for (auto& slot : pipeline.components()) {
    const bool may = slot.as<Ref<Denoiser>>() || slot.as<Ref<TextEncoder>>();
    if (Component* network = may ? slot.network() : nullptr)
      if (models::Model* model = network->model()) out.emplace_back(slot.name, model);
  }
  return out;
}

void use_loras(DiffusionPipeline& pipeline, const std::vector<LoraSource>& loras) {
  const models::AdaptedModels models = adapted_models(pipeline);
  std::vector<models::AdapterWeight> on;
  auto forget = [&] {
    for (auto& [component, model] : models)
      for (auto& weight : on)
        if (model->has_adapters() && model->adapters().has(weight.name)) model->adapters().remove(weight.name);
  };
  try {
    for (auto& lora : loras) {
      const std::string name = std::filesystem::path(lora.path).stem().string();
      models::load_lora(models::LoraFile(lora.path), name, models);
      on.push_back({name, lora.weight});
    }
  } catch (...) {
    forget();
    throw;
  }
  for (auto& [component, model] : models) {
    if (!model->has_adapters()) continue;
    std::vector<models::AdapterWeight> mine;
    for (auto& weight : on)
      if (model->adapters().has(weight.name)) mine.push_back(weight);
    model->adapters().set(std::move(mine));
  }
}

}  // namespace sf::diffusion
