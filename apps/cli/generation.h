// What txt2img, img2img, inpaint, txt2vid and img2vid share: their options, the model, the loop over pictures or clips,
// and the files that come out.
#pragma once
#include <CLI/CLI.hpp>
#include <array>
#include <nlohmann/json.hpp>

#include "apps/cli/loras.h"
#include "apps/cli/terminal.h"
#include "scaffolding/diffusion/pipelines/pipelines.h"
#include "scaffolding/io/pictures/image.h"

namespace sf::cli {

inline constexpr double kGuidance = 5;  // of models that advise none

struct GenerationSettings {
  std::string prompt, negative_prompt, model, vae, sampler;
  std::vector<std::string> scheduler_options;  // field=value
  std::vector<std::string> embeddings;         // FILE or FILE:WORD, as they were written
  std::string quantize;                        // "q4_K", "int8-dynamic" (quantize_option.h)
  LoraSettings loras;                          // load_model finds them
  std::optional<int64_t> width, height, clip_skip;
  int64_t steps = 20, count = 1, batch = 1;
  std::optional<double> guidance;          // absent: what the model advises, or 5; load_model settles it
  std::optional<double> guidance_rescale;  // absent: the pipeline's own
  double eta = 0;
  std::optional<int64_t> seed;  // of the first picture; the next has the next one. Absent: drawn
  std::string dtype = "float32", device = "cpu", prompt_syntax = "plain", output = "{seed}.png", like, preview,
              save_steps;
  bool quiet = false, json = false, no_capture = false, force = false;
  std::string profile, max_vram, max_ram;  // of a memory plan, where any of them is given
  // Of a picture that is repeated: the batch it was made in, whose sums its last bits depend on, and its place there.
  int64_t batch_of = 1, place = 0;
  // Of one that a server made: steps, the first row of its own and rows of calls that it shared with others.
  std::vector<std::array<int64_t, 3>> calls;
  bool clips = false;         // it is clips that come out: generate() settles it
  std::optional<double> fps;  // of clips, frames a second; absent: what the model is told of them, or 8
  // img2img, inpaint and img2vid
  std::string image, mask;
  double strength = 0.75;
  std::vector<std::string> controlnets, control_images, control_modes;  // of a mode one for all, or one for each
  std::optional<double> hires;  // how much larger a second pass makes it (hires.h)
  double hires_strength = 0.7;
  std::optional<int64_t> hires_steps;
  std::string hires_upscaler = "latent", tiling;  // tiling: "x", "y", "xy"
  std::string freeu;                              // S1,S2,B1,B2
  // of the pipeline's call besides, by the names of its fields, as they were written
  std::map<std::string, std::string> options;
  // of several drawings in one run (drawing.h)
  std::string prompts;
  std::vector<std::string> grid;
  bool grid_only = false;
  int64_t first_number = 0;  // of the first picture
  bool numbered = false;     // names of files have the number, whatever else is in them
};

// What nobody has asked for and depends on the pipeline: guidance, its rescale, frames a second.
void settle(GenerationSettings& settings, const diffusion::DiffusionPipeline& pipeline);

// Several calls of generate() in a row: the watch that all share, and what came before.
struct Series {
  SamplingWatch& watch;
  bool is_written = true;  // the pictures are, besides being handed out
};

// The options of txt2img, img2img, inpaint, txt2vid and img2vid, on `command`, with what calls of the tasks' pipelines
// take besides; and those that every command with a model and a sampler has.
void add_generation_options(CLI::App& command, GenerationSettings& settings,
                            std::initializer_list<diffusion::Task> tasks);
void add_clip_options(CLI::App& command, GenerationSettings& settings, std::initializer_list<diffusion::Task> tasks);
void add_sampling_options(CLI::App& command, GenerationSettings& settings, const char* model = "-m,--model");
void add_force(CLI::App& command, GenerationSettings& settings);  // of commands that write pictures or clips

// One batch's options but for prompts and generators. ValueError for a syntax that there is not.
diffusion::GenerationOptions sampling_options(const GenerationSettings& settings);

// The settings that a picture was made with, from its text; what was given on the command line stays. ValueError for a
// picture without.
void read_like(const CLI::App& command, GenerationSettings& settings);

// Makes `count` pictures, or clips, and writes them. Prints their paths, or a line of JSON for each. given: tensors by
// the names of the options that take them; made: gets each picture that was written, uint8 [3, H, W].
void generate(const char* kind, GenerationSettings& settings, const diffusion::DiffusionPipeline& pipeline,
              const std::map<std::string, Tensor>& given = {},
              const std::function<void(const Tensor& picture)>& made = {}, Series* series = nullptr);

// What generate() does before the first step of its first picture, for what is wrong with the settings.
void try_to_start(const char* kind, const GenerationSettings& settings, const diffusion::DiffusionPipeline& pipeline,
                  const std::map<std::string, Tensor>& given);

// Everything that a picture or clip is written to can be: ValueError before the first is made.
void check_outputs(const GenerationSettings& settings);
// The file of a picture: a template, filled in.
std::string output_path(const GenerationSettings& settings, std::string path, int64_t seed, int64_t number);
// The LoRAs that prompts name.
std::vector<diffusion::LoraTag> lora_tags(const GenerationSettings& settings);
// A picture of these settings into a file, with what it was made by in a PNG. more: behind the web UI's text.
nlohmann::ordered_json write_picture(const std::string& path, const Tensor& picture, const GenerationSettings& settings,
                                     const char* kind, const char* scheduler, const std::string& more = {});

// Options of a call of the pipeline, one batch of these settings, without what draws and calls back.
diffusion::AnyOptions batch_options(const char* command, const GenerationSettings& settings,
                                    const diffusion::DiffusionPipeline& pipeline, int64_t batch);

// A picture named on the command line, uint8 [C, H, W]. ValueError naming the option for what is none.
Tensor input_picture(const char* option, const std::string& path, io::ImageMode mode);

}  // namespace sf::cli
