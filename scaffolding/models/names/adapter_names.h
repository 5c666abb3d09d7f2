// What the keys of adapters (LoRA files) call the modules of a model: all of them are made from our names and the
// model's layouts in other programs.
#pragma once
#include <string_view>
#include <unordered_map>

#include "scaffolding/io/object.h"
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

// What one stem names.
struct AdaptedWeight {
  std::vector<AdapterTarget> targets;  // in the order of the update's rows
  Shape shape;                         // of the update, laid out as our weights: [O, I] or [O, I, H, W]
  Shape written;                       // of the same weight in a file of the layout: [O, I, 1, 1] for [O, I]
};

// The stems of one component's adapters. A stem is what stands before ".lora_down.weight", ".lora_A.weight", ".alpha"
// and the like:
//   kohya's       "lora_unet_down_blocks_0_attentions_0_proj_in", "lora_unet_input_blocks_1_1_proj_in",
//                 "lora_te1_text_model_encoder_layers_0_mlp_fc1"
//   diffusers'    "unet.down_blocks.0.attentions.0.proj_in", and of its first releases "...attn1.processor.to_q_lora"
//                 and "text_encoder.text_model.encoder.layers.0.self_attn.to_q_lora"
//   PEFT's        "base_model.model.down_blocks.0.attentions.0.proj_in"
//   ComfyUI's     "diffusion_model.input_blocks.1.1.proj_in"
// Const use is thread-safe.
class AdapterStems {
 public:
  // component: what the pipeline calls the model: "unet", "transformer", "text_encoder", "text_encoder_2".
  explicit AdapterStems(std::string component, std::string class_name = "");
  // The names of one layout. ValueError for a stem that would name two modules.
  void add(const NameTable& table);

  const std::string& component() const { return component_; }
  const std::string& class_name() const { return class_name_; }  // of the model; "" where nobody said
  const AdaptedWeight* find(std::string_view stem) const;        // null: no module has this stem

 private:
  struct Prefix {
    std::string text;
    bool flat;  // the module's name follows with '_' in place of '.'
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  using Names = std::unordered_map<std::string, size_t, Hash, std::equal_to<>>;  // places in weights_
  static std::vector<Prefix> prefixes_of(const std::string& component);
  void put(Names& names, std::string name, const NameTable& table);

  std::string component_, class_name_;
  std::vector<Prefix> prefixes_;
  Names dotted_, flat_;  // what follows a prefix
  std::vector<AdaptedWeight> weights_;
};

// Of a model in all its layouts. Modules are those whose weight has two dimensions or more. The model may be on
// Device::Meta.
AdapterStems adapter_stems(nn::Module& model, const std::string& class_name, const std::string& component);
// Of the model that a config makes, on Device::Meta: a model in use may have quantised weights, which lie otherwise.
AdapterStems adapter_stems(const std::string& class_name, const io::Object& config, const std::string& component);

}  // namespace sf::models
