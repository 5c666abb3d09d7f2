// The schedulers by their names, and their files.
#include <filesystem>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/schedulers.h"

namespace sf::diffusion {

namespace {

constexpr const char* kConfigFile = "scheduler_config.json";

struct Entry {
  const char* name;
  std::unique_ptr<Scheduler> (*make)(const io::Object& config);
};

template <class S> Entry entry() {
  return {S::kName, [](const io::Object& dict) -> std::unique_ptr<Scheduler> {
            typename S::Config config;
            ConfigRest rest = read_fields(S::kName, config.fields(), dict);
            auto scheduler = std::make_unique<S>(std::move(config));
            scheduler->set_config_rest(std::move(rest));
            return scheduler;
          }};
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all{
      entry<DDIMScheduler>(),
      entry<DDPMScheduler>(),
      entry<EulerDiscreteScheduler>(),
      entry<EulerAncestralDiscreteScheduler>(),
      entry<DPMSolverMultistepScheduler>(),
      entry<PNDMScheduler>(),
      entry<FlowMatchEulerDiscreteScheduler>(),
      entry<HeunDiscreteScheduler>(),
      entry<UniPCMultistepScheduler>(),
      entry<LCMScheduler>(),
      entry<DPMSolverSinglestepScheduler>(),
      entry<DEISMultistepScheduler>(),
      entry<LMSDiscreteScheduler>(),
      entry<KDPM2DiscreteScheduler>(),
      entry<KDPM2AncestralDiscreteScheduler>(),
      entry<TCDScheduler>(),
      entry<EDMEulerScheduler>(),
      entry<EDMDPMSolverMultistepScheduler>(),
      entry<IPNDMScheduler>(),
      entry<CogVideoXDDIMScheduler>(),
      entry<CogVideoXDPMScheduler>(),
  };
  return all;
}

}  // namespace

std::unique_ptr<Scheduler> fresh_scheduler(Scheduler& scheduler) {
  return make_scheduler(scheduler.name(), scheduler.config());
}

std::vector<std::string> scheduler_names() {
  std::vector<std::string> names;
  for (auto& e : entries()) names.push_back(e.name);
  return names;
}

std::unique_ptr<Scheduler> make_scheduler(const std::string& class_name, const io::Object& config) {
  std::string known;
  for (auto& e : entries()) {
    if (class_name == e.name) return e.make(config);
    known += (known.empty() ? "" : ", ") + std::string(e.name);
  }
  fail("make_scheduler: no scheduler '", class_name, "'; there are ", known);
}

std::unique_ptr<Scheduler> load_scheduler(const std::string& path) {
  std::error_code error;
  std::string file =
      std::filesystem::is_directory(path, error) ? (std::filesystem::path(path) / kConfigFile).string() : path;
  io::Object dict = io::read_config_file(file);
  auto* name = dict.find("_class_name");
  SF_CHECK(name && name->is(io::Object::String), file, ": has no _class_name");
  return make_scheduler(name->text(), dict);
}

void save_scheduler(Scheduler& scheduler, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  io::write_config_file(scheduler.saved_config(), (std::filesystem::path(folder) / kConfigFile).string());
}

}  // namespace sf::diffusion
