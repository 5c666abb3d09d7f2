#include "scaffolding/backend/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "scaffolding/core/env.h"
#include "scaffolding/core/error.h"

namespace sf::cuda {

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> folders_of(const std::string& list) {
  std::vector<fs::path> folders;
  for (size_t at = 0; at < list.size();) {
    size_t end = std::min(list.find(':', at), list.size());
    if (end > at) folders.emplace_back(list.substr(at, end - at));
    at = end + 1;
  }
  return folders;
}

fs::path folder_of(const void* address) {
  Dl_info info;
  return dladdr(address, &info) && info.dli_fname ? fs::path(info.dli_fname).parent_path() : fs::path();
}

// site-packages/nvidia/<package>/lib, where this library lies in site-packages/scaffolding.
std::vector<fs::path> pip_folders(const fs::path& own) {
  std::vector<fs::path> folders;
  std::error_code none;
  for (auto& package : fs::directory_iterator(own.parent_path() / "nvidia", none))
    folders.push_back(package.path() / "lib");
  return folders;
}

std::vector<fs::path> toolkit_folders() {
  std::vector<fs::path> folders;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* home = std::getenv(name); home && *home) folders.push_back(fs::path(home) / "lib64");
  folders.emplace_back("/usr/local/cuda/lib64");
  return folders;
}

}  // namespace

Library::Library(const char* file, const void* neighbour, const char* package) : package_(package) {
  std::string looked;
  std::vector<fs::path> tried;
  auto try_path = [&](const fs::path& path) {
    if (handle_ || std::find(tried.begin(), tried.end(), path) != tried.end()) return;
    tried.push_back(path);
    if (path.has_parent_path()) {
      looked += (looked.empty() ? "" : ", ") + path.parent_path().string();
      std::error_code none;
      if (!fs::exists(path, none)) return;
    } else {
      looked += std::string(looked.empty() ? "" : ", ") + "the loader's path";
    }
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_) path_ = path.string();
    else if (path.has_parent_path()) looked += std::string(" (") + dlerror() + ")";
  };
  fs::path own = folder_of(neighbour);
  for (auto& folder : folders_of(env::text("SF_CUDA_LIBRARY_PATH"))) try_path(folder / file);
  if (!own.empty()) try_path(own / file);
  try_path(file);
  for (auto& folder : pip_folders(own)) try_path(folder / file);
  for (auto& folder : toolkit_folders()) try_path(folder / file);
  SF_CHECK_AS(RuntimeError, handle_, "cuda: ", file, " is missing: it was looked for in ", looked,
              ". Install it (pip install ", package, ") or name its folder in SF_CUDA_LIBRARY_PATH");
}

void* Library::symbol(const char* name) const {
  void* f = dlsym(handle_, name);
  SF_CHECK_AS(RuntimeError, f, "cuda: ", path_, " has no ", name,
              ": it is of another version than this build was made for. Install that one (pip install ", package_,
              ") or name its folder in SF_CUDA_LIBRARY_PATH");
  return f;
}

}  // namespace sf::cuda
