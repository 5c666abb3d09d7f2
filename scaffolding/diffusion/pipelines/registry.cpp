#include "scaffolding/diffusion/pipelines/registry.h"

#include <list>

#include "scaffolding/core/error.h"
#include "scaffolding/nn/closest.h"

namespace sf::diffusion {

namespace {

std::list<PipelineEntry>& registry() {  // entries keep their place while their lines go on
  static std::list<PipelineEntry> all;
  return all;
}

std::vector<std::string> split(std::string_view names) {
  std::vector<std::string> out;
  while (!names.empty()) out.emplace_back(detail::next_component(names));
  return out;
}

std::string list_of(const std::vector<const PipelineEntry*>& entries) {
  std::string names;
  for (auto* e : entries) names += (names.empty() ? "" : ", ") + e->name;
  return names;
}

}  // namespace

namespace {
constexpr const char* kTasks[] = {"text-to-image",
                                  "image-to-image",
                                  "inpainting",
                                  "class-to-image",
                                  "text-to-video",
                                  "image-to-video",
                                  "unconditional-image-generation"};
}

const char* name_of(Task task) { return kTasks[size_t(task)]; }

Task task_of(std::string_view name) {
  for (size_t i = 0; i < std::size(kTasks); ++i)
    if (name == kTasks[i]) return Task(i);
  fail("pipeline: there is no task '", name, "'");
}

bool makes_clips(Task task) { return task == Task::TextToVideo || task == Task::ImageToVideo; }

PipelineEntry& PipelineEntry::optional(std::string_view names) { return optional_components = split(names), *this; }
PipelineEntry& PipelineEntry::takes(std::string component, std::string model) {
  return types.emplace_back(std::move(component), std::move(model)), *this;
}
PipelineEntry& PipelineEntry::call(std::string_view names) { return arguments = split(names), *this; }
PipelineEntry& PipelineEntry::callbacks(std::string_view names) { return callback_tensors = split(names), *this; }

bool PipelineEntry::is_optional(std::string_view component) const {
  return std::find(optional_components.begin(), optional_components.end(), component) != optional_components.end();
}

void PipelineEntry::check_type(const std::string& component, const char* model) const {
  for (auto& [name_, wanted] : types)
    SF_CHECK_AS(TypeError, name_ != component || wanted == model, component, ": must be a ", wanted, ", got ", model);
}

PipelineEntry& detail::add_pipeline(PipelineEntry entry) { return registry().emplace_back(std::move(entry)); }

std::vector<const PipelineEntry*> all_pipelines() {
  std::vector<const PipelineEntry*> out;
  for (auto& e : registry()) out.push_back(&e);
  std::sort(out.begin(), out.end(), [](auto* a, auto* b) { return a->name < b->name; });
  return out;
}

const PipelineEntry* find_pipeline(std::string_view name) {
  for (auto& e : registry())
    if (e.name == name) return &e;
  return nullptr;
}

const PipelineEntry* find_pipeline(std::string_view family, Task task) {
  for (auto& e : registry())
    if (e.family_name == family && e.its_task == task) return &e;
  return nullptr;
}

const PipelineEntry& pipeline_entry(const std::string& class_name) {
  auto* entry = find_pipeline(class_name);
  if (!entry)
    fail("DiffusionPipeline: there is no pipeline class '", class_name, "'; there are ", list_of(all_pipelines()));
  return *entry;
}

const PipelineEntry& pipeline_for(const std::string& who, const std::string& class_name, Task task) {
  auto* known = find_pipeline(class_name);
  auto* entry = known ? find_pipeline(known->family_name, task) : nullptr;
  if (entry) return *entry;
  std::vector<const PipelineEntry*> of_task = all_pipelines();
  std::erase_if(of_task, [&](auto* e) { return e->its_task != task; });
  fail(who, ": knows no pipeline for ", class_name, "; there are ", list_of(of_task));
}

}  // namespace sf::diffusion
