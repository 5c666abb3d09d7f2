#include "scaffolding/models/model.h"

#include <algorithm>
#include <map>

#include "scaffolding/autograd/checkpoint.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/models/adapters/adapters.h"
#include "scaffolding/models/files_of.h"
#include "scaffolding/nn/closest.h"
#include "scaffolding/nn/streaming/streamer.h"

namespace sf::models {

namespace {
std::vector<ModelEntry>& registry() {
  static std::vector<ModelEntry> models;
  return models;
}

// Every part of a model that can be checkpointed.
std::vector<CheckpointedModule*> checkpointed_parts(nn::Module& model) {
  std::vector<CheckpointedModule*> parts;
  for (auto& m : nn::named_modules(model))
    if (auto* part = dynamic_cast<CheckpointedModule*>(m.module)) parts.push_back(part);
  return parts;
}

// In the order of nn::parameters, of which no list is made: absent where there is none.
template <class Wanted> Tensor first_parameter(nn::Module& m, const Wanted& wanted) {
  struct Members : nn::Visitor {
    const Wanted& wanted;
    Tensor found;
    std::vector<nn::Module*> children;
    explicit Members(const Wanted& w) : wanted(w) {}
    void parameter(std::string_view, const Tensor& t) override {
      if (!found && t && wanted(t)) found = t;
    }
    void module(std::string_view, nn::Module* child) override {
      if (child) children.push_back(child);
    }
  } members(wanted);
  nn::Descent down(m);
  m.visit_all(members);
  for (size_t i = 0; !members.found && i < members.children.size(); ++i)
    members.found = first_parameter(*members.children[i], wanted);
  return members.found;
}
}  // namespace

Tensors CheckpointedModule::run(const std::function<Tensors(const Tensors&)>& forward, const Tensors& inputs) const {
  if (!gradient_checkpointing || !autograd::grad_enabled()) return forward(inputs);
  return autograd::checkpoint(forward, inputs);
}

void Model::set_config_rest(io::ConfigRest rest) { rest_ = std::move(rest); }
Model::Model() = default;
Model::Model(const Model& o) : Module(o), rest_(o.rest_) {}
Model::~Model() = default;

Adapters& Model::adapters() {
  if (!adapters_) adapters_ = std::make_unique<Adapters>(*this);
  return *adapters_;
}

const char* Model::weights_stem() const {
  return std::string_view(library()) == "transformers" ? "model" : "diffusion_pytorch_model";
}
io::Object Model::config() { return io::whole_config(fields(), rest_); }

// Which class it is stands under other names in transformers' files.
io::Object Model::saved_config() {
  io::Object diffusers = io::saved_config(type(), config());
  if (std::string_view(library()) != "transformers") return diffusers;
  std::vector<io::Object> items{"architectures", io::Object::container(io::Object::List, {type()})};
  auto& entries = diffusers.items();
  for (size_t i = 0; i + 1 < entries.size(); i += 2) {
    const std::string& key = entries[i].text();
    if (key == "_class_name" || key == "architectures" || key == "model_type" || key == "torch_dtype" || key == "dtype")
      continue;
    items.insert(items.end(), {entries[i], entries[i + 1]});
  }
  items.insert(items.end(), {"model_type", model_type(), "torch_dtype", io::Object(name(dtype()))});
  return io::Object::container(io::Object::Dict, std::move(items));
}

void Model::enable_gradient_checkpointing(bool on) {
  auto parts = checkpointed_parts(*this);
  SF_CHECK_AS(NotSupported, !parts.empty(), type(), ": has no parts that support gradient checkpointing");
  for (auto* part : parts) part->gradient_checkpointing = on;
}

bool Model::is_gradient_checkpointing() {
  auto parts = checkpointed_parts(*this);
  return std::any_of(parts.begin(), parts.end(), [](auto* part) { return part->gradient_checkpointing; });
}

DType Model::dtype() {
  if (const auto compute = nn::cast_dtype(*this)) return *compute;  // weights are stored in another one
  const Tensor t = first_parameter(*this, [](const Tensor& p) { return is_floating(p.dtype()); });
  return t ? t.dtype() : default_dtype();
}

Device Model::device() {
  if (auto* streamer = nn::Streamer::of(*this)) return streamer->device();
  const Tensor t = first_parameter(*this, [](const Tensor&) { return true; });
  return t ? t.device() : Device();
}

nn::LayerEntry& detail::add_model(nn::LayerEntry& layer, ModelEntry entry) {
  layer.home = "models";
  entry.layer = &layer;
  auto& all = registry();
  auto place = std::lower_bound(all.begin(), all.end(), entry.name,
                                [](const ModelEntry& e, const std::string& name) { return e.name < name; });
  all.insert(place, std::move(entry));
  return layer;
}

const std::vector<ModelEntry>& all_models() { return registry(); }

const ModelEntry* find_model(std::string_view class_name) {
  const std::string_view name = model_in_files_of(class_name);
  for (auto& e : registry())
    if (e.name == name) return &e;
  return nullptr;
}

namespace {
std::map<std::string, std::string, std::less<>>& larger_classes() {  // and the model that is read for each
  static std::map<std::string, std::string, std::less<>> all;
  return all;
}
}  // namespace

std::string_view model_in_files_of(std::string_view class_name) {
  const auto found = larger_classes().find(class_name);
  return found == larger_classes().end() ? class_name : std::string_view(found->second);
}

bool detail::add_files_of(const char* model, std::string_view classes) {
  for (size_t at = 0; at < classes.size();) {
    const size_t end = std::min(classes.find(", ", at), classes.size());
    larger_classes().emplace(classes.substr(at, end - at), model);
    at = end + 2;
  }
  return true;
}

std::unique_ptr<Model> make_model(const std::string& class_name, const io::Object& config) {
  if (auto* entry = find_model(class_name)) return entry->make(config);
  std::vector<std::string> names;
  for (auto& e : registry()) names.push_back(e.name);
  fail("make_model: there is no model '", class_name, "'", nn::closest_hint(class_name, names));
}

}  // namespace sf::models
