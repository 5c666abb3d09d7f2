// Where a model's files are: a folder, or a repository of the hub in the local cache,
// downloaded where that is allowed and needed.
// Of a repository only the files are taken that the model is loaded from, by diffusers' rules
// (pipelines/pipeline_loading_utils.py): safetensors before .bin, the variant before the plain file. Functions may be
// called from several threads.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "scaffolding/io/hub/hub.h"

namespace sf::io {

struct ModelFolderOptions {
  HubOptions hub;         // its patterns are not used
  std::string subfolder;  // one component: "unet"
  std::string variant;    // "fp16": diffusion_pytorch_model.fp16.safetensors
  std::optional<bool>
      use_safetensors;  // absent: where every component has them; false: .bin; true: an error without them
  std::vector<std::string> passed_components;  // of a pipeline: not needed, since the caller brings them
};

// An existing folder as it is (with its subfolder); a model that comes with Scaffolding, by its short name
// (shipped_models.h); else the folder of the repository "organisation/name" in the cache. ValueError for a name that is
// none of these, HubError naming what was looked for.
std::string resolve_model_folder(const std::string& name_or_path, const ModelFolderOptions& options = {});

// An existing file as it is; else one of a repository, named as diffusers' from_single_file takes it:
// "organisation/name/path" or the address of its page, https://huggingface.co/organisation/name/blob/main/path (with
// the endpoint's host too).
std::string resolve_model_file(const std::string& path_or_link, const HubOptions& options = {});

// Of a repository's files those that a pipeline with these component folders, or one component ("" for the repository's
// root), is loaded from. ValueError where there is no file of the variant, or no safetensors though they are asked for.
std::vector<std::string> pipeline_files(const std::vector<std::string>& files, const std::vector<std::string>& folders,
                                        const ModelFolderOptions& options);
std::vector<std::string> component_files(const std::vector<std::string>& files, const ModelFolderOptions& options);

}  // namespace sf::io
