// Where people keep models: the folders of SF_MODELS, huggingface_hub's cache, and those that ComfyUI, the web UIs and
// Stability Matrix keep below the home folder. Functions only: any thread may call any of them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sf::io {

// What a folder is for, by its own name: "checkpoints", "Stable-diffusion", "loras".
enum class ModelUse : uint8_t { Any, Model, Denoiser, Vae, Lora, Upscaler, Other };

struct ModelPlace {
  enum Kind : uint8_t { Folder, HubCache } kind = Folder;
  std::string folder;
  std::string program;  // whose it is: "ComfyUI"; of SF_MODELS ""
};

// Those that there are, each once, in the order in which they are looked through. ValueError for a folder of SF_MODELS
// that is not there.
std::vector<ModelPlace> model_places();

ModelUse use_of_folder(const std::string& name);  // Any where the name says nothing

}  // namespace sf::io
