#include "scaffolding/models/adapters/lora_keys.h"

namespace sf::models {

namespace {

struct End {
  std::string_view text;
  LoraKeyName::Part part;
  const char* kind;
  size_t of_stem = 0;  // how much of the text belongs to the stem: "attn1.processor.to_q_lora"
};

constexpr End kEnds[] = {
    {".lora_down.weight", LoraKeyName::Down, "kohya"},
    {".lora_up.weight", LoraKeyName::Up, "kohya"},
    {".lora_mid.weight", LoraKeyName::Mid, "kohya"},
    {".alpha", LoraKeyName::Alpha, ""},
    {".lora.down.weight", LoraKeyName::Down, "diffusers_old"},
    {".lora.up.weight", LoraKeyName::Up, "diffusers_old"},
    {".lora_linear_layer.down.weight", LoraKeyName::Down, "diffusers_old"},
    {".lora_linear_layer.up.weight", LoraKeyName::Up, "diffusers_old"},
    {"_lora.down.weight", LoraKeyName::Down, "diffusers_old", 5},
    {"_lora.up.weight", LoraKeyName::Up, "diffusers_old", 5},
    {".lora_up.bias", LoraKeyName::Other, "a LoRA with biases"},
    {".lora.up.bias", LoraKeyName::Other, "a LoRA with biases"},
    {".lora_linear_layer.up.bias", LoraKeyName::Other, "a LoRA with biases"},
    {".dora_scale", LoraKeyName::Other, "DoRA"},
    {".diff", LoraKeyName::Other, "whole differences of weights"},
    {".diff_b", LoraKeyName::Other, "whole differences of weights"},
    {".w_norm", LoraKeyName::Other, "whole differences of weights"},
    {".b_norm", LoraKeyName::Other, "whole differences of weights"},
};

// Followed by anything.
constexpr std::pair<std::string_view, const char*> kMarks[] = {{".hada_", "LoHa"},
                                                               {".lokr_", "LoKr"},
                                                               {".lora_magnitude_vector", "DoRA"},
                                                               {".lora_embedding_", "a LoRA of embeddings"},
                                                               {".oft_", "OFT"},
                                                               {".boft_", "BOFT"},
                                                               {".ia3_l", "IA3"},
                                                               {".vera_", "VeRA"}};

// PEFT puts the adapter's name between: ".lora_A.default.weight".
bool peft_key(std::string_view key, LoraKeyName& out) {
  for (auto& [mark, part] :
       {std::pair{std::string_view(".lora_A."), LoraKeyName::Down}, {".lora_B.", LoraKeyName::Up}}) {
    const size_t at = key.rfind(mark);
    if (at == std::string_view::npos || at == 0) continue;
    std::string_view rest = key.substr(at + mark.size());
    const size_t dot = rest.find('.');
    if (dot != std::string_view::npos && dot > 0) rest = rest.substr(dot + 1);  // without the name
    const std::string_view stem = key.substr(0, at);
    if (rest == "bias") out = {LoraKeyName::Other, stem, "a LoRA with biases"};
    if (rest == "weight")
      out = {part, stem,
             stem.starts_with("base_model.model.")  ? "peft"
             : stem.starts_with("diffusion_model.") ? "comfyui"
                                                    : "diffusers"};
    return out.part != LoraKeyName::None;
  }
  return false;
}

}  // namespace

LoraKeyName lora_key(std::string_view key) {
  LoraKeyName out;
  if (peft_key(key, out)) return out;
  for (auto& end : kEnds) {
    if (key.size() <= end.text.size() || !key.ends_with(end.text)) continue;
    return {end.part, key.substr(0, key.size() - end.text.size() + end.of_stem), end.kind};
  }
  for (auto& [mark, kind] : kMarks)
    if (const size_t at = key.find(mark); at != std::string_view::npos && at > 0)
      return {LoraKeyName::Other, key.substr(0, at), kind};
  return out;
}

}  // namespace sf::models
