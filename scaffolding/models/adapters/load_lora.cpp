#include "scaffolding/models/adapters/load_lora.h"

#include <algorithm>

#include "scaffolding/core/error.h"

namespace sf::models {

LoraReport load_lora(const LoraFile& file, const std::string& name, const AdaptedModels& models,
                     const LoadLoraOptions& options) {
  std::vector<const AdapterStems*> of;
  for (auto& [component, model] : models) of.push_back(&model->adapters().stems(component));
  for (auto& [component, model] : models)
    SF_CHECK(options.swap || !model->adapters().has(name), "load_lora: there is an adapter '", name,
             "' already; delete it, give the new one another name, or swap it (hotswap=True)");
  LoraMatch lora = file.match(of, options.strict);

  // All are made under another name first, so that what is refused has changed nothing.
  const std::string aside = name + " (being loaded)";
  std::vector<Adapters*> begun;
  try {
    for (auto& [component, model] : models) {
      auto found = lora.layers.find(component);
      if (found == lora.layers.end()) continue;
      Adapters& adapters = model->adapters();
      adapters.add(aside, std::move(found->second), file.path());
      begun.push_back(&adapters);
    }
  } catch (...) {
    for (Adapters* a : begun) a->remove(aside);
    throw;
  }
  auto is_on = [&](Adapters& a) {
    const std::vector<std::string> active = a.active();
    return std::find(active.begin(), active.end(), name) != active.end();
  };
  const bool was_on = std::any_of(models.begin(), models.end(),
                                  [&](auto& m) { return m.second->has_adapters() && is_on(m.second->adapters()); });
  for (auto& [component, model] : models) {
    if (!model->has_adapters()) continue;
    Adapters& a = model->adapters();
    if (options.swap && a.has(name) && !a.has(aside)) a.remove(name);
    if (a.has(aside)) a.rename(aside, name);
    if (was_on && a.has(name) && !is_on(a)) a.turn_on({name});
  }
  return std::move(lora.report);
}

}  // namespace sf::models
