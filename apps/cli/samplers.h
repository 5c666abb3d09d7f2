// Samplers by the short names that people know, and by those that other programs have for them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::cli {

std::vector<std::string> sampler_names();
// The name here of what AUTOMATIC1111's web UI, stable-diffusion.cpp, InvokeAI, ComfyUI or diffusers call so: "DPM++ 2M
// Karras", "k_euler_a" and "DDIMScheduler" are "dpm++2m-karras", "euler-a" and "ddim". ValueError beginning with
// `option` and naming the nearest for one that is not here.
std::string sampler_named(const std::string& text, const char* option = "--sampler");
bool is_sampler(const std::string& text);

// What --scheduler says there: how steps are spread over the noise, as "field=value" for a sampler's config ("Karras",
// "exponential"), none for those programs' default; and, as in diffusers, it may be a sampler.
struct NamedSchedule {
  std::string sampler;
  std::vector<std::string> options;
};
NamedSchedule schedule_named(const std::string& text);

// The sampler of that name with the config of the model's own scheduler; "" is that one itself. scheduler_options:
// "field=value", values as in JSON. ValueError naming what there is.
std::unique_ptr<diffusion::Scheduler> make_sampler(const std::string& name, diffusion::Scheduler& own,
                                                   const std::vector<std::string>& scheduler_options);

}  // namespace sf::cli
