#include "apps/cli/samplers.h"

#include <algorithm>

#include "scaffolding/core/error.h"
#include "scaffolding/io/object_entries.h"

namespace sf::cli {

using io::Object;

namespace {

struct Sampler {
  const char* name;
  const char* class_name;
  std::vector<std::pair<const char*, Object>> fields;
};

const std::vector<Sampler>& samplers() {
  static const std::vector<Sampler> all{
      {"ddim", "DDIMScheduler", {}},
      {"ddpm", "DDPMScheduler", {}},
      {"euler", "EulerDiscreteScheduler", {}},
      {"euler-karras", "EulerDiscreteScheduler", {{"use_karras_sigmas", true}}},
      {"euler-a", "EulerAncestralDiscreteScheduler", {}},
      {"heun", "HeunDiscreteScheduler", {}},
      {"dpm++2m", "DPMSolverMultistepScheduler", {}},
      {"dpm++2m-karras", "DPMSolverMultistepScheduler", {{"use_karras_sigmas", true}}},
      {"dpm++2m-sde", "DPMSolverMultistepScheduler", {{"algorithm_type", "sde-dpmsolver++"}}},
      {"unipc", "UniPCMultistepScheduler", {}},
      {"pndm", "PNDMScheduler", {{"skip_prk_steps", true}}},
      {"lcm", "LCMScheduler", {}},
  };
  return all;
}

// A value as JSON has it; what is none is a string.
Object value_of(const std::string& key, const std::string& text) {
  std::string where = "--scheduler-option " + key;
  try {
    return *io::parse_config("{\"v\": " + text + "}", where).find("v");
  } catch (const ValueError&) {
    return Object(std::string_view(text));
  }
}

}  // namespace

std::vector<std::string> sampler_names() {
  std::vector<std::string> names;
  for (auto& s : samplers()) names.push_back(s.name);
  return names;
}

std::unique_ptr<diffusion::Scheduler> make_sampler(const std::string& name, diffusion::Scheduler& own,
                                                   const std::vector<std::string>& scheduler_options) {
  std::string class_name = own.name();
  Object config = Object::container(Object::Dict), present = own.config();
  for (size_t i = 0; i + 1 < present.items().size(); i += 2)
    if (std::string key = present.items()[i].text(); key != "_use_default_values")
      io::set_entry(config, key, present.items()[i + 1]);
  if (!name.empty()) {
    auto found = std::find_if(samplers().begin(), samplers().end(), [&](auto& s) { return name == s.name; });
    if (found == samplers().end()) {
      std::string known;
      for (auto& n : sampler_names()) known += (known.empty() ? "" : ", ") + n;
      fail("--sampler: there is no '", name, "'; there are ", known);
    }
    class_name = found->class_name;
    for (auto& [key, value] : found->fields) io::set_entry(config, key, value);
  }
  for (auto& option : scheduler_options) {
    size_t equals = option.find('=');
    SF_CHECK(equals != std::string::npos && equals > 0, "--scheduler-option: must be field=value, got '", option, "'");
    std::string key = option.substr(0, equals);
    io::set_entry(config, key, value_of(key, option.substr(equals + 1)));
  }
  auto made = diffusion::make_scheduler(class_name, config);
  for (auto& option : scheduler_options) {
    std::string key = option.substr(0, option.find('='));
    auto fields = made->fields();
    SF_CHECK(std::any_of(fields.begin(), fields.end(), [&](auto& f) { return key == f.name; }),
             "--scheduler-option: ", class_name, " has no field '", key, "'");
  }
  return made;
}

}  // namespace sf::cli
