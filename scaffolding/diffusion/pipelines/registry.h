// SF_PIPELINE: a pipeline is a class plus one line. What it is made of and what its call takes follow from the class's
// two lists (SF_COMPONENTS, and the fields of its options); loaders, the Python class, AutoPipeline and the program
// find it here by its name, or by family and task.
//
//   SF_PIPELINE(StableDiffusionImg2ImgPipeline)
//       .family("stable-diffusion")
//       .task(Task::ImageToImage)
//       .takes("unet", "UNet2DConditionModel")
//       .optional("safety_checker, feature_extractor, image_encoder")
//       .call("prompt, image, strength, ...")
//       .doc("A picture changed by a prompt.");
#pragma once
#include "scaffolding/diffusion/pipelines/pipeline.h"

namespace sf::diffusion {

enum class Task : uint8_t {
  TextToImage,
  ImageToImage,
  Inpainting,
  ClassToImage,
  TextToVideo,
  ImageToVideo,
  Unconditional
};
const char* name_of(Task task);
Task task_of(std::string_view name);  // "text-to-image"; ValueError otherwise
bool makes_clips(Task task);          // else pictures

struct PipelineEntry {
  std::string name;         // diffusers' class name
  std::string family_name;  // whose classes share components: "stable-diffusion"
  Task its_task = Task::TextToImage;
  std::vector<std::string> optional_components;            // which may be absent from a folder
  std::vector<std::pair<std::string, std::string>> types;  // the classes of components that only certain ones fit
  std::vector<std::string>
      arguments;  // of the call in Python, in diffusers' order: fields of the options, and what Python shapes
  std::vector<std::string> callback_tensors;  // what callback_on_step_end may ask for
  std::string help;
  std::unique_ptr<DiffusionPipeline> (*make)() = nullptr;  // without components

  PipelineEntry& family(std::string s) { return family_name = std::move(s), *this; }
  PipelineEntry& task(Task t) { return its_task = t, *this; }
  PipelineEntry& optional(std::string_view names);
  PipelineEntry& takes(std::string component, std::string model);
  PipelineEntry& call(std::string_view names);
  PipelineEntry& callbacks(std::string_view names);
  PipelineEntry& doc(std::string s) { return help = std::move(s), *this; }

  bool is_optional(std::string_view component) const;
  // TypeError naming the component for a model of a class that does not fit.
  void check_type(const std::string& component, const char* model) const;
};

std::vector<const PipelineEntry*> all_pipelines();  // sorted by name
const PipelineEntry* find_pipeline(std::string_view name);
const PipelineEntry* find_pipeline(std::string_view family, Task task);
// ValueError naming those there are.
const PipelineEntry& pipeline_entry(const std::string& class_name);
// The class for a task with another class's models. ValueError naming `who` and the classes there are for the task.
const PipelineEntry& pipeline_for(const std::string& who, const std::string& class_name, Task task);

namespace detail {
PipelineEntry& add_pipeline(PipelineEntry entry);
}

#define SF_PIPELINE(Type)                                                          \
  static const ::sf::diffusion::PipelineEntry& SF_CAT(sf_pipeline_, __COUNTER__) = \
      ::sf::diffusion::detail::add_pipeline(                                       \
          {.name = Type::kName,                                                    \
           .make = []() -> std::unique_ptr<::sf::diffusion::DiffusionPipeline> { return std::make_unique<Type>(); }})

}  // namespace sf::diffusion
