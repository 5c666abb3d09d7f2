#include "apps/cli/hires.h"

namespace sf::cli {

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
  c.add_option("--hires-upscaler", s.hires_upscaler,
               "What makes the first pass's result larger: latent, bicubic or lanczos")
      ->capture_default_str()
      ->group(kGroup);
}

diffusion::HiresOptions hires_options(const GenerationSettings& s) {
  diffusion::HiresOptions o{.scale = *s.hires, .strength = s.hires_strength, .num_inference_steps = s.hires_steps};
  // Another upscaler, as a network in a file, sets o.upscale here.
  o.upscaler = diffusion::hires_upscaler(s.hires_upscaler);
  return o;
}

std::string hires_text(const GenerationSettings& s) {
  std::string name = s.hires_upscaler;
  if (!name.empty() && name[0] >= 'a' && name[0] <= 'z') name[0] = char(name[0] - 'a' + 'A');
  char text[160];
  std::snprintf(text, sizeof text, "Denoising strength: %g, Hires upscale: %g, Hires steps: %lld, Hires upscaler: %s",
                s.hires_strength, *s.hires, static_cast<long long>(s.hires_steps.value_or(s.steps)),
                name.substr(0, 40).c_str());
  return text;
}

}  // namespace sf::cli
