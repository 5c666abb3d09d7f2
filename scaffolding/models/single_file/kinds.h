// The kinds of model that come as one checkpoint: how each is recognised, what it is made of, and the config of each
// part. They are the files of models/configs. Names of kinds and the recognition are diffusers'
// (loaders/single_file_utils.py, infer_diffusers_model_type);
// configs are those of the repositories that it takes for each kind.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scaffolding/io/checkpoint.h"
#include "scaffolding/io/object.h"

namespace sf::models {

struct SingleFilePlace {
  std::string layout, prefix;  // "ldm", "model.diffusion_model."
};

struct SingleFilePart {
  std::string name;                 // "unet"
  std::string library, class_name;  // "diffusers", "UNet2DConditionModel"
  // of its tensors: the first one that a file has is read, the first of all is written. None: no model
  std::vector<SingleFilePlace> places;
  io::Object config;
  std::vector<std::string> identities = {};  // tensors of it that a file may leave out
};

// A tokenizer, which checkpoints hold none of.
struct SingleFileTokenizer {
  std::string name, class_name;              // "tokenizer_2", "CLIPTokenizer"
  std::map<std::string, std::string> files;  // their texts: "tokenizer_config.json"
};

// A tensor that is there, of this shape where one is said; a size that is not said may be any.
struct SingleFileMark {
  std::string tensor;
  std::optional<std::vector<std::optional<int64_t>>> shape;
};

struct SingleFileKind {
  std::string name;        // "v1", "v2", "xl_base", "xl_refiner", "inpainting", "inpainting_v2", "xl_inpaint"
  std::string title;       // "Stable Diffusion 1.x"
  std::string repository;  // whose configs these are
  std::vector<SingleFileMark> all, any, none;
  io::Object model_index;             // _class_name, and what the pipeline's constructor takes besides parts
  std::vector<SingleFilePart> parts;  // scheduler, text_encoder, text_encoder_2, unet, vae
  std::vector<SingleFileTokenizer> tokenizers;
  bool networks_alone = false;  // each comes in a file of its own as well, which is none of the kinds
};

const std::vector<SingleFileKind>& single_file_kinds();
const SingleFileKind& single_file_kind(const std::string& name);  // ValueError naming those there are

// The kind of a checkpoint whose tensors' names all begin with `outer` ("" or "state_dict."). ValueError for what is no
// model (a LoRA, an embedding) or one part in diffusers' names, NotSupported for models of other families, by name.
const SingleFileKind& recognise_single_file(const io::Checkpoint& file, const std::string& outer,
                                            const std::string& path);

}  // namespace sf::models
