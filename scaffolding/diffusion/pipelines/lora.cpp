#include "scaffolding/diffusion/pipelines/lora.h"

#include <cmath>

#include "scaffolding/core/error.h"

namespace sf::diffusion {

namespace {

// Of a slot that adapters may change.
models::Model* adapted_model(const DiffusionPipeline& pipeline, const ComponentSlot& slot) {
  auto* denoiser = slot.as<Ref<Denoiser>>();
  const bool may =
      (denoiser && *denoiser == pipeline.the_denoiser()) || slot.as<Ref<TextEncoder>>() || slot.as<Ref<Network>>();
  Component* network = may ? slot.network() : nullptr;
  return network ? network->model() : nullptr;
}

// The adapters' names and weights, once they are known to be possible.
std::vector<std::string> checked_names(const std::vector<LoraSource>& loras, const models::AdaptedModels& models) {
  std::vector<std::string> names;
  for (auto& lora : loras) {
    const std::string name = lora.name.empty() ? models::lora_name(lora.path) : lora.name;
    SF_CHECK(std::isfinite(lora.weight) && std::isfinite(lora.text_encoders.value_or(0)), "use_loras: the weight of '",
             name, "' must be a finite number, got ", std::isfinite(lora.weight) ? *lora.text_encoders : lora.weight);
    for (size_t i = 0; i < names.size(); ++i)
      SF_CHECK(names[i] != name, "use_loras: '", loras[i].path, "' and '", lora.path, "' are two LoRAs of the name '",
               name, "'; give one of them another");
    for (auto& [component, model] : models)
      SF_CHECK(!model->has_adapters() || !model->adapters().has(name), "use_loras: the ", component,
               " has an adapter '", name, "' already; remove it, or give '", lora.path, "' another name");
    names.push_back(name);
  }
  return names;
}

}  // namespace

models::AdaptedModels adapted_models(DiffusionPipeline& pipeline) {
  models::AdaptedModels out;
  for (auto& slot : pipeline.components())
    if (models::Model* model = adapted_model(pipeline, slot)) out.emplace_back(slot.name, model);
  return out;
}

void use_loras(DiffusionPipeline& pipeline, const std::vector<LoraSource>& loras) {
  const models::AdaptedModels models = adapted_models(pipeline);
  const std::vector<std::string> names = checked_names(loras, models);
  size_t loaded = 0;
  try {
    for (; loaded < loras.size(); ++loaded)
      models::load_lora(models::LoraFile(loras[loaded].path), names[loaded], models);
  } catch (...) {
    for (auto& [component, model] : models)
      for (size_t i = 0; i < loaded; ++i)
        if (model->has_adapters() && model->adapters().has(names[i])) model->adapters().remove(names[i]);
    throw;
  }
  for (auto& slot : pipeline.components()) {
    models::Model* model = adapted_model(pipeline, slot);
    if (!model || !model->has_adapters()) continue;
    std::vector<models::AdapterWeight> on;
    for (size_t i = 0; i < loras.size(); ++i) {
      const bool is_text = slot.as<Ref<TextEncoder>>() != nullptr;
      const double weight = is_text ? loras[i].text_encoders.value_or(loras[i].weight) : loras[i].weight;
      if (model->adapters().has(names[i])) on.push_back({names[i], weight});
    }
    model->adapters().set(std::move(on));
  }
}

}  // namespace sf::diffusion
