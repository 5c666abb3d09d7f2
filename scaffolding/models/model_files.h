// Models in folders: config.json and weights (safetensors, in shards or not, or torch's .bin),
// as diffusers and transformers have them.
#pragma once
#include <memory>

#include "scaffolding/io/checkpoint.h"
#include "scaffolding/models/model.h"

namespace sf::nn {
struct QuantizeConfig;
}

namespace sf::models {

struct LoadModelOptions {
  std::string subfolder;
  std::string variant;         // "fp16": diffusion_pytorch_model.fp16.safetensors
  std::optional<DType> dtype;  // floating tensors in this one; absent: as the file has them
  Device device = {};
  std::optional<bool> use_safetensors;  // absent: safetensors where there are any, else .bin
  std::optional<io::Object> config;     // what config.json says, of a caller who has read it; absent: it is read
  // Layers whose weights lie in the file in blocks (GGUF) keep them so (nn/quantized_gguf.h); else they become `dtype`.
  // Of a file with blocks an absent dtype is float32.
  bool keep_blocks = false;
  // Layers whose weights the file has in float16 or bfloat16 keep them (nn/half_weights.h) where dtype is float32, on
  // the CPU, and the file has at least so many bytes of them: the numbers are the same, in half the memory, and nothing
  // is converted. They do not learn. Of small models, packed weights that stay are worth more.
  std::optional<int64_t> keep_half_from;
  // Weights become few bits one by one, while they are read (nn/quantize.h): of dense ones, no more than the largest is
  // in memory. Absent: they stay as they are.
  std::shared_ptr<const nn::QuantizeConfig> quantize;
  io::Object overrides = io::Object::container(io::Object::Dict);  // config fields that replace those of config.json
};

// The model is made without memory and takes the file's tensors, mapped where the file's dtype is wanted and converted
// one by one where not: at most one tensor is in memory twice. For a GPU they go through a ring of pinned buffers
// (io/upload_ring.h) and are converted there. The class is config.json's _class_name or, in transformers' files,
// architectures. RuntimeError naming missing, unexpected and wrong-shaped keys;
// a missing file's error names what was looked for.
// class_name: empty takes the config's; else the model is of that class whatever the config says.
std::unique_ptr<Model> load_model(const std::string& folder, const LoadModelOptions& options = {},
                                  const std::string& class_name = {});
// The same from a checkpoint that is open: of options, dtype, device and overrides.
std::unique_ptr<Model> load_model(const io::Checkpoint& weights, const std::string& class_name,
                                  const io::Object& config, const LoadModelOptions& options = {});
// The same into a model that was made on the meta device.
std::unique_ptr<Model> load_model(const io::Checkpoint& weights, std::unique_ptr<Model> made,
                                  const LoadModelOptions& options = {});
// The class of a model whose file, or pipeline's index, names this one: diffusers' first files of DiT and PixArt name
// Transformer2DModel, and norm_type tells.
std::string model_class(const std::string& named, const io::Object& config);
io::Object load_model_config(const std::string& folder, const std::string& subfolder = {});

// The file (or index of shards) with the weights in a folder. ValueError naming the files looked for.
std::string find_weights(const std::string& folder, const std::string& stem, const LoadModelOptions& options);

struct SaveModelOptions {
  std::string variant;
  bool safe_serialization = true;  // false: torch's .bin
  uint64_t max_shard_size = 10'000'000'000;
};
// Writes config.json and the weights into the folder, which is made where it is not there. Of quantised layers
// config.json gets a quantization_config (quantized_writer.h); they are saved as safetensors.
// All are written beside before the first takes its place, and config.json comes last (io/replacing_folder.h).
void save_model(Model& model, const std::string& folder, const SaveModelOptions& options = {});

}  // namespace sf::models
