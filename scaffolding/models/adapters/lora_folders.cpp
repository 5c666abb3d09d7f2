#include "scaffolding/models/adapters/lora_folders.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "scaffolding/core/error.h"
#include "scaffolding/io/checkpoint.h"
#include "scaffolding/models/adapters/lora_file.h"

namespace sf::models {

namespace fs = std::filesystem;

namespace {

bool is_lora_suffix(const fs::path& suffix) {
  return suffix == ".safetensors" || suffix == ".pt" || suffix == ".bin" || suffix == ".ckpt";
}

// All below a folder, each folder once however links lead there. What cannot be read is not there.
template <class F> void walk(const fs::path& folder, std::set<fs::path>& seen, const F& found) {
  std::error_code error;
  if (!seen.insert(fs::canonical(folder, error)).second || error) return;
  std::vector<fs::path> inside;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (!it->path().filename().string().starts_with('.')) inside.push_back(it->path());
  std::sort(inside.begin(), inside.end());
  if (seen.size() > 1) std::erase(inside, fs::path(lora_file_of(folder.string())));  // the folder itself stands for it
  for (auto& path : inside) {
    const bool is_folder = fs::is_directory(path, error);
    if (is_folder ? is_lora_path(path.string()) : is_lora_suffix(path.extension())) found(path);
    if (is_folder && lora_parts_of(path.string()).empty()) walk(path, seen, found);
  }
}

// What the program that trained it called it.
std::string trained_as(const std::string& path) {
  if (fs::path(path).extension() != ".safetensors") return "";
  try {
    const auto metadata = io::open_checkpoint(path)->metadata();
    auto name = metadata.find("ss_output_name");
    return name == metadata.end() ? "" : name->second;
  } catch (const Error&) {
    return "";  // damaged: it is found by its file's name and refused there
  }
}

}  // namespace

std::string lora_name(const std::string& path) {
  std::error_code error;
  fs::path p = fs::absolute(path, error).lexically_normal();
  if (p.filename().empty()) p = p.parent_path();
  const bool is_folder = fs::is_directory(p, error);
  // The name that these programs give every file says nothing; their folder has one.
  if (!is_folder && (p.stem() == "adapter_model" || p.stem() == "pytorch_lora_weights"))
    return p.parent_path().filename().string();
  return (is_folder ? p.filename() : p.stem()).string();
}

bool is_lora_path(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(lora_file_of(path), error) || !lora_parts_of(path).empty();
}

LoraFolders::LoraFolders(std::vector<std::string> folders) : folders_(std::move(folders)) {
  for (auto& folder : folders_) {
    std::error_code error;
    SF_CHECK_AS(RuntimeError, fs::is_directory(folder, error), "lora: there is no folder '", folder, "'");
    std::set<fs::path> seen;
    walk(folder, seen, [&](const fs::path& path) {
      const bool is_folder = fs::is_directory(path, error);
      entries_.push_back({path.string(), path.lexically_relative(folder).string(),
                          (is_folder ? path.filename() : path.stem()).string(), path.filename().string()});
    });
  }
}

std::vector<std::string> LoraFolders::names() const {
  std::set<std::string> out;
  for (auto& entry : entries_) out.insert(entry.name);
  return {out.begin(), out.end()};
}

std::vector<std::string> LoraFolders::find(const std::string& name) const {
  std::vector<std::string> out;
  auto add = [&](const std::string& path) {
    std::error_code error;
    const bool there = std::any_of(out.begin(), out.end(), [&](auto& p) { return fs::equivalent(p, path, error); });
    if (!there) out.push_back(path);
  };
  const bool is_place = name.find('/') != name.npos;
  const std::string place = fs::path(name).lexically_normal().string();
  for (auto& entry : entries_) {
    const std::string cut = (fs::path(entry.place).parent_path() / entry.name).string();
    if (is_place ? place == entry.place || place == cut : name == entry.name || name == entry.file) add(entry.path);
  }
  if (out.empty() && !is_place && !name.empty())
    for (auto& entry : entries_)
      if (trained_as(entry.path) == name) add(entry.path);
  return out;
}

}  // namespace sf::models
