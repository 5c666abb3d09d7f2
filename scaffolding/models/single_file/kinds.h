// The kinds of model that come as one LDM checkpoint: how each is recognised, what it is made of, and the config of each part.
// Names of kinds and the recognition are diffusers' (loaders/single_file_utils.py, infer_diffusers_model_type); configs are those of the
// repositories that it takes for each kind.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "scaffolding/io/checkpoint.h"
#include "scaffolding/io/object.h"
#include "scaffolding/models/single_file/key_rows.h"

namespace sf::models {

struct SingleFilePart {
  std::string name;                                       // "unet"
  std::string library, class_name;                        // "diffusers", "UNet2DConditionModel"
  std::vector<std::string> prefixes;                      // of its tensors in the checkpoint; the first one that is there
  std::function<KeyRows(const io::Object& config)> rows;  // null for the scheduler
  std::string config;                                     // JSON
};

struct SingleFileKind {
  std::string name;                   // "v1", "v2", "xl_base", "xl_refiner", "inpainting", "inpainting_v2", "xl_inpaint"
  std::string title;                  // "Stable Diffusion 1.x"
  std::string repository;             // whose configs these are
  std::string model_index;            // JSON: _class_name, and what the pipeline's constructor takes besides parts
  std::vector<SingleFilePart> parts;  // scheduler, text_encoder, text_encoder_2, unet, vae
};

const std::vector<SingleFileKind>& single_file_kinds();
const SingleFileKind& single_file_kind(const std::string& name);  // ValueError naming those there are

// The kind of a checkpoint whose tensors' names all begin with `outer` ("" or "state_dict."). ValueError for what is no model (a LoRA, an embedding)
// or one part in diffusers' names, NotSupported for models of other families, by name.
const SingleFileKind& recognise_single_file(const io::Checkpoint& file, const std::string& outer, const std::string& path);
// The kind that a UNet2DConditionModel with this config belongs to.
const SingleFileKind& kind_of_unet(const io::Object& unet_config);

}  // namespace sf::models
