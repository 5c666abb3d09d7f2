// What the end of a key of a LoRA file says, and what stands before it: the stem, which names a module
// (names/adapter_names.h). Ends are those that kohya's scripts, diffusers and PEFT write.
#pragma once
#include <cstdint>
#include <string_view>

namespace sf::models {

struct LoraKeyName {
  enum Part : uint8_t {
    None,   // nothing of an adapter
    Down,   // A of B(Ax)
    Up,     // B
    Mid,    // LoCon's, between them
    Alpha,  // one number
    Other,  // of an adapter that is not a LoRA, or more than one
  } part = None;
  std::string_view stem;
  // of Down, Up and Mid: "kohya", "diffusers", "diffusers_old", "peft" or "comfyui"; of Other what it is: "LoHa"
  const char* kind = "";
};

// Views of `key`.
LoraKeyName lora_key(std::string_view key);

}  // namespace sf::models
