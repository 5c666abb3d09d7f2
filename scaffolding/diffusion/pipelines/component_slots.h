// The components of a pipeline: names and places of its members, which SF_COMPONENTS lists once, as SF_MODULE lists a
// module's. The list serves loading and saving, moving and casting, the Python class and its constructor, and whoever
// has a pipeline of a class that it does not know.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "scaffolding/diffusion/pipelines/components.h"
#include "scaffolding/diffusion/schedulers/scheduler.h"
#include "scaffolding/tokenizers/tokenizer.h"

namespace sf::diffusion {

// A component that diffusers has and that has no use here: what checks or describes pictures.
struct Unused {};

using SlotPlace = std::variant<Ref<Denoiser>*, Ref<Autoencoder>*, Ref<TextEncoder>*, Ref<Network>*,
                               Ref<const tokenizers::Tokenizer>*, Ref<Scheduler>*, Unused*>;

struct ComponentSlot {
  std::string name;  // of its folder, as model_index.json has it
  SlotPlace place;

  template <class T> T* as() const {
    auto* p = std::get_if<T*>(&place);
    return p ? *p : nullptr;
  }
  bool is_network() const;
  bool is_set() const;
  Ref<Component> shared_network() const;  // null where it is none, or absent
  Component* network() const { return shared_network().get(); }
  // Takes a network. TypeError naming the slot for a model that is no such thing.
  void take(std::shared_ptr<models::Model> model) const;
};
using ComponentSlots = std::vector<ComponentSlot>;

namespace detail {
std::string_view next_component(std::string_view& names);
// A member of a pipeline, whichever of them it is.
struct SlotMember {
  SlotMember(Ref<Denoiser>& m);
  SlotMember(Ref<Autoencoder>& m);
  SlotMember(Ref<TextEncoder>& m);
  SlotMember(Ref<Network>& m);
  SlotMember(Ref<const tokenizers::Tokenizer>& m);
  SlotMember(Ref<Scheduler>& m);
  SlotMember(Unused& m);
  SlotPlace place;
};
ComponentSlots component_slots(std::string_view names, std::initializer_list<SlotMember> members);
}  // namespace detail

#define SF_COMPONENTS(...)                                                        \
  ::sf::diffusion::ComponentSlots components() override {                         \
    return ::sf::diffusion::detail::component_slots(#__VA_ARGS__, {__VA_ARGS__}); \
  }

}  // namespace sf::diffusion
