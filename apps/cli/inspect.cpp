// `scaffolding inspect`: what is in a checkpoint, a LoRA, a model's folder or a picture.
#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/commands.h"
#include "apps/cli/files.h"
#include "apps/cli/inspect_lora.h"
#include "scaffolding/core/error.h"
#include "scaffolding/io/checkpoint.h"
#include "scaffolding/io/config.h"
#include "scaffolding/io/json.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/models/adapters/lora_file.h"
#include "scaffolding/models/single_file/packed_files.h"
#include "scaffolding/models/upscalers/upscaler_file.h"

namespace sf::cli {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

struct InspectOptions {
  std::string path, contains;
  bool json = false, tensors = false;
};

std::string shape_text(const Shape& shape) {
  std::string out = "[";
  for (int i = 0; i < int(shape.size()); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

int64_t elements(const Shape& shape) {
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  return n;
}

ordered_json shape_json(const Shape& shape) {
  ordered_json list = ordered_json::array();
  for (int64_t s : shape) list.push_back(s);
  return list;
}

// Absent too where such a file is damaged: its tensors are shown all the same.
std::optional<models::UpscalerKind> upscaler_of(const std::vector<io::CheckpointEntry>& entries) try {
  return models::recognise_upscaler(entries);
} catch (const Error&) {
  return std::nullopt;
}

void inspect_checkpoint(const std::string& path, const InspectOptions& o) {
  auto file = io::open_checkpoint(path);
  const std::vector<io::CheckpointEntry> entries = file->entries();
  std::map<std::string, int64_t> by_dtype;
  int64_t all = 0;
  for (auto& e : entries) {
    by_dtype[e.dtype] += elements(e.shape);
    all += elements(e.shape);
  }
  const bool is_lora = models::LoraFile::recognises(*file);
  const auto upscaler = upscaler_of(entries);
  if (o.json) {
    ordered_json out{{"path", path},
                     {"kind", file->kind()},
                     {"parameters", all},
                     {"metadata", file->metadata()},
                     {"tensors", ordered_json::object()}};
    if (is_lora) out["lora"] = lora_json(path);
    if (upscaler) out["upscaler"] = {{"class", upscaler->class_name}, {"scale", models::scale_of(*upscaler)}};
    for (auto& e : entries)
      if (e.name.find(o.contains) != std::string::npos)
        out["tensors"][e.name] = {{"dtype", e.dtype}, {"shape", shape_json(e.shape)}};
    std::cout << io::json_text(out, 2) << "\n";
    return;
  }
  std::cout << path << ": " << file->kind() << ", " << entries.size() << " tensors, " << count_text(all)
            << " parameters\n";
  for (auto& [dtype, n] : by_dtype) std::cout << "  " << dtype << ": " << count_text(n) << "\n";
  if (upscaler) std::cout << "  " << models::describe(*upscaler) << "\n";
  if (is_lora) print_lora(lora_json(path));
  else
    for (auto& [key, value] : file->metadata())
      if (const std::string packed = models::packed_path(key); !packed.empty())
        std::cout << "  brings " << packed << ", " << value.size() << " bytes\n";
      else std::cout << "  " << key << ": " << (value.size() > 200 ? value.substr(0, 200) + "..." : value) << "\n";
  if (!o.tensors && o.contains.empty()) return;
  size_t width = 0;
  for (auto& e : entries) width = std::max(width, e.name.size());
  for (auto& e : entries)
    if (e.name.find(o.contains) != std::string::npos)
      std::cout << "  " << std::left << std::setw(int(width) + 2) << e.name << std::setw(6) << e.dtype
                << shape_text(e.shape) << "\n";
}

void inspect_picture(const std::string& path, const InspectOptions& o) {
  io::ImageInfo info = io::image_info(path);
  if (o.json) {
    const ordered_json out{{"path", path},
                           {"format", io::name(info.format)},
                           {"width", info.width},
                           {"height", info.height},
                           {"text", info.text}};
    std::cout << io::json_text(out, 2) << "\n";
    return;
  }
  std::cout << path << ": " << io::name(info.format) << ", " << info.width << "x" << info.height << ", " << info.bits
            << " bits\n";
  for (auto& [key, value] : info.text) std::cout << key << ":\n" << value << "\n";
}

// A folder in diffusers' layout: its class and what its parts weigh.
void inspect_folder(const fs::path& folder, const InspectOptions& o) {
  if (!fs::exists(folder / "model_index.json")) {
    if (fs::exists(folder / "config.json") && !o.json) {
      io::Object config = io::read_config_file((folder / "config.json").string());
      if (auto* name = config.find("_class_name"); name && name->is(io::Object::String))
        std::cout << name->text() << "\n";
    }
    return inspect_checkpoint(folder.string(), o);
  }
  io::Object index = io::read_config_file((folder / "model_index.json").string());
  auto* name = index.find("_class_name");
  if (!o.json)
    std::cout << folder.string() << ": "
              << (name && name->is(io::Object::String) ? name->text() : "a pipeline without a class") << "\n";
  std::vector<fs::path> parts;
  for (auto& entry : fs::directory_iterator(folder))
    if (entry.is_directory()) parts.push_back(entry.path());
  std::sort(parts.begin(), parts.end());
  for (auto& part : parts) {
    bool weights = std::any_of(fs::directory_iterator(part), fs::directory_iterator(), [](auto& f) {
      auto suffix = f.path().extension();
      return suffix == ".safetensors" || suffix == ".bin";
    });
    if (weights) inspect_checkpoint(part.string(), o);
  }
}

void inspect(const InspectOptions& o) {
  SF_CHECK(fs::exists(o.path), "inspect: there is no file or folder '", o.path, "'");
  if (fs::is_directory(o.path)) return inspect_folder(o.path, o);
  if (is_picture(o.path)) return inspect_picture(o.path, o);
  inspect_checkpoint(o.path, o);
}

}  // namespace

void add_inspect(CLI::App& program) {
  auto* command =
      program.add_subcommand("inspect", "Show what is in a checkpoint, a LoRA, a model's folder or a picture");
  auto o = std::make_shared<InspectOptions>();
  command
      ->add_option("path", o->path,
                   "safetensors, .pt, .ckpt, GGUF, npz; a LoRA; a folder in diffusers' layout; PNG, JPEG or WebP")
      ->required();
  command->add_flag("--tensors", o->tensors, "List every tensor with dtype and shape");
  command->add_option("--contains", o->contains, "List the tensors whose names contain this");
  command->add_flag("--json", o->json, "For programs: JSON on standard output");
  command->footer(
      "Examples:\n  scaffolding inspect model.safetensors --tensors\n  scaffolding inspect lora.safetensors    the "
      "model it is for, ranks, trigger words\n  scaffolding inspect picture.png         the prompt and settings it "
      "was made with");
  command->callback([o] { inspect(*o); });
}

}  // namespace sf::cli
