// A job: what was asked for, and what became of it. Plain structs; whoever keeps them locks them.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "scaffolding/core/dtype.h"
#include "scaffolding/diffusion/pipelines/lora_tags.h"
#include "scaffolding/diffusion/pipelines/registry.h"

namespace sf::server {

using nlohmann::json;

enum class JobState : uint8_t { Waiting, Running, Done, Failed, Cancelled };
const char* name_of(JobState state);  // "waiting"
JobState job_state(std::string_view name);
bool is_over(JobState state);

enum class Priority : uint8_t { Low, Normal, High };
const char* name_of(Priority priority);  // "normal"
std::optional<Priority> priority_named(std::string_view name);

// What is under a mask to begin with: what is around it, what was there, latents of noise, or of nothing. As numbers
// they are AUTOMATIC1111's.
enum class MaskFill : uint8_t { Around, Original, Noise, Nothing };

// A ControlNet beside the UNet, and what it sees. How much it says is an option of the call.
struct ControlRequest {
  std::string model;          // a name of the shelf; "": of a pipeline that has it inside
  std::string image;          // a file of the history's inputs
  std::string mode = "none";  // what is made of it first: "canny"
};

// What makes the pictures, with everything settled: asked again, it makes the same.
struct JobRequest {
  diffusion::Task task = diffusion::Task::TextToImage;
  std::string model;  // a name of the shelf
  std::string vae;    // another autoencoder than the model's own, by its name of the shelf; "": its own
  std::string prompt, negative_prompt;
  std::string sampler;                         // the program's name; "": the model's own
  std::vector<std::string> scheduler_options;  // field=value
  std::optional<int64_t> width, height;        // pixels; absent: the model's own, or the picture's
  int64_t steps = 20;
  std::optional<double> guidance;  // absent: what the model advises, or 5
  int64_t seed = 0;                // of the first picture; each next one has the next seed
  int64_t count = 1;               // of pictures
  double strength = 0.75;          // of a task with a picture
  // of the pipeline's call besides, by its names, as text
  std::map<std::string, std::string> options;
  std::vector<diffusion::LoraTag> loras;  // besides those that the prompt names
  std::string image, mask;                // files of the history's inputs
  std::vector<ControlRequest> controls;
  int64_t mask_blur = 0;  // pixels of its edges' deviation
  MaskFill mask_fill = MaskFill::Original;
  std::optional<int64_t> mask_padding;  // only this far around the mask is drawn, at the whole size
  std::optional<double> hires;          // how much larger a second pass makes it
  double hires_strength = 0.7;
  std::optional<int64_t> hires_steps;     // absent: as many as steps
  std::string hires_upscaler = "latent";  // "bicubic", "lanczos"
  std::string format;                     // of clips: a name of clip_files.h; "": the usual one
  std::optional<double> fps;              // of clips, frames a second; absent: the usual
  std::string api = "jobs";               // that it came by: "jobs", "openai", "webui", "comfy"
};
json to_json(const JobRequest& request);
JobRequest request_of(const json& saved);  // nlohmann's exceptions for what to_json() did not write

// What models' weights become while they are read.
struct WeightTypes {
  DType dtype = kFloat32;
  std::string quantize;  // nn::QuantizeConfig::named, or ""
};

struct Picture {
  std::string id;    // of its job, and its place
  std::string file;  // its name in the history's pictures
  int64_t place = 0, seed = 0, width = 0, height = 0, bytes = 0;
  int64_t frames = 1;  // of a clip more than one
  bool favourite = false;
};

struct JobRecord {
  std::string id, client;  // the token's name, "" without tokens
  std::string key;         // Idempotency-Key; "" without
  JobRequest request;
  Priority priority = Priority::Normal;
  JobState state = JobState::Waiting;
  double created = 0, started = 0, ended = 0;  // seconds since 1970; 0: not yet
  int64_t crashes = 0;                         // of the server, while it ran
  std::string error;                           // of one that failed
  double seconds = 0;                          // that its pictures took
  std::vector<Picture> pictures;               // that are there
};

}  // namespace sf::server
