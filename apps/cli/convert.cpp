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
#include "scaffolding/io/formats/gguf_writer.h"
#include "scaffolding/io/formats/safetensors.h"
#include "scaffolding/io/formats/torch_file.h"
#include "scaffolding/nn/quantize.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/quantize/gguf.h"

namespace sf::cli {

namespace fs = std::filesystem;

namespace {

struct ConvertOptions {
  std::string input, output, dtype, type, config;
  std::vector<std::string> rules;
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
bool is_gguf(const std::string& path) { return has_suffix(path, {".gguf"}); }
bool is_weights_file(const std::string& path) {
  return is_gguf(path) || has_suffix(path, {".safetensors", ".pt", ".pth", ".bin", ".ckpt"});
}

// "*attn2*=q8_0" or "*attn2*=16": that much of a pattern's weights.
std::vector<nn::QuantizeRule> rules_of(const ConvertOptions& o) {
  std::vector<nn::QuantizeRule> rules = nn::wide_by_default();
  for (auto& text : o.rules) {
    const size_t at = text.rfind('=');
    SF_CHECK(at != text.npos && at > 0, "--rule: must be PATTERN=TYPE, got '", text, "'");
    std::string type = text.substr(at + 1);
    if (type == "16") type.clear();
    else gguf_blocks("--rule", type);
    rules.push_back({text.substr(0, at), type});
  }
  return rules;
}

// Weights of layers in blocks, as the rules say; what is left as it is.
void write_gguf(const Weights& weights, const ConvertOptions& o, const io::Metadata& metadata) {
  const auto rules = rules_of(o);
  std::map<std::string, io::GgufTensor> out;
  int64_t quantised = 0, fell_back = 0, unfit = 0, numbers = 0;
  for (auto& [name, t] : weights) {
    const bool is_weight = name.ends_with("weight") && t.ndim() >= 2 && is_floating(t.dtype());
    const std::string type = o.type.empty() || !is_weight ? "" : nn::quantized_format(name, t.numel(), o.type, rules);
    const GgufFormat* wanted = type.empty() ? nullptr : &gguf_blocks("--type", type);
    // A convolution's numbers are one row: its own are three long.
    const GgufFormat* fit = wanted ? fitting_gguf_blocks(*wanted, t.ndim() == 2 ? t.size(1) : t.numel()) : nullptr;
    if (!fit) {
      unfit += bool(wanted);
      const auto dtype = wanted_dtype(o);
      out.emplace(name, io::plain_gguf(name, dtype && is_floating(t.dtype()) ? to_dtype(t, *dtype) : t));
      continue;
    }
    ++quantised, fell_back += fit != wanted, numbers += t.numel();
    const Tensor rows = t.reshape({-1, t.ndim() == 2 ? t.size(1) : t.numel()});
    out.emplace(name, io::GgufTensor{quantize_gguf(rows, std::string(fit->name)), fit, t.shape()});
  }
  SF_CHECK(o.type.empty() || quantised > 0, "convert: '", o.input, "' has no weights that --type is for");
  io::save_gguf(out, o.output, metadata);
  if (o.type.empty()) return;
  std::cerr << quantised << " weights of " << numbers << " numbers in blocks";
  if (fell_back) std::cerr << ", " << fell_back << " of them in the next type of blocks of 32";
  if (unfit) std::cerr << "; " << unfit << " stay as they are, since their rows fit no blocks";
  std::cerr << "\n";
}

void write_weights(Weights weights, const ConvertOptions& o, const io::Metadata& metadata = {{"format", "pt"}}) {
  if (auto dtype = wanted_dtype(o))
    for (auto& [name, t] : weights)
      if (is_floating(t.dtype())) t = to_dtype(t, *dtype);
  if (is_gguf(o.output)) return write_gguf(weights, o, metadata);
  if (is_safetensors(o.output)) return io::save_safetensors(weights, o.output, metadata);
  std::vector<io::Object> items;
  for (auto& [name, t] : weights) items.insert(items.end(), {io::Object(std::string_view(name)), io::Object(t)});
  io::save_torch(io::Object::container(io::Object::Dict, std::move(items)), o.output);
}

// A pipeline's folder as one checkpoint, with its configs and tokenizers in the metadata where the format has some.
void folder_to_file(const ConvertOptions& o) {
  const diffusion::SingleFileContent content =
      diffusion::single_file_content(*diffusion::load_pipeline(o.input).pipeline);
  SF_CHECK(content.kind || is_safetensors(o.output) || is_gguf(o.output), "convert: '", o.input,
           "' has other sizes than published models, so that the file must bring its configs: give it a name that ends "
           "in .safetensors or .gguf, got '",
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
  if (!o.type.empty()) gguf_blocks("--type", o.type);
  rules_of(o);
  SF_CHECK(is_gguf(o.output) || (o.type.empty() && o.rules.empty()),
           "convert: --type and --rule are for files that end in .gguf, got '", o.output, "'");
  if (fs::is_directory(o.input)) {
    SF_CHECK(is_weights_file(o.output),
             "convert: a folder becomes a file that ends in .safetensors, .gguf or .ckpt, got '", o.output, "'");
    if (fs::exists(fs::path(o.input) / "model_index.json")) folder_to_file(o);
    else write_weights(io::load_checkpoint(o.input), o);
  } else if (is_weights_file(o.output)) {
    write_weights(io::load_checkpoint(o.input), o, kept_metadata(o.input));
  } else {
    SF_CHECK(!fs::path(o.output).has_extension(),
             "convert: the output must be a folder, or end in .safetensors, .gguf, .pt, .bin or .ckpt, got '", o.output,
             "'");
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
  command
      ->add_option("output", o->output, "A file (.safetensors, .gguf, .pt, .bin, .ckpt), or a folder for a whole model")
      ->required();
  command->add_option("--dtype", o->dtype,
                      "Floating tensors become float32, bfloat16 or float16; without it they stay as they are");
  command->add_option("--type", o->type,
                      "Weights of layers in few bits, in a .gguf file: q8_0, q6_K, q5_K, q5_1, q5_0, q4_K, q4_1, q4_0, "
                      "iq4_nl, q3_K or q2_K. Rows that do not fit blocks of 256 take the next type of blocks of 32");
  command->add_option("--rule", o->rules,
                      "PATTERN=TYPE: another type for weights of such names, or 16 to leave them; may be repeated");
  command->add_option(
      "--config", o->config,
      "A folder of a model of this kind: tokenizers, scheduler and sizes, where a file is no usual one");
  command->add_flag("--force", o->force, "Replace what is there");
  command->footer(R"(Examples:
  scaffolding convert v1-5-pruned.safetensors stable-diffusion-1-5     a folder for diffusers
  scaffolding convert stable-diffusion-1-5 one.safetensors --dtype float16
  scaffolding convert models/emoji-128 one.safetensors                 then txt2img -m one.safetensors
  scaffolding convert models/emoji-128 small.gguf --type q8_0          weights in 8.5 bits
  scaffolding convert stable-diffusion-1-5 sd.gguf --type q4_K --rule "*attn2*=q8_0" --dtype float16
  scaffolding convert weights.bin weights.safetensors)");
  command->callback([o] { convert(*o); });
}

}  // namespace sf::cli
