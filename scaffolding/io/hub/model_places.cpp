#include "scaffolding/io/hub/model_places.h"

#include <algorithm>
#include <filesystem>

#include "scaffolding/core/env.h"
#include "scaffolding/core/error.h"
#include "scaffolding/io/hub/hub_cache.h"

namespace sf::io {

namespace fs = std::filesystem;

namespace {

struct Known {
  const char *folder, *program;  // below the home folder or its Documents
};
constexpr Known kKnown[] = {
    {"ComfyUI/models", "ComfyUI"},
    {"comfy/ComfyUI/models", "ComfyUI"},
    {"stable-diffusion-webui/models", "stable-diffusion-webui"},
    {"stable-diffusion-webui-forge/models", "stable-diffusion-webui-forge"},
    {"stable-diffusion-webui-reForge/models", "stable-diffusion-webui-reForge"},
    {"automatic/models", "SD.Next"},
    {"sdnext/models", "SD.Next"},
    {"StabilityMatrix/Data/Models", "Stability Matrix"},
    {"StabilityMatrix/Models", "Stability Matrix"},
};

// In lower case; '-' and '_' are left out.
constexpr std::pair<const char*, ModelUse> kUses[] = {
    {"checkpoints", ModelUse::Model},   {"stablediffusion", ModelUse::Model},
    {"diffusers", ModelUse::Model},     {"diffusionmodels", ModelUse::Denoiser},
    {"unet", ModelUse::Denoiser},       {"vae", ModelUse::Vae},
    {"loras", ModelUse::Lora},          {"lora", ModelUse::Lora},
    {"lycoris", ModelUse::Lora},        {"upscalemodels", ModelUse::Upscaler},
    {"upscalers", ModelUse::Upscaler},  {"esrgan", ModelUse::Upscaler},
    {"realesrgan", ModelUse::Upscaler}, {"swinir", ModelUse::Upscaler},
    {"embeddings", ModelUse::Other},    {"hypernetworks", ModelUse::Other},
    {"controlnet", ModelUse::Other},    {"clip", ModelUse::Other},
    {"clipvision", ModelUse::Other},    {"textencoders", ModelUse::Other},
    {"textencoder", ModelUse::Other},   {"vaeapprox", ModelUse::Other},
    {"gfpgan", ModelUse::Other},        {"codeformer", ModelUse::Other},
    {"stylemodels", ModelUse::Other},   {"photomaker", ModelUse::Other},
    {"ipadapter", ModelUse::Other},     {"adetailer", ModelUse::Other},
    {"ultralytics", ModelUse::Other},   {"gligen", ModelUse::Other},
};

std::string plain(const std::string& name) {
  std::string out;
  for (char c : name)
    if (c != '-' && c != '_') out += c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
  return out;
}

}  // namespace

ModelUse use_of_folder(const std::string& name) {
  const std::string wanted = plain(name);
  auto* found = std::find_if(std::begin(kUses), std::end(kUses), [&](auto& known) { return wanted == known.first; });
  return found == std::end(kUses) ? ModelUse::Any : found->second;
}

std::vector<ModelPlace> model_places() {
  std::vector<ModelPlace> out;
  std::error_code error;
  auto add = [&](ModelPlace place) {
    while (place.folder.size() > 1 && place.folder.ends_with('/')) place.folder.pop_back();
    if (!fs::is_directory(place.folder, error)) return false;
    const bool again = std::any_of(out.begin(), out.end(),
                                   [&](auto& other) { return fs::equivalent(other.folder, place.folder, error); });
    if (!again) out.push_back(std::move(place));
    return true;
  };
  const std::string own = env::text("SF_MODELS");
  for (size_t at = 0; at < own.size();) {
    const size_t end = std::min(own.find(':', at), own.size());
    const std::string folder = expand_user(own.substr(at, end - at));
    SF_CHECK(end == at || add({ModelPlace::Folder, folder, ""}), "SF_MODELS: there is no folder '", folder, "'");
    at = end + 1;
  }
  add({ModelPlace::HubCache, default_hub_cache(), "Hugging Face"});
  for (auto& [folder, program] : kKnown)
    for (const char* base : {"~/", "~/Documents/"})
      add({ModelPlace::Folder, expand_user(base + std::string(folder)), program});
  return out;
}

}  // namespace sf::io
