#include "scaffolding/diffusion/pipelines/component_slots.h"

namespace sf::diffusion {

bool ComponentSlot::is_network() const {
  return as<Ref<Denoiser>>() || as<Ref<Autoencoder>>() || as<Ref<TextEncoder>>() || as<Ref<Network>>();
}

bool ComponentSlot::is_set() const {
  return std::visit(
      [](auto* p) {
        if constexpr (std::is_same_v<decltype(p), Unused*>) return false;
        else return bool(*p);
      },
      place);
}

Ref<Component> ComponentSlot::shared_network() const {
  if (auto* d = as<Ref<Denoiser>>()) return *d;
  if (auto* a = as<Ref<Autoencoder>>()) return *a;
  if (auto* t = as<Ref<TextEncoder>>()) return *t;
  if (auto* n = as<Ref<Network>>()) return *n;
  return nullptr;
}

void ComponentSlot::take(std::shared_ptr<models::Model> model) const {
  if (auto* d = as<Ref<Denoiser>>()) *d = component<Denoiser>(name, std::move(model));
  else if (auto* a = as<Ref<Autoencoder>>()) *a = component<Autoencoder>(name, std::move(model));
  else if (auto* t = as<Ref<TextEncoder>>()) *t = component<TextEncoder>(name, std::move(model));
  else if (auto* n = as<Ref<Network>>()) *n = component<Network>(name, std::move(model));
  else fail<TypeError>(name, ": is no network");
}

std::string_view detail::next_component(std::string_view& names) {
  const size_t end = names.find(',');
  std::string_view name = names.substr(0, end);
  names.remove_prefix(end == names.npos ? names.size() : end + 1);
  while (name.starts_with(' ')) name.remove_prefix(1);
  return name;
}

namespace detail {
SlotMember::SlotMember(Ref<Denoiser>& m) : place(&m) {}
SlotMember::SlotMember(Ref<Autoencoder>& m) : place(&m) {}
SlotMember::SlotMember(Ref<TextEncoder>& m) : place(&m) {}
SlotMember::SlotMember(Ref<Network>& m) : place(&m) {}
SlotMember::SlotMember(Ref<const tokenizers::Tokenizer>& m) : place(&m) {}
SlotMember::SlotMember(Ref<Scheduler>& m) : place(&m) {}
SlotMember::SlotMember(Unused& m) : place(&m) {}
}  // namespace detail

ComponentSlots detail::component_slots(std::string_view names, std::initializer_list<SlotMember> members) {
  ComponentSlots slots;
  for (const SlotMember& m : members) slots.push_back({std::string(next_component(names)), m.place});
  return slots;
}

}  // namespace sf::diffusion
