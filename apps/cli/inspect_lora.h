// What `scaffolding inspect` says of a LoRA besides its tensors.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace sf::cli {

// format, base, layers, ranks, alphas, trigger_words, unused and so on; "error" of a file that cannot be applied.
nlohmann::ordered_json lora_json(const std::string& path);
// The same for people, in lines.
void print_lora(const nlohmann::ordered_json& lora);

}  // namespace sf::cli
