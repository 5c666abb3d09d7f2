// The options of a pipeline's call and their fields: names and places of an options struct's members, as io/config.h
// has them for configs. One list serves the Python call and its signature, the program's options and the settings in a
// picture. A list points into the struct that made it and lives no longer.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <typeindex>
#include <variant>
#include <vector>

#include "scaffolding/core/tensor.h"
#include "scaffolding/diffusion/pipelines/run.h"
#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::diffusion {

using PixelPair = std::array<int64_t, 2>;  // (height, width), or (top, left)

// An enumeration by the names of its values.
struct ChoiceField {
  void* place = nullptr;
  void (*set)(void* place, std::string_view name) = nullptr;  // ValueError naming those there are
  std::string (*get)(const void* place) = nullptr;
};
// Parse: the value of a name; Name: the name of a value.
template <auto Parse, auto Name, class E> ChoiceField choice(E* place) {
  return {place, [](void* p, std::string_view name) { *static_cast<E*>(p) = Parse(name); },
          [](const void* p) { return std::string(Name(*static_cast<const E*>(p))); }};
}

using OptionPlace =
    std::variant<bool*, int64_t*, double*, std::optional<int64_t>*, std::optional<double>*, std::vector<std::string>*,
                 std::optional<std::vector<double>>*, std::vector<double>*, std::vector<int64_t>*, Tensor*, Tensors*,
                 Generators*, PixelPair*, std::optional<PixelPair>*, ChoiceField, StepCallback*, StepProgress*,
                 std::stop_token*>;

enum class OptionRole : uint8_t {
  Plain,
  Picture,  // a tensor [n, 3, H, W] in [-1, 1]: pictures come through the pipeline's VaeImageProcessor
  Mask,     // a tensor [n, 1, H, W] of 0 and 1
  Control,  // for each ControlNet a tensor [n, C, H, W] in [0, 1]
};

struct OptionField {
  const char* name;  // in Python, as diffusers has it
  OptionPlace place;
  const char* doc = "";  // with shape, range and unit
  OptionRole role = OptionRole::Plain;
};
using OptionFields = std::vector<OptionField>;

OptionFields operator+(OptionFields a, const OptionFields& b);

// The fields that every call has, guided or not: an options struct has members of these names.
template <class O> OptionFields fields_of_every_run(O& o) {
  return {
      {"generator", &o.generator, "one, or one for each picture"},
      {"latents", &o.latents, "unit noise [B, C, h, w] instead of drawing it"},
      {"output_latents", &o.output_latents, "latents instead of pictures"},
      {"capture", &o.capture, "on CUDA: the denoiser's calls are replays of a graph"},
      {"callback_on_step_end", &o.callback_on_step_end,
       "called at the end of each step with its tensors, which it may replace"},
      {"progress", &o.progress, "told how many steps are done"},
      {"stop", &o.stop, "ends the run between steps"},
  };
}

// And those of calls with guidance.
template <class O> OptionFields fields_of_every_call(O& o) {
  const OptionFields guided{
      {"num_inference_steps", &o.num_inference_steps, "steps of the scheduler: more take longer"},
      {"guidance_mode", choice<&guidance_mode, static_cast<const char* (*)(GuidanceMode)>(&name_of)>(&o.guidance_mode),
       "'batched' calls the denoiser once with both halves, 'sequential' twice with half the memory"},
  };
  return guided + fields_of_every_run(o);
}

// A field from text, as a command line has it: numbers, true and false, choices, lists and pairs of numbers with commas
// between, and texts. ValueError naming `who` for text that is none, NotSupported for a field that text cannot say
// (tensors, generators, callbacks).
void set_from_text(const std::string& who, const OptionField& field, const std::string& text);
bool takes_text(const OptionField& field);
// What kind of value a field takes, in words: "a number", "height,width".
std::string kind_of(const OptionField& field);

// The options of one call, of whatever struct the pipeline takes.
class AnyOptions {
 public:
  template <class O> static AnyOptions of(O options = {}) {
    auto held = std::make_shared<O>(std::move(options));
    OptionFields fields = held->fields();
    return AnyOptions(held, std::move(fields), typeid(O));
  }
  const OptionFields& fields() const { return fields_; }
  const OptionField* find(std::string_view name) const;  // null where the struct has none of that name
  // The member of that name. ValueError where there is none of that name and type.
  template <class T> T& at(const char* name) const {
    auto* field = find(name);
    auto* place = field ? std::get_if<T*>(&field->place) : nullptr;
    if (!place) no_such_member(name);
    return **place;
  }
  template <class O> const O& as() const {
    if (type_ != std::type_index(typeid(O))) no_such_member("options of another pipeline");
    return *static_cast<const O*>(value_.get());
  }

 private:
  AnyOptions(std::shared_ptr<void> value, OptionFields fields, const std::type_info& type)
      : value_(std::move(value)), fields_(std::move(fields)), type_(type) {}
  [[noreturn]] void no_such_member(const char* name) const;
  std::shared_ptr<void> value_;
  OptionFields fields_;
  std::type_index type_;
};

}  // namespace sf::diffusion
