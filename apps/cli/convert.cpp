// `scaffolding convert`: models between one checkpoint file and diffusers' folders,
// and weights between formats and dtypes.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/files.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/pipelines.h"
#include "scaffolding/io/checkpoint.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/formats/torch_file.h"
#include "scaffolding/models/single_file/single_file.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/copy/copy.h"

namespace sf::cli {

namespace fs = std::filesystem;

namespace {

struct Options {
  std::string input, output, dtype, config;
  bool force = false;
};

using Weights = std::map<std::string, Tensor>;

std::optional<DType> wanted_dtype(const Options& o) {
  return o.dtype.empty() ? std::nullopt : std::optional(dtype_of("--dtype", o.dtype));
}

bool has_suffix(const std::string& path, std::initializer_list<const char*> suffixes) {
  std::string suffix = fs::path(path).extension().string();
  return std::any_of(suffixes.begin(), suffixes.end(), [&](const char* s) { return suffix == s; });
}
bool is_safetensors(const std::string& path) { return has_suffix(path, {".safetensors"}); }
bool is_weights_file(const std::string& path) {
  return has_suffix(path, {".safetensors", ".pt", ".pth", ".bin", ".ckpt"});
}

void write_weights(Weights weights, const Options& o) {
  if (auto dtype = wanted_dtype(o))
    for (auto& [name, t] : weights)
      if (is_floating(t.dtype())) t = to_dtype(t, *dtype);
  if (is_safetensors(o.output)) return io::save_safetensors(weights, o.output, {{"format", "pt"}});
  std::vector<io::Object> items;
  for (auto& [name, t] : weights) items.insert(items.end(), {io::Object(std::string_view(name)), io::Object(t)});
  io::save_torch(io::Object::container(io::Object::Dict, std::move(items)), o.output);
}

// A pipeline's folder as one checkpoint with the names that other programs know.
void folder_to_file(const Options& o) {
  auto pipeline = diffusion::load_pipeline(o.input).pipeline;
  std::map<std::string, Weights> parts;
  std::map<std::string, io::Object> configs;
  for (auto& slot : pipeline->components()) {
    models::Model* model = slot.network() ? slot.network()->model() : nullptr;
    if (!model) continue;
    for (auto& [key, t] : nn::state_dict(*model)) parts[slot.name].emplace(key, t);
    configs.emplace(slot.name, model->saved_config());
  }
  SF_CHECK(configs.count("unet"), "convert: '", o.input, "' has no unet");
  write_weights(models::to_single_file(models::kind_of_unet(configs.at("unet")).name, parts, configs), o);
}

void file_to_folder(const Options& o) {
  diffusion::LoadSingleFileOptions options;
  options.dtype = wanted_dtype(o);
  options.config = o.config;
  diffusion::save_pipeline(*diffusion::load_single_file_pipeline(o.input, options).pipeline, o.output);
}

void convert(const Options& o) {
  SF_CHECK(fs::exists(o.input), "convert: there is no file or folder '", o.input, "'");
  SF_CHECK(o.force || !fs::exists(o.output), "convert: '", o.output, "' is there already; --force replaces it");
  wanted_dtype(o);  // refused before anything is read
  if (fs::is_directory(o.input)) {
    SF_CHECK(is_weights_file(o.output), "convert: a folder becomes a file that ends in .safetensors or .ckpt, got '",
             o.output, "'");
    if (fs::exists(fs::path(o.input) / "model_index.json")) folder_to_file(o);
    else write_weights(io::load_checkpoint(o.input), o);
  } else if (is_weights_file(o.output)) {
    write_weights(io::load_checkpoint(o.input), o);
  } else {
    SF_CHECK(!fs::path(o.output).has_extension(),
             "convert: the output must be a folder, or end in .safetensors, .pt, .bin or .ckpt, got '", o.output, "'");
    file_to_folder(o);
  }
  std::cout << o.output << "\n";
}

}  // namespace

void add_convert(CLI::App& program) {
  auto* command = program.add_subcommand(
      "convert", "Convert a model between one file and a folder, or weights between formats and dtypes");
  auto o = std::make_shared<Options>();
  command->add_option("input", o->input, "A checkpoint file, or a folder in diffusers' layout")->required();
  command->add_option("output", o->output, "A file (.safetensors, .pt, .bin, .ckpt), or a folder for a whole model")
      ->required();
  command->add_option("--dtype", o->dtype,
                      "Floating tensors become float32, bfloat16 or float16; without it they stay as they are");
  command->add_option("--config", o->config,
                      "A folder of a model of this kind: its tokenizers, which no checkpoint file holds");
  command->add_flag("--force", o->force, "Replace what is there");
  command->footer(R"(Examples:
  scaffolding convert v1-5-pruned.safetensors stable-diffusion-1-5     a folder for diffusers
  scaffolding convert stable-diffusion-1-5 one.safetensors --dtype float16
  scaffolding convert weights.bin weights.safetensors)");
  command->callback([o] { convert(*o); });
}

}  // namespace sf::cli
