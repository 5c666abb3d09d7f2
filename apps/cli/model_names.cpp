#include "apps/cli/model_names.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <set>

#include "scaffolding/core/error.h"
#include "scaffolding/core/printable.h"
#include "scaffolding/io/hub/hub_cache.h"
#include "scaffolding/io/hub/model_folder.h"
#include "scaffolding/io/hub/shipped_models.h"
#include "scaffolding/nn/closest.h"

namespace sf::cli {

namespace fs = std::filesystem;
using io::LocalModel;
using io::ModelUse;

namespace {

constexpr size_t kListed = 8, kNearest = 3;  // that an error names

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  return text;
}

// Of those for the use, or else for none in particular, or else all.
std::vector<LocalModel> preferred(const std::vector<LocalModel>& found, ModelUse use) {
  for (const ModelUse wanted : {use, ModelUse::Any}) {
    std::vector<LocalModel> out;
    std::copy_if(found.begin(), found.end(), std::back_inserter(out), [&](auto& m) { return m.use == wanted; });
    if (!out.empty()) return out;
  }
  return found;
}

// "; did you mean 'a' or 'b'?", or "".
std::string nearest(const std::string& name, const std::vector<LocalModel>& models) {
  std::set<std::string> names;
  for (auto& model : models) names.insert(io::short_name(model)), names.insert(model.repository ? model.name : "");
  names.erase("");
  const std::string whole = lower(name), wanted = lower(io::short_name({.path = "", .name = name}));
  std::vector<std::string> small, out;
  std::map<std::string, std::string> spelled;
  for (auto& n : names)
    if (spelled.emplace(lower(n), n).second) small.push_back(lower(n));
  auto take = [&](const std::string& n) {
    out.push_back(spelled[n]);
    std::erase(small, n);
  };
  while (out.size() < kNearest) {
    std::string one = nn::closest(whole, small);
    if (one.empty()) one = nn::closest(wanted, small);
    if (one.empty()) break;
    take(one);
  }
  for (auto& n : std::vector<std::string>(small))
    if (out.size() < kNearest && wanted.size() > 2 && n.find(wanted) != n.npos) take(n);
  std::string text;
  for (size_t i = 0; i < out.size(); ++i)
    text += (i == 0 ? "'" : i + 1 == out.size() ? " or '" : ", '") + printable(out[i]) + "'";
  return out.empty() ? "" : "; did you mean " + text + "?";
}

}  // namespace

std::vector<LocalModel> known_models() {
  std::vector<LocalModel> out;
  for (auto& name : io::shipped_models())
    if (auto folder = io::find_shipped_model(name))
      out.push_back({*folder, name, "scaffolding", LocalModel::Pipeline, ModelUse::Any, false});
  auto found = io::local_models(io::model_places());
  out.insert(out.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  return out;
}

std::string located_model(const std::string& option, const std::string& name, ModelUse use) {
  std::error_code error;
  if (fs::exists(name, error) || io::is_shipped_model(name)) return name;
  if (const std::string home = io::expand_user(name); name.starts_with('~') && fs::exists(home, error)) return home;
  const bool is_path = name.starts_with('/') || name.starts_with('.') || name.starts_with('~');
  const bool on_hub = !is_path && std::count(name.begin(), name.end(), '/') == 1 && io::is_repo_id(name);
  if (is_path && use == ModelUse::Model) return name;  // which load_model refuses
  SF_CHECK(!is_path, option, ": there is no '", name, "'");
  if (on_hub && !io::whole_snapshot(name).empty()) return name;
  const std::vector<LocalModel> models = known_models();
  const std::vector<LocalModel> found = preferred(io::models_called(name, models), use);
  if (found.size() == 1) {
    const std::string path = found[0].repository ? found[0].name : found[0].path;
    if (path == name) return name;
    std::cerr << "scaffolding: " << option << " " << printable(name) << " is " << printable(path) << "\n";
    return path;
  }
  if (!found.empty()) {
    std::string listed;
    for (size_t i = 0; i < std::min(kListed, found.size()); ++i)
      listed += (i ? ", '" : "'") + printable(found[i].path) + "'";
    fail(option, ": ", found.size(), " models have the name '", name, "': ", listed,
         found.size() > kListed ? ", ..." : "", "; say which by its path, or with its folder or suffix");
  }
  if (on_hub) return name;
  const std::string hint = nearest(name, models);
  fail(option, ": there is no '", name, "', neither a path nor a model in the folders that are looked through", hint,
       hint.empty() ? "; " : " ", "'scaffolding models' lists them, SF_MODELS names other folders");
}

std::string nearest_models(const std::string& name) { return nearest(name, known_models()); }

std::string loaded_from(const std::string& located) {
  std::error_code error;
  if (fs::exists(located, error) || io::is_shipped_model(located)) return located;
  const std::string whole = io::whole_snapshot(located);
  return whole.empty() ? located : whole;
}

std::string vae_loaded_from(const std::string& located) {
  std::error_code error;
  const std::string path = loaded_from(located);
  if (fs::exists(path, error)) return path;
  if (io::is_shipped_model(path)) return io::resolve_model_folder(path);
  try {
    return io::resolve_model_folder(path, {.subfolder = "vae"});
  } catch (const ValueError&) {  // the repository is the autoencoder's own
    return io::resolve_model_folder(path);
  }
}

}  // namespace sf::cli
