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
#include "scaffolding/ops/copy/copy.h"

namespace sf::cli {

namespace fs = std::filesystem;

namespace {

struct ConvertOptions {
  std::string input, output, dtype, config;
  bool force = false;
};

using Weights = std::map<std::string, Tensor>;

std::optional<DType> wanted_dtype(const ConvertOptions& o) {
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

void write_weights(Weights weights, const ConvertOptions& o, const io::Metadata& metadata = {{"format", "pt"}}) {
  if (auto dtype = wanted_dtype(o))
    for (auto& [name, t] : weights)
      if (is_floating(t.dtype())) t = to_dtype(t, *dtype);
  if (is_safetensors(o.output)) return io::save_safetensors(weights, o.output, metadata);
  std::vector<io::Object> items;
  for (auto& [name, t] : weights) items.insert(items.end(), {io::Object(std::string_view(name)), io::Object(t)});
  io::save_torch(io::Object::container(io::Object::Dict, std::move(items)), o.output);
}

// A pipeline's folder as one checkpoint, with its configs and tokenizers in the metadata where the format has some.
void folder_to_file(const ConvertOptions& o) {
  const diffusion::SingleFileContent content =
      diffusion::single_file_content(*diffusion::load_pipeline(o.input).pipeline);
  SF_CHECK(content.kind || is_safetensors(o.output), "convert: '", o.input,
           "' has other sizes than published models, so that the file must bring its configs: give it a name that ends "
           "in .safetensors, got '",
           o.output, "'");
  write_weights(content.tensors, o, content.metadata);
}

// What a file brings of its pipeline goes along with its weights.
io::Metadata kept_metadata(const std::string& path) {
  io::Metadata out{{"format", "pt"}};
  for (auto& [key, value] : io::open_checkpoint(path)->metadata())
    if (!models::packed_path(key).empty()) out.emplace(key, value);
  return out;
}

void file_to_folder(const ConvertOptions& o) {
  diffusion::LoadSingleFileOptions options;
  options.dtype = wanted_dtype(o);
  options.config = o.config;
  diffusion::save_pipeline(*diffusion::load_single_file_pipeline(o.input, options).pipeline, o.output);
}

void convert(const ConvertOptions& o) {
  SF_CHECK(fs::exists(o.input), "convert: there is no file or folder '", o.input, "'");
  SF_CHECK(o.force || !fs::exists(o.output), "convert: '", o.output, "' is there already; --force replaces it");
  wanted_dtype(o);  // refused before anything is read
  if (fs::is_directory(o.input)) {
    SF_CHECK(is_weights_file(o.output), "convert: a folder becomes a file that ends in .safetensors or .ckpt, got '",
             o.output, "'");
    if (fs::exists(fs::path(o.input) / "model_index.json")) folder_to_file(o);
    else write_weights(io::load_checkpoint(o.input), o);
  } else if (is_weights_file(o.output)) {
    write_weights(io::load_checkpoint(o.input), o, kept_metadata(o.input));
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
  auto o = std::make_shared<ConvertOptions>();
  command->add_option("input", o->input, "A checkpoint file, or a folder in diffusers' layout")->required();
  command->add_option("output", o->output, "A file (.safetensors, .pt, .bin, .ckpt), or a folder for a whole model")
      ->required();
  command->add_option("--dtype", o->dtype,
                      "Floating tensors become float32, bfloat16 or float16; without it they stay as they are");
  command->add_option(
      "--config", o->config,
      "A folder of a model of this kind: tokenizers, scheduler and sizes, where a file is no usual one");
  command->add_flag("--force", o->force, "Replace what is there");
  command->footer(R"(Examples:
  scaffolding convert v1-5-pruned.safetensors stable-diffusion-1-5     a folder for diffusers
  scaffolding convert stable-diffusion-1-5 one.safetensors --dtype float16
  scaffolding convert models/emoji-128 one.safetensors                 then txt2img -m one.safetensors
  scaffolding convert weights.bin weights.safetensors)");
  command->callback([o] { convert(*o); });
}

}  // namespace sf::cli
