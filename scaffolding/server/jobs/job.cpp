#include "scaffolding/server/jobs/job.h"

#include <algorithm>

#include "scaffolding/core/error.h"

namespace sf::server {

namespace {

constexpr const char* kStates[] = {"waiting", "running", "done", "failed", "cancelled"};
constexpr const char* kPriorities[] = {"low", "normal", "high"};

template <class T> void put(json& out, const char* name, const std::optional<T>& value) {
  if (value) out[name] = *value;
}
template <class T> void take(const json& in, const char* name, std::optional<T>& value) {
  if (auto it = in.find(name); it != in.end()) value = it->get<T>();
}

}  // namespace

const char* name_of(JobState state) { return kStates[size_t(state)]; }
JobState job_state(std::string_view name) {
  for (size_t i = 0; i < std::size(kStates); ++i)
    if (name == kStates[i]) return JobState(i);
  fail("job: there is no state '", name, "'");
}
bool is_over(JobState state) { return state != JobState::Waiting && state != JobState::Running; }

const char* name_of(Priority priority) { return kPriorities[size_t(priority)]; }
std::optional<Priority> priority_named(std::string_view name) {
  for (size_t i = 0; i < std::size(kPriorities); ++i)
    if (name == kPriorities[i]) return Priority(i);
  return {};
}

json to_json(const JobRequest& r) {
  json out{{"task", diffusion::name_of(r.task)},
           {"model", r.model},
           {"prompt", r.prompt},
           {"negative_prompt", r.negative_prompt},
           {"sampler", r.sampler},
           {"scheduler_options", r.scheduler_options},
           {"steps", r.steps},
           {"seed", r.seed},
           {"count", r.count},
           {"strength", r.strength},
           {"options", r.options},
           {"image", r.image},
           {"mask", r.mask},
           {"api", r.api}};
  if (!r.vae.empty()) out["vae"] = r.vae;
  if (!r.mask.empty()) {
    out["mask_blur"] = r.mask_blur, out["mask_fill"] = int(r.mask_fill);
    put(out, "mask_padding", r.mask_padding);
  }
  if (r.hires) {
    out["hires"] = *r.hires, out["hires_strength"] = r.hires_strength, out["hires_upscaler"] = r.hires_upscaler;
    put(out, "hires_steps", r.hires_steps);
  }
  if (!r.format.empty()) out["format"] = r.format;
  put(out, "fps", r.fps);
  put(out, "width", r.width), put(out, "height", r.height), put(out, "guidance", r.guidance);
  json loras = json::array();
  for (auto& l : r.loras)
    loras.push_back({{"name", l.name}, {"text_encoders", l.text_encoders}, {"denoiser", l.denoiser}});
  out["loras"] = loras;
  for (auto& net : r.controls)
    out["controlnet"].push_back({{"model", net.model}, {"image", net.image}, {"mode", net.mode}});
  return out;
}

JobRequest request_of(const json& in) {
  JobRequest r;
  r.task = diffusion::task_of(in.at("task").get<std::string>());
  in.at("model").get_to(r.model);
  in.at("prompt").get_to(r.prompt);
  in.at("negative_prompt").get_to(r.negative_prompt);
  in.at("sampler").get_to(r.sampler);
  in.at("scheduler_options").get_to(r.scheduler_options);
  in.at("steps").get_to(r.steps);
  in.at("seed").get_to(r.seed);
  in.at("count").get_to(r.count);
  in.at("strength").get_to(r.strength);
  in.at("options").get_to(r.options);
  in.at("image").get_to(r.image);
  in.at("mask").get_to(r.mask);
  in.at("api").get_to(r.api);
  r.mask_blur = in.value("mask_blur", int64_t(0)), r.mask_fill = MaskFill(std::clamp(in.value("mask_fill", 1), 0, 3));
  r.hires_strength = in.value("hires_strength", r.hires_strength);
  r.hires_upscaler = in.value("hires_upscaler", r.hires_upscaler);
  r.vae = in.value("vae", ""), r.format = in.value("format", "");
  take(in, "fps", r.fps);
  take(in, "mask_padding", r.mask_padding), take(in, "hires", r.hires), take(in, "hires_steps", r.hires_steps);
  take(in, "width", r.width), take(in, "height", r.height), take(in, "guidance", r.guidance);
  if (auto nets = in.find("controlnet"); nets != in.end())
    for (auto& net : *nets)
      r.controls.push_back(
          {net.at("model").get<std::string>(), net.at("image").get<std::string>(), net.at("mode").get<std::string>()});
  for (auto& l : in.at("loras"))
    r.loras.push_back(
        {l.at("name").get<std::string>(), l.at("text_encoders").get<double>(), l.at("denoiser").get<double>()});
  return r;
}

}  // namespace sf::server
