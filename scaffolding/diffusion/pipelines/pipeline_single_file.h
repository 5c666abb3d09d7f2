// Writing a pipeline as one safetensors file, with its configs and tokenizers in the metadata
// (models/single_file/packed_files.h), so that load_single_file_pipeline needs nothing else.
#pragma once
#include "scaffolding/diffusion/pipelines/pipeline.h"
#include "scaffolding/models/single_file/single_file.h"

namespace sf::diffusion {

struct SingleFileContent {
  std::map<std::string, Tensor> tensors;
  models::Metadata metadata;
  // Of a published kind the tensors have the names that other programs know; else null, and each stands behind its
  // component's name ("unet.conv_in.weight").
  const models::SingleFileKind* kind = nullptr;
};
// NotSupported for networks that are no models of this library.
SingleFileContent single_file_content(const DiffusionPipeline& pipeline);

// dtype: of floating tensors; absent: as they are. Written beside and renamed.
void save_single_file(const DiffusionPipeline& pipeline, const std::string& path, std::optional<DType> dtype = {});

}  // namespace sf::diffusion
