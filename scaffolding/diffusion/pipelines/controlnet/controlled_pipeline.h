// What programs need to put ControlNets beside a pipeline that was loaded without: the networks, the pipeline of its
// family that has places for them, and pictures as the networks see them. Functions only.
#pragma once
#include "scaffolding/diffusion/pipelines/image_processor.h"
#include "scaffolding/diffusion/pipelines/registry.h"
#include "scaffolding/models/model_files.h"

namespace sf::diffusion {

// From a folder, or a file in its own names or those of the first ControlNets.
std::shared_ptr<models::Model> load_controlnet(const std::string& path, const models::LoadModelOptions& options = {});

// The class for the task with ControlNets beside such a pipeline's UNet; null where its family has none.
const PipelineEntry* find_controlled_pipeline(const DiffusionPipeline& pipeline, Task task);
// That pipeline around another one's components. NotSupported naming `who` where there is none.
std::shared_ptr<DiffusionPipeline> controlled_pipeline(const std::string& who, const DiffusionPipeline& pipeline,
                                                       Task task,
                                                       const std::vector<std::shared_ptr<models::Model>>& networks);

// What is made of a picture before a ControlNet sees it: "none", "canny".
const std::vector<std::string>& control_modes();
// A picture uint8 [3, H, W] as a ControlNet of the pipeline sees it, [1, 3, height, width] in [0, 1].
Tensor control_picture(const DiffusionPipeline& pipeline, const Tensor& picture, std::string_view mode,
                       const PreprocessOptions& size = {});

}  // namespace sf::diffusion
