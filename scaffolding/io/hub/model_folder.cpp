#include "scaffolding/io/hub/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "scaffolding/io/file.h"
#include "scaffolding/io/hub/shipped_models.h"
#include "scaffolding/io/json.h"

namespace sf::io {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPrefixes[] = {"diffusion_pytorch_model", "pytorch_model", "model", "weights"};
constexpr const char* kSuffixes[] = {"bin", "safetensors", "onnx", "pb"};

std::string folder_of(const std::string& path) {
  return path.find('/') == std::string::npos ? "" : path.substr(0, path.rfind('/'));
}
std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }
bool ends_with(const std::string& s, const std::string& end) {
  return s.size() >= end.size() && s.compare(s.size() - end.size(), end.size(), end) == 0;
}

// "-00001-of-00002" at i: the position after it, else i.
size_t after_shard(const std::string& s, size_t i) {
  const char* form = "-ddddd-of-ddddd";
  for (size_t k = 0; form[k]; ++k)
    if (i + k >= s.size() || (form[k] == 'd' ? s[i + k] < '0' || s[i + k] > '9' : s[i + k] != form[k])) return i;
  return i + 15;
}

// What a weights file's name says: diffusion_pytorch_model.fp16-00001-of-00002.safetensors,
// model.safetensors.index.fp16.json.
bool is_weights(const std::string& name, const std::string& variant) {
  for (std::string prefix : kPrefixes) {
    if (!variant.empty()) prefix += "." + variant;
    if (name.rfind(prefix, 0) != 0) continue;
    size_t at = after_shard(name, prefix.size());
    for (const char* suffix : kSuffixes)
      if (name.substr(at) == std::string(".") + suffix) return true;
  }
  return false;
}
bool is_index(const std::string& name, const std::string& variant, bool legacy) {
  std::string end = variant.empty() ? ".index.json"
                    : legacy        ? "." + variant + ".index.json"
                                    : ".index." + variant + ".json";
  for (const char* prefix : kPrefixes)
    for (const char* suffix : kSuffixes)
      if (name == std::string(prefix) + "." + suffix + end) return true;
  return false;
}
// Names of before diffusers 0.28: model-00001-of-00002.fp16.safetensors.
bool is_legacy_shard(const std::string& name, const std::string& variant) {
  size_t at = name.find("." + variant + ".");
  if (variant.empty() || at == std::string::npos || at < 15 || after_shard(name, at - 15) != at) return false;
  std::string suffix = name.substr(at + variant.size() + 2);
  return !suffix.empty() && std::all_of(suffix.begin(), suffix.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

bool has_weights_suffix(const std::string& path) {
  return std::any_of(std::begin(kSuffixes), std::end(kSuffixes), [&](const char* s) { return ends_with(path, s); });
}

using Folders = std::map<std::string, std::vector<std::string>>;  // folder: names in it
Folders grouped(const std::vector<std::string>& files) {
  Folders out;
  for (auto& f : files) out[folder_of(f)].push_back(name_of(f));
  return out;
}

// Whether each folder's files, those of the variant where it has some, include safetensors.
bool all_have_safetensors(const Folders& folders, const std::string& variant) {
  return std::all_of(folders.begin(), folders.end(), [&](auto& folder) {
    std::vector<std::string> found;
    for (const std::string& v : {variant, std::string()}) {
      if (!found.empty()) break;
      for (auto& name : folder.second)
        if (is_weights(name, v)) found.push_back(name);
    }
    return std::any_of(found.begin(), found.end(), [](auto& n) { return ends_with(n, ".safetensors"); });
  });
}

// Weights to load and their indices: in each folder the variant's where there are any, else the plain ones.
std::vector<std::string> chosen_weights(const Folders& folders, const ModelFolderOptions& options, bool safetensors) {
  std::vector<std::string> out, present;
  const std::string& variant = options.variant;
  bool any_variant = false;
  for (auto& [folder, names] : folders) {
    std::vector<std::string> plain, current, legacy;
    for (auto& name : names) {
      const char* other = safetensors ? "bin" : "safetensors";
      std::string stem = name.substr(0, name.find(".index"));  // the index of what is not loaded is not needed either
      std::string path = folder.empty() ? name : folder + "/" + name;
      if (has_weights_suffix(name)) present.push_back(path);
      if (ends_with(stem, other) || ends_with(name, "msgpack") || ends_with(name, "onnx") || ends_with(name, "pb"))
        continue;
      if (is_weights(name, "") || is_index(name, "", false)) plain.push_back(path);
      if (!variant.empty() && (is_weights(name, variant) || is_index(name, variant, false))) current.push_back(path);
      if (!variant.empty() && (is_legacy_shard(name, variant) || is_index(name, variant, true))) legacy.push_back(path);
    }
    auto& from = !current.empty() ? current : !legacy.empty() ? legacy : plain;
    any_variant |= &from != &plain;
    out.insert(out.end(), from.begin(), from.end());
  }
  if (!variant.empty() && !any_variant) {
    std::string have;
    for (size_t i = 0; i < std::min<size_t>(4, present.size()); ++i) have += (i ? ", " : "") + present[i];
    fail("from_pretrained: there are no weights of variant '", variant, "'; there are ",
         have.empty() ? "none at all" : have);
  }
  return out;
}

bool takes_safetensors(const Folders& weights, const ModelFolderOptions& options) {
  bool all = all_have_safetensors(weights, options.variant);
  if (options.use_safetensors == true) {
    std::string where;
    for (auto& [folder, names] : weights)
      if (!all_have_safetensors({{folder, names}}, options.variant))
        where += (where.empty() ? "" : ", ") + (folder.empty() ? "the repository" : folder);
    SF_CHECK(all, "from_pretrained: use_safetensors is set, but there are none in ", where);
  }
  return all && options.use_safetensors != false;
}

std::string escaped(const std::string& path) {
  std::string out;
  for (char c : path) out += c == '*' || c == '?' || c == '[' ? std::string("[") + c + "]" : std::string(1, c);
  return out;
}

// The folders of a pipeline: the entries of model_index.json that name a library and a class.
std::vector<std::string> component_folders(const std::string& model_index) {
  Bytes file = Bytes::read(model_index);
  auto json = parse_json({file.chars(), file.size});
  SF_CHECK(json.is_object(), model_index, ": is no JSON object");
  std::vector<std::string> out;
  for (auto& [name, value] : json.items())
    if (value.is_array() && value.size() == 2 && value[0].is_string() && name != "_class_name") out.push_back(name);
  return out;
}

}  // namespace

std::vector<std::string> pipeline_files(const std::vector<std::string>& files, const std::vector<std::string>& folders,
                                        const ModelFolderOptions& options) {
  auto is_in = [](const std::vector<std::string>& list, const std::string& s) {
    return std::find(list.begin(), list.end(), s) != list.end();
  };
  Folders weights;
  for (auto& [folder, names] : grouped(files))
    if (is_in(folders, folder) && !is_in(options.passed_components, folder) &&
        std::any_of(names.begin(), names.end(), has_weights_suffix))
      weights[folder] = names;
  std::vector<std::string> out = chosen_weights(weights, options, takes_safetensors(weights, options));
  for (auto& f : files) {
    std::string folder = folder_of(f), top = f.substr(0, f.find('/'));
    bool root = f == "model_index.json" || f == "config.json" || f == "scheduler_config.json";
    bool config = weights.count(folder) && name_of(f) == "config.json";
    // a tokenizer, a scheduler
    bool no_model =
        is_in(folders, top) && !folder.empty() && !weights.count(top) && !is_in(options.passed_components, top);
    if (root || config || no_model) out.push_back(f);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::vector<std::string> component_files(const std::vector<std::string>& files, const ModelFolderOptions& options) {
  Folders all = grouped(files), weights;
  auto found = all.find(options.subfolder);
  if (found == all.end()) {
    std::string have;
    for (auto& [folder, names] : all) have += folder.empty() ? "" : (have.empty() ? "" : ", ") + folder;
    fail("from_pretrained: there is no folder '", options.subfolder, "'; there are ", have.empty() ? "none" : have);
  }
  std::vector<std::string> out;
  if (std::any_of(found->second.begin(), found->second.end(), has_weights_suffix)) {
    weights.insert(*found);
    out = chosen_weights(weights, options, takes_safetensors(weights, options));
  }
  for (auto& name : found->second)  // configs and vocabularies; indices were chosen with the weights
    if ((ends_with(name, ".json") || ends_with(name, ".txt") || ends_with(name, ".model")) &&
        name.find(".index.") == std::string::npos)
      out.push_back(options.subfolder.empty() ? name : options.subfolder + "/" + name);
  return out;
}

std::string resolve_model_file(const std::string& path_or_link, const HubOptions& options) {
  std::error_code ignored;
  std::string local = expand_user(path_or_link);
  if (fs::exists(local, ignored)) return local;
  std::string rest = path_or_link, endpoint = options.endpoint.empty() ? environment("HF_ENDPOINT") : options.endpoint;
  for (const std::string& prefix :
       {endpoint + "/", std::string("https://huggingface.co/"), std::string("https://hf.co/"),
        std::string("huggingface.co/"), std::string("hf.co/")})
    if (prefix.size() > 1 && rest.size() == path_or_link.size() && rest.rfind(prefix, 0) == 0)
      rest = rest.substr(prefix.size());
  rest = rest.substr(0, rest.find('?'));  // ?download=true
  size_t first = rest.find('/'), second = first == std::string::npos ? first : rest.find('/', first + 1);
  std::string repo = rest.substr(0, second), file = second == std::string::npos ? "" : rest.substr(second + 1);
  HubOptions hub = options;
  for (const char* page : {"blob/", "resolve/"})
    if (size_t slash = file.find('/', std::string(page).size());
        file.rfind(page, 0) == 0 && slash != std::string::npos) {
      hub.revision = file.substr(std::string(page).size(), slash - std::string(page).size());
      file = file.substr(slash + 1);
      break;
    }
  SF_CHECK(is_repo_id(repo) && first != std::string::npos && !file.empty(), "from_single_file: '", path_or_link,
           "' is neither a file nor one of a repository, as organisation/name/file or "
           "https://huggingface.co/organisation/name/blob/main/file");
  return hub_download(repo, file, hub);
}

std::string resolve_model_folder(const std::string& name_or_path, const ModelFolderOptions& options) {
  std::error_code ignored;
  std::string local = expand_user(name_or_path), below = options.subfolder.empty() ? "" : "/" + options.subfolder;
  if (!fs::is_directory(local, ignored) && is_shipped_model(name_or_path)) {
    auto shipped = find_shipped_model(name_or_path);
    SF_CHECK(shipped, "from_pretrained: ", no_shipped_model(name_or_path));
    local = *shipped;
  }
  if (fs::is_directory(local, ignored)) {
    SF_CHECK(fs::is_directory(local + below, ignored), "from_pretrained: ", local, " has no folder '",
             options.subfolder, "'");
    return local + below;
  }
  SF_CHECK(is_repo_id(name_or_path), "from_pretrained: '", name_or_path,
           "' is neither a folder nor a repository called 'organisation/name'");
  if (!options.subfolder.empty()) check_repo_path(options.subfolder);
  HubOptions hub = options.hub;
  RepoListing listing;
  try {
    listing = list_repo_files(name_or_path, hub);
  } catch (const HubError& e) {
    if (e.reason == HubError::Missing || e.reason == HubError::Broken) throw;
    // Without a list: what an earlier download left, if anything; its own error names the folder.
    hub.local_files_only = true;
    hub.allow_patterns = hub.ignore_patterns = {};
    try {
      return snapshot_download(name_or_path, hub) + below;
    } catch (const HubError&) {
      throw HubError(e);
    }
  }
  hub.revision = listing.commit;
  std::vector<std::string> files;
  for (auto& f : listing.files) files.push_back(f.path);
  bool pipeline = options.subfolder.empty() && std::count(files.begin(), files.end(), "model_index.json") > 0;
  std::vector<std::string> chosen =
      pipeline ? pipeline_files(files, component_folders(hub_download(name_or_path, "model_index.json", hub)), options)
               : component_files(files, options);
  SF_CHECK(!chosen.empty(), "from_pretrained: ", name_or_path, " has no file that a model is loaded from");
  hub.allow_patterns.clear();
  hub.ignore_patterns.clear();
  for (auto& f : chosen) hub.allow_patterns.push_back(escaped(f));
  return snapshot_download(name_or_path, hub) + below;
}

}  // namespace sf::io
