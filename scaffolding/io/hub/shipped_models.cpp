#include "scaffolding/io/hub/shipped_models.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

#include "scaffolding/core/env.h"
#include "scaffolding/core/error.h"
#include "scaffolding/io/hub/hub_cache.h"

namespace sf::io {

namespace fs = std::filesystem;

namespace {

struct Shipped {
  const char *name, *variable;  // which may hold another folder
};
constexpr Shipped kShipped[] = {{"emoji-128", "SF_MODEL"}, {"emoji-video", "SF_VIDEO_MODEL"}};  // by ShippedKind
// From the library's folder: a wheel or a build folder; lib/; lib/x86_64-linux-gnu/.
constexpr const char* kShares[] = {"share", "../share", "../../share"};

bool has_model(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / "model_index.json", ignored);
}

}  // namespace

bool is_shipped_model(const std::string& name) {
  return std::any_of(std::begin(kShipped), std::end(kShipped), [&](auto& model) { return name == model.name; });
}

std::vector<std::string> shipped_models() {
  std::vector<std::string> out;
  for (auto& model : kShipped) out.emplace_back(model.name);
  return out;
}

std::vector<std::string> shipped_model_places(const std::string& name) {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&is_shipped_model), &info) || !info.dli_fname) return {};
  std::error_code ignored;
  fs::path library = fs::canonical(info.dli_fname, ignored);
  std::vector<std::string> out;
  for (const char* share : kShares)
    out.push_back((library.parent_path() / share / "scaffolding/models" / name).lexically_normal().string());
  return out;
}

std::optional<std::string> find_shipped_model(const std::string& name) {
  for (auto& folder : shipped_model_places(name))
    if (has_model(folder)) return folder;
  return {};
}

std::string no_shipped_model(const std::string& name) {
  std::string looked;
  for (auto& folder : shipped_model_places(name)) looked += (looked.empty() ? "" : ", ") + folder;
  return "the model '" + name + "' that comes with Scaffolding is not there; looked in " + looked;
}

std::string default_model(ShippedKind kind) {
  const auto [name, variable] = kShipped[size_t(kind)];
  if (std::string chosen = env::text(variable); !chosen.empty()) {
    SF_CHECK(has_model(expand_user(chosen)), variable, ": there is no model_index.json in '", chosen, "'");
    return chosen;
  }
  SF_CHECK(find_shipped_model(name), "--model: none was named, and ", no_shipped_model(name), "; name one, or set ",
           variable);
  return name;
}

}  // namespace sf::io
