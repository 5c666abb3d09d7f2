// Weights in few bits in folders: what config.json's quantization_config names, and what other programs call a layer's
// tensors in its file.
#pragma once
#include <map>
#include <set>
#include <string>

#include "scaffolding/io/checkpoint.h"
#include "scaffolding/io/object.h"
#include "scaffolding/models/model.h"

namespace sf::models {

struct QuantizedState {
  std::map<std::string, Tensor> tensors;  // by the keys of the model's state dict
  std::set<std::string> used;             // names in the file
};
// Puts layers of few bits in the places of those whose weights a file has so (of a model without memory), and gives
// what is to be loaded into them, in the file's memory where it can be. `how`: config.json's quantization_config, of
// bitsandbytes (NF4, FP4, int8), torchao (int8 with and without int8 activations, float8), quanto (int8, float8) or
// this library's own (those, and GGUF's blocks). dtype: of the layers otherwise. What a file says of a layer is checked
// against the model before it is used. NotSupported that names what is not read, ValueError for a damaged file; `where`
// is config.json, `path` the weights.
QuantizedState put_quantized_layers(Model& model, const io::Checkpoint& file, const io::Object& how, DType dtype,
                                    const std::string& where, const std::string& path);

}  // namespace sf::models
