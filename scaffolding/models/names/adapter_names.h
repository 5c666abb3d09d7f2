// What the keys of adapters (LoRA files) call the modules of a model: all of them are made from our names and the
// model's layouts in other programs.
#pragma once
#include <map>

#include "scaffolding/models/names/name_table.h"

namespace sf::models {

// Where rows [adapter_row, adapter_row + rows) of an adapter's update go: to rows [row, row + rows) of a module's
// weight. An update of a tensor that is joined in the adapter's layout, queries, keys and values, has several targets.
struct AdapterTarget {
  std::string module;  // ours: "down_blocks.0.attentions.0.proj_in"
  int64_t rows = 0;
  int64_t row = 0, module_rows = 0;           // of module_rows in the weight
  int64_t adapter_row = 0, adapter_rows = 0;  // of adapter_rows in the update
  bool whole() const { return rows == module_rows && rows == adapter_rows; }
  friend bool operator==(const AdapterTarget&, const AdapterTarget&) = default;
};

// By the stem of a key, which is what stands before ".lora_down.weight", ".lora_A.weight", ".alpha" and the like:
//   kohya's       "lora_unet_down_blocks_0_attentions_0_proj_in", "lora_unet_input_blocks_1_1_proj_in",
//                 "lora_te1_text_model_encoder_layers_0_mlp_fc1"
//   diffusers'    "unet.down_blocks.0.attentions.0.proj_in", and of its first release "...attn1.processor.to_q_lora"
//   PEFT's        "base_model.model.down_blocks.0.attentions.0.proj_in"
//   ComfyUI's     "diffusion_model.input_blocks.1.1.proj_in"
using AdapterStems = std::map<std::string, std::vector<AdapterTarget>>;

// component: what the pipeline calls the model: "unet", "transformer", "text_encoder", "text_encoder_2". Modules are
// those whose weight has two dimensions or more. The model may be on Device::Meta.
// ValueError for a stem that would name two modules.
AdapterStems adapter_stems(nn::Module& model, const std::string& class_name, const std::string& component);
// Those of one layout.
AdapterStems adapter_stems(const NameTable& table, const std::string& component);

}  // namespace sf::models
