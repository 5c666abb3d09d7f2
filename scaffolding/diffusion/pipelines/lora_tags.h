// <lora:name:0.8> in prompts, as the Stable Diffusion web UI has them: which LoRAs a prompt asks for and how strongly,
// and the prompt without them. What stands for a name is the caller's: models/adapters/lora_folders.h. Functions only.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace sf::diffusion {

struct LoraTag {
  std::string name;
  double text_encoders = 1, denoiser = 1;  // how strongly
  bool operator==(const LoraTag&) const = default;
};

// From what stands behind the name: "" is 1, "0.8" both weights, "0.5:0.8" the text encoders' and the denoiser's; "te="
// and "unet=" name them and count before places. The denoiser's is the text encoders' where nothing says another.
// ValueError beginning with `where` for an empty name and for what is no finite number or a name that there is not;
// NotSupported for a third weight ("dyn="), which cuts ranks.
LoraTag lora_tag(std::string_view name, std::string_view weights, const std::string& where);

struct TaggedPrompt {
  std::string text;           // spaces around a tag stay
  std::vector<LoraTag> tags;  // in the prompt's order
};
// Every <lora:...> and <lyco:...> up to the next '>' is a tag; other angle brackets are text, and what is not closed.
// ValueError and NotSupported as lora_tag() says.
TaggedPrompt take_lora_tags(std::string_view prompt);

// <lora:name:0.8>, or <lora:name:0.5:0.8> where the weights differ.
std::string text_of(const LoraTag& tag);

}  // namespace sf::diffusion
