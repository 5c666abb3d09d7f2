// Models with quantised layers on their way into folders (quantized_folder.h reads them).
#pragma once
#include <map>
#include <optional>
#include <string>

#include "scaffolding/io/object.h"
#include "scaffolding/models/model.h"

namespace sf::models {

struct QuantizedEntries {
  io::Object config;                            // config.json's quantization_config
  std::map<std::string, std::string> metadata;  // of the safetensors file, besides what every file has
};
// Changes entries of a model's state dict to those that its quantised layers have in files; nothing where it has none.
// NF4, FP4 and int8 are bitsandbytes' (X.weight.absmax, .quant_map, .quant_state.bitsandbytes__nf4; X.SCB,
// X.weight_format), float8 e4m3 by rows is torchao's (X._weight_qdata, X._weight_scale, with its metadata): diffusers
// reads those. GGUF's blocks, other float8, int8 with int8 activations, and several formats in one model keep the
// layers' own names (X.weight, X.scale).
// ValueError for layers that have no file format in common, NotSupported for tables in blocks.
std::optional<QuantizedEntries> put_quantized_entries(Model& model, std::map<std::string, Tensor>& state);

}  // namespace sf::models
