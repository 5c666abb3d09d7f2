#include "scaffolding/io/hub/local_models.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "scaffolding/core/error.h"
#include "scaffolding/io/config.h"
#include "scaffolding/io/hub/hub_cache.h"

namespace sf::io {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMostEntries = 1'000'000;  // of all folders
constexpr const char* kSuffixes[] = {".safetensors", ".ckpt", ".pt", ".pth", ".bin", ".gguf", ".sft"};

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  return text;
}

// Without a suffix of weights.
std::string stem_of(const std::string& name) {
  const std::string small = lower(name);
  for (std::string_view suffix : kSuffixes)
    if (small.size() > suffix.size() && small.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  return name;
}

bool has_suffix(const std::string& name) { return stem_of(name).size() < name.size(); }

// One folder's names, sorted; links are followed.
struct Listing {
  std::vector<std::string> files, folders;
  bool has(std::string_view name) const { return std::binary_search(files.begin(), files.end(), name); }
  bool any_starts(std::string_view begin) const {
    auto at = std::lower_bound(files.begin(), files.end(), begin);
    return at != files.end() && at->starts_with(begin);
  }
};

class Walk {
 public:
  // Nothing where the folder cannot be read or was seen.
  bool list(const std::string& folder, Listing& out) {
    std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(folder.c_str()), closedir);
    struct stat s;
    if (!dir || fstat(dirfd(dir.get()), &s) != 0 || !seen_.insert({s.st_dev, s.st_ino}).second) return false;
    while (const dirent* e = readdir(dir.get())) {
      if (e->d_name[0] == '.') continue;
      if (++entries_ > kMostEntries) break;
      unsigned char type = e->d_type;
      if (type == DT_LNK || type == DT_UNKNOWN) {
        if (fstatat(dirfd(dir.get()), e->d_name, &s, 0) != 0) continue;
        type = S_ISREG(s.st_mode) ? DT_REG : S_ISDIR(s.st_mode) ? DT_DIR : DT_UNKNOWN;
      }
      if (type == DT_REG) out.files.emplace_back(e->d_name);
      if (type == DT_DIR) out.folders.emplace_back(e->d_name);
    }
    std::sort(out.files.begin(), out.files.end());
    std::sort(out.folders.begin(), out.folders.end());
    return true;
  }

  // name: of the folder below its place; "" for the place itself.
  void folder(const std::string& path, const std::string& name, const std::string& program, ModelUse use, int depth) {
    Listing inside;
    if (!list(path, inside)) return;
    auto add = [&](LocalModel::Form form, const std::string& at, const std::string& called) {
      found.push_back({at, called, program, form, use, false});
    };
    const std::string shown = name.empty() ? fs::path(path).filename().string() : name;
    if (inside.has("model_index.json")) return add(LocalModel::Pipeline, path, shown);
    const bool config = inside.has("config.json") || inside.has("adapter_config.json");
    const bool weights = inside.any_starts("diffusion_pytorch_model") || inside.any_starts("model.safetensors") ||
                         inside.any_starts("pytorch_model") || inside.any_starts("adapter_model");
    if (config && weights && !name.empty()) return add(LocalModel::Part, path, shown);
    auto below = [&](const std::string& child) { return name.empty() ? child : name + "/" + child; };
    for (auto& file : inside.files)
      if (has_suffix(file)) add(LocalModel::File, path + "/" + file, below(file));
    if (depth >= kMostModelDepth) return;
    for (auto& child : inside.folders) {
      const ModelUse said = use_of_folder(child);
      folder(path + "/" + child, below(child), program, said == ModelUse::Any ? use : said, depth + 1);
    }
  }

  void hub_cache(const ModelPlace& place) {
    Listing repositories;
    if (!list(place.folder, repositories)) return;
    for (auto& folder_name : repositories.folders) {
      constexpr std::string_view kModels = "models--";
      if (!folder_name.starts_with(kModels)) continue;
      std::string id = folder_name.substr(kModels.size());
      if (const size_t dashes = id.find("--"); dashes != id.npos) id.replace(dashes, 2, "/");
      if (!is_repo_id(id)) continue;
      const sf::io::HubCache cache(place.folder, id);
      const std::string commit = cache.commit_of("main");
      if (!is_commit(commit)) continue;
      repository(cache.snapshot(commit), id, place.program);
    }
  }

  std::vector<LocalModel> found;

 private:
  void repository(const std::string& snapshot, const std::string& id, const std::string& program) {
    Listing inside;
    if (!list(snapshot, inside)) return;
    const bool pipeline = inside.has("model_index.json");
    const bool part = inside.has("config.json") &&
                      (inside.any_starts("diffusion_pytorch_model") || inside.any_starts("model.safetensors"));
    if (pipeline) found.push_back({snapshot, id, program, LocalModel::Pipeline, ModelUse::Any, true});
    if (part) found.push_back({snapshot, id, program, LocalModel::Part, ModelUse::Any, true});
    for (auto& file : inside.files)
      if (has_suffix(file) && !(part && file.find("model") != file.npos))
        found.push_back({snapshot + "/" + file, id + "/" + file, program, LocalModel::File, ModelUse::Any, false});
  }

  std::set<std::pair<dev_t, ino_t>> seen_;
  size_t entries_ = 0;
};

// `text` ends with `end`, at its begin or behind a '/'.
bool ends_with_parts(std::string_view text, std::string_view end) {
  return text.ends_with(end) && (text.size() == end.size() || text[text.size() - end.size() - 1] == '/');
}

bool is_called(std::string_view name, const std::string& full) {
  return ends_with_parts(full, name) || ends_with_parts(stem_of(full), name);
}

}  // namespace

std::vector<LocalModel> local_models(const std::vector<ModelPlace>& places) {
  Walk walk;
  for (auto& place : places) {
    if (place.kind == ModelPlace::HubCache) walk.hub_cache(place);
    else walk.folder(place.folder, "", place.program, use_of_folder(fs::path(place.folder).filename()), 0);
  }
  return std::move(walk.found);
}

std::string short_name(const LocalModel& model) { return stem_of(model.name.substr(model.name.rfind('/') + 1)); }

std::vector<LocalModel> models_called(const std::string& given, const std::vector<LocalModel>& models) {
  std::string name = given;
  while (name.starts_with("./")) name.erase(0, 2);
  while (name.ends_with('/')) name.pop_back();
  if (name.empty()) return {};
  const std::string small = lower(name);
  std::vector<LocalModel> found;
  for (auto& model : models)
    if (is_called(small, lower(model.name))) found.push_back(model);
  const bool exact = std::any_of(found.begin(), found.end(), [&](auto& m) { return is_called(name, m.name); });
  if (exact) std::erase_if(found, [&](auto& m) { return !is_called(name, m.name); });
  std::vector<LocalModel> out;
  std::set<std::pair<dev_t, ino_t>> seen;
  for (auto& model : found) {
    struct stat s;
    if (stat(model.path.c_str(), &s) == 0 && seen.insert({s.st_dev, s.st_ino}).second) out.push_back(std::move(model));
  }
  return out;
}

// ---- snapshots

namespace {

constexpr uint64_t kMostIndex = 16 << 20;  // bytes

bool is_weights(const std::string& file) {  // not of a variant
  for (const char* stem : {"diffusion_pytorch_model", "model", "pytorch_model"})
    for (const char* end : {".safetensors", ".bin", ".safetensors.index.json", ".bin.index.json"})
      if (file == std::string(stem) + end) return true;
  return false;
}

Object index_in(const fs::path& path) {
  std::error_code error;
  SF_CHECK(fs::file_size(path, error) <= kMostIndex && !error, path.string(), ": is too large for an index");
  return read_config_file(path.string());
}

// Whether a folder is a network with its weights, or none: a scheduler, a tokenizer. Every shard of an index is there,
// and no link leads to what is not.
enum class Folder : uint8_t { Network, Other, Incomplete };
Folder look_into(const fs::path& folder) {
  std::error_code error;
  bool weights = false, config = false, any = false;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (fs::is_directory(it->path(), error)) continue;
    const std::string file = it->path().filename().string();
    if (!fs::is_regular_file(it->path(), error)) return Folder::Incomplete;
    any = true;
    weights = weights || is_weights(file);
    config = config || file == "config.json";
    if (!file.ends_with(".index.json")) continue;
    const Object shards = index_in(it->path());
    const Object* map = shards.find("weight_map");
    if (!map || !map->is_dict()) return Folder::Incomplete;
    for (size_t k = 1; k < map->items().size(); k += 2) {
      const Object& shard = map->items()[k];
      if (!shard.is(Object::String) || shard.text().find('/') != std::string::npos ||
          !fs::is_regular_file(folder / shard.text(), error))
        return Folder::Incomplete;
    }
  }
  if (!any || (config && !weights)) return Folder::Incomplete;
  return config ? Folder::Network : Folder::Other;
}

bool is_whole(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_regular_file(folder / "model_index.json", error)) return look_into(folder) == Folder::Network;
  const Object index = index_in(folder / "model_index.json");
  for (size_t i = 0; i + 1 < index.items().size(); i += 2) {
    const Object& row = index.items()[i + 1];
    if (!row.is_sequence() || row.items().size() != 2 || !row.items()[1].is(Object::String)) continue;
    const std::string& name = index.items()[i].text();
    if (!is_repo_id(name) || look_into(folder / name) == Folder::Incomplete) return false;  // as plain as a name there
  }
  return true;
}

}  // namespace

std::string whole_snapshot(const std::string& repo_id) {
  if (!is_repo_id(repo_id)) return "";
  const HubCache cache(default_hub_cache(), repo_id);
  const std::string commit = cache.commit_of("main");
  if (!is_commit(commit)) return "";
  const std::string folder = cache.snapshot(commit);
  try {
    return is_whole(folder) ? folder : "";
  } catch (const Error&) {
    return "";  // damaged: a download mends it
  }
}

}  // namespace sf::io
