// Key rows: for each tensor of a model its name in diffusers' files, its name in an LDM checkpoint, its shape, and what is done to it on the way.
// One list per model, from its config, serves reading, writing, and telling what a file lacks. The names are those of diffusers'
// loaders/single_file_utils.py; the order is that of the LDM blocks.
#pragma once
#include <string>
#include <vector>

#include "scaffolding/core/shape.h"
#include "scaffolding/io/object.h"

namespace sf::models {

enum class KeyChange : uint8_t {
  Same,
  Flatten,    // LDM's 1x1 convolution [O, I, 1, 1] is a linear layer [O, I]
  Transpose,  // [I, O] is [O, I]
  Third,      // one of q, k, v from in_proj [3 * O, ...]: rows part * O to (part + 1) * O
};

struct KeyRow {
  std::string name;    // "down_blocks.0.resnets.0.norm1.weight"
  std::string source;  // "input_blocks.1.0.in_layers.0.weight": without the prefix of its place in the checkpoint
  Shape shape;         // under `name`
  KeyChange change = KeyChange::Same;
  int part = 0;
};
using KeyRows = std::vector<KeyRow>;

// Configs are diffusers' (UNet2DConditionModel, AutoencoderKL) and transformers' (CLIPTextConfig). TypeError and ValueError for a field of
// another type or size, NotSupported for a model that no LDM checkpoint holds.
KeyRows unet_rows(const io::Object& config);
KeyRows vae_rows(const io::Object& config);
// As transformers wrote the tower (SD 1.x, the first of SDXL), and as OpenCLIP did (SD 2.x, the second of SDXL).
KeyRows clip_rows(const io::Object& config, bool projection);
KeyRows open_clip_rows(const io::Object& config, bool projection);

}  // namespace sf::models
