#include "scaffolding/models/adapters/lora_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "scaffolding/io/config.h"
#include "scaffolding/models/single_file/kinds.h"

namespace sf::models {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPeftFiles[] = {"adapter_model.safetensors", "adapter_model.bin"};
constexpr const char* kFiles[] = {"adapter_model.safetensors", "pytorch_lora_weights.safetensors", "adapter_model.bin",
                                  "pytorch_lora_weights.bin"};
// What a training run leaves beside its LoRA.
constexpr const char* kNoLora[] = {"scheduler", "optimizer", "checkpoint"};

// The first of these files that a folder has, or "".
template <size_t N> std::string first_of(const char* const (&names)[N], const fs::path& folder) {
  std::error_code error;
  for (auto* name : names)
    if (fs::path file = folder / name; fs::is_regular_file(file, error)) return file.string();
  return "";
}

bool is_component(const std::string& name) {
  return name == "unet" || name == "transformer" || name.starts_with("text_encoder");
}

// A file whose name says nothing, where it is the only one.
std::string only_file(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const fs::directory_entry& entry = *it;
    const std::string name = entry.path().filename().string();
    const bool other =
        std::any_of(std::begin(kNoLora), std::end(kNoLora), [&](auto* part) { return name.find(part) != name.npos; });
    if (entry.path().extension() == ".safetensors" && !other && entry.is_regular_file(error)) found.push_back(name);
  }
  std::sort(found.begin(), found.end());
  SF_CHECK(!found.empty(), folder, ": holds no LoRA; it would be ", kFiles[0], ", ", kFiles[1],
           ", another .safetensors file, or a folder with ", kFiles[0], " for each component");
  SF_CHECK(found.size() == 1, folder, ": holds ", found.size(), " files that may be the LoRA, such as '", found[0],
           "' and '", found[1], "'; name one of them (weight_name=)");
  return (fs::path(folder) / found[0]).string();
}

LoraConfig config_of(const io::Checkpoint& file, const std::string& path) {
  if (const std::string peft = lora_config_beside(path); !peft.empty())
    return LoraConfig::of_peft(io::read_config_file(peft), peft);
  const auto metadata = file.metadata();
  auto found = metadata.find("lora_adapter_metadata");
  if (found == metadata.end()) return {};
  const std::string where = path + ": lora_adapter_metadata";
  return LoraConfig::of_diffusers(io::parse_config(found->second, where), where);
}

bool is_floating_dtype(const std::string& name) {
  for (auto* begin : {"F", "BF", "float", "bfloat"})
    if (name.starts_with(begin)) return true;
  return false;
}

// What is before all names of a file: a training program's torch.save nests them.
std::string outer_of(const std::vector<io::CheckpointEntry>& entries) {
  const std::string outer = "state_dict.";
  const bool all = std::all_of(entries.begin(), entries.end(), [&](auto& e) { return e.name.starts_with(outer); });
  return all ? outer : "";
}

}  // namespace

std::string lora_file_of(const std::string& path) {
  std::error_code error;
  const std::string file = fs::is_directory(path, error) ? first_of(kFiles, path) : "";
  return file.empty() ? path : file;
}

std::map<std::string, std::string> lora_parts_of(const std::string& folder) {
  std::map<std::string, std::string> out;
  std::error_code error;
  if (!fs::is_directory(folder, error) || !first_of(kFiles, folder).empty()) return out;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (const std::string name = it->path().filename().string(); is_component(name))
      if (std::string file = first_of(kPeftFiles, it->path()); !file.empty()) out.emplace(name, file);
  return out;
}

std::vector<std::string> lora_files_of(const std::string& path) {
  std::vector<std::string> out;
  std::error_code error;
  for (auto& [component, file] : lora_parts_of(path)) out.push_back(file);
  if (!out.empty()) return out;
  const std::string file = lora_file_of(path);
  return {fs::is_directory(file, error) ? only_file(file) : file};
}

std::string lora_config_beside(const std::string& file) {
  const fs::path config = fs::path(file).parent_path() / "adapter_config.json";
  std::error_code error;
  return fs::path(file).stem() == "adapter_model" && fs::is_regular_file(config, error) ? config.string() : "";
}

LoraFile::Opened LoraFile::open(const std::string& path) {
  const auto parts = lora_parts_of(path);
  if (parts.empty()) {
    const std::string file = lora_files_of(path)[0];
    return {io::open_checkpoint(file), file, {}};
  }
  // Names as diffusers has them in one file, "unet.mid_block...."
  const std::string before = "base_model.model.";
  std::map<std::string, Tensor> tensors;
  std::map<std::string, LoraConfig> configs;
  for (auto& [component, part] : parts) {
    const auto open = io::open_checkpoint(part);
    for (auto& name : open->names()) {
      const std::string module = name.starts_with(before) ? name.substr(before.size()) : name;
      SF_CHECK(tensors.emplace(component + "." + module, open->get(name)).second, part, ": two tensors are '", module,
               "'");
    }
    configs.emplace(component, config_of(*open, part));
  }
  return {io::checkpoint_of(std::move(tensors)), path, LoraConfig::of_components(std::move(configs), path)};
}

LoraFile::LoraFile(const std::string& path) : LoraFile(open(path)) {}
LoraFile::LoraFile(Opened opened) : LoraFile(std::move(opened.file), opened.path, std::move(opened.config)) {}
LoraFile::~LoraFile() = default;

LoraFile::LoraFile(std::shared_ptr<const io::Checkpoint> file, const std::string& path,
                   std::optional<LoraConfig> config)
    : path_(path), file_(std::move(file)) {
  const std::string_view kind = file_->kind();
  SF_CHECK(kind == "safetensors" || kind == "torch" || kind == "sharded" || kind == "tensors", path_, ": is ", kind,
           ", and LoRA files are safetensors or PyTorch's");
  config_ = config ? std::move(*config) : config_of(*file_, path_);
  entries_ = file_->entries();
  read_names();
  for (auto& stem : stems_) read_stem(stem);
}

void LoraFile::read_names() {
  const std::string outer = outer_of(entries_);
  std::unordered_map<std::string_view, size_t> by_name;
  std::map<std::string_view, size_t> formats;
  by_name.reserve(entries_.size());
  stems_.reserve(entries_.size() / 2);
  size_t layers = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const LoraKeyName key = lora_key(std::string_view(entries_[i].name).substr(outer.size()));
    const int here = int(i);
    if (key.part == LoraKeyName::None) {
      strangers_.push_back(here);
      continue;
    }
    auto [place, fresh] = by_name.try_emplace(key.stem, stems_.size());
    if (fresh) stems_.push_back({key.stem});
    Stem& stem = stems_[place->second];
    if (key.part == LoraKeyName::Other) {
      stem.kind = key.kind;
      stem.others.push_back(here);
      ++layers;
      continue;
    }
    int& part = key.part == LoraKeyName::Down  ? stem.down
                : key.part == LoraKeyName::Mid ? stem.mid
                : key.part == LoraKeyName::Up  ? stem.up
                                               : stem.alpha_key;
    SF_CHECK(part < 0, path_, ": '", name(part), "' and '", entries_[i].name, "' are the same part of one layer");
    part = here;
    if (key.part == LoraKeyName::Alpha) continue;
    ++layers;
    auto [format, first] = formats.try_emplace(key.kind);
    if (++format->second > formats[format_]) format_ = key.kind;
  }
  if (layers == 0) fail_as_no_lora(outer);
}

void LoraFile::fail_as_no_lora(const std::string& outer) const {
  const SingleFileKind* model = nullptr;
  try {
    model = &recognise_single_file(*file_, outer, path_);
  } catch (const Error&) {}  // of no known kind
  if (model)
    fail(path_, ": is a whole model, ", model->title,
         ", and not a LoRA; load it as the model itself, with from_single_file");
  fail(path_, ": is no LoRA: none of its ", entries_.size(), " tensors", entries_.empty() ? "" : ", such as '",
       entries_.empty() ? "" : entries_[0].name, entries_.empty() ? "" : "',",
       " is named like a part of one; a model is loaded with from_pretrained or from_single_file");
}

bool LoraFile::recognises(const io::Checkpoint& file) {
  size_t adapters = 0, all = 0;
  bool any = false;
  for (auto& name : file.names()) {
    const LoraKeyName::Part part = lora_key(name).part;
    ++all;
    adapters += part != LoraKeyName::None;
    any |= part != LoraKeyName::None && part != LoraKeyName::Alpha;
  }
  return any && 2 * adapters > all;
}

std::vector<int> LoraFile::keys_of(const Stem& stem) {
  std::vector<int> out;
  for (int key : {stem.down, stem.mid, stem.up, stem.alpha_key})
    if (key >= 0) out.push_back(key);
  out.insert(out.end(), stem.others.begin(), stem.others.end());
  return out;
}

// Reads the stem's rank and alpha, and refuses what no model could take.
void LoraFile::read_stem(Stem& stem) const {
  if (stem.down >= 0 && !shape(stem.down).empty()) stem.rank = shape(stem.down)[0];
  if (stem.alpha_key >= 0) {
    const Tensor alpha = file_->get(name(stem.alpha_key));
    SF_CHECK(alpha.numel() == 1, path_, ": '", name(stem.alpha_key), "' must be one number, got ", alpha.shape());
    stem.alpha = alpha.item();
  }
  if (stem.kind) return;
  const bool half = (stem.down < 0) != (stem.up < 0);
  SF_CHECK(!half, path_, ": '", name(stem.down < 0 ? stem.up : stem.down), "' lacks its other half, the ",
           stem.down < 0 ? "down (A)" : "up (B)", " weight; the file is damaged or cut");
  SF_CHECK(stem.down >= 0 || stem.mid < 0, path_, ": '", name(stem.mid), "' lacks the weights before and after it");
  for (int key : {stem.down, stem.mid, stem.up})
    SF_CHECK(key < 0 || is_floating_dtype(entries_[size_t(key)].dtype), path_, ": '", name(key), "' is ",
             entries_[size_t(key)].dtype, " and should be of a floating-point dtype");
  if (stem.down >= 0 && stem.alpha) check_alpha(*stem.alpha, name(stem.alpha_key));
}

void LoraFile::check_alpha(double alpha, const std::string& what) const {
  SF_CHECK(std::isfinite(alpha) && alpha != 0, path_, ": '", what, "' is ", alpha, ", by which the layer would ",
           alpha == 0 ? "do nothing" : "be lost", "; an alpha is a number other than 0, or left out");
}

}  // namespace sf::models
