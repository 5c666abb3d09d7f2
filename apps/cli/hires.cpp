#include "apps/cli/hires.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "apps/cli/model_names.h"
#include "scaffolding/core/error.h"
#include "scaffolding/models/upscalers/upscale.h"
#include "scaffolding/models/upscalers/upscaler_file.h"

namespace sf::cli {

constexpr const char* kUpscalers[] = {"latent", "bicubic", "lanczos"};

// A file's network, read once for all pictures of a run.
static std::shared_ptr<models::Model> network_of(const GenerationSettings& s) {
  static std::map<std::string, std::shared_ptr<models::Model>> read;
  std::shared_ptr<models::Model>& model = read[s.hires_upscaler + "\n" + s.device];
  if (!model) {
    std::string path;
    try {
      path = located_model("--hires-upscaler", s.hires_upscaler, io::ModelUse::Upscaler);
    } catch (const ValueError& e) {
      fail(e.what(), "; or it is latent, bicubic or lanczos");
    }
    models::LoadModelOptions options;
    options.device = Device(s.device);
    model = models::load_upscaler(path, options);
  }
  return model;
}

void add_hires_options(CLI::App& c, GenerationSettings& s) {
  constexpr const char* kGroup = "A second, larger pass";
  c.add_option("--hires", s.hires,
               "How much larger a second pass makes the picture, as 1.5 or 2; --width and --height are the first one's")
      ->group(kGroup);
  c.add_option("--hires-strength", s.hires_strength, "How much the second pass may change: above 0, to 1")
      ->capture_default_str()
      ->group(kGroup);
  c.add_option("--hires-steps", s.hires_steps,
               "Of the second pass, of which the strength's share is run; without it, as many as --steps")
      ->group(kGroup);
  c.add_option(
       "--hires-upscaler", s.hires_upscaler,
       "What makes the first pass's result larger: latent, bicubic, lanczos, or a file of ESRGAN or Real-ESRGAN")
      ->capture_default_str()
      ->group(kGroup);
}

diffusion::HiresOptions hires_options(const GenerationSettings& s) {
  diffusion::HiresOptions o{.scale = *s.hires, .strength = s.hires_strength, .num_inference_steps = s.hires_steps};
  if (std::find(std::begin(kUpscalers), std::end(kUpscalers), s.hires_upscaler) != std::end(kUpscalers))
    o.upscaler = diffusion::hires_upscaler(s.hires_upscaler);
  else o.upscale = [model = network_of(s)](const Tensor& picture) { return models::upscale_picture(*model, picture); };
  return o;
}

std::string hires_text(const GenerationSettings& s) {
  std::string name = std::filesystem::path(s.hires_upscaler).stem().string();
  if (!name.empty() && name[0] >= 'a' && name[0] <= 'z') name[0] = char(name[0] - 'a' + 'A');
  char text[160];
  std::snprintf(text, sizeof text, "Denoising strength: %g, Hires upscale: %g, Hires steps: %lld, Hires upscaler: %s",
                s.hires_strength, *s.hires, static_cast<long long>(s.hires_steps.value_or(s.steps)),
                name.substr(0, 40).c_str());
  return text;
}

}  // namespace sf::cli
