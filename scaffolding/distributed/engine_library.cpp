// Finds the libraries of engines, and explains why one is missing.
#include <dlfcn.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "scaffolding/core/env.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/version.h"
#include "scaffolding/distributed/engine.h"

namespace sf::distributed {

namespace {

struct Known {
  const char *backend, *file, *variable, *headers, *runtime;
};
constexpr Known kKnown[] = {
    {"gloo", "libscaffolding_gloo.so", "SF_GLOO_LIBRARY", "libgloo-dev", "libgloo-dev"},
    {"mpi", "libscaffolding_mpi.so", "SF_MPI_LIBRARY", "libopenmpi-dev", "libopenmpi3 openmpi-bin"},
};

struct Loaded {
  const EngineLibrary* library = nullptr;
  std::string why;
};

std::string beside_this_library(const char* file) {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&engine_available), &info) && info.dli_fname)
    return (std::filesystem::path(info.dli_fname).parent_path() / file).string();
  return file;
}

Loaded load(const Known& known) {
  std::string path = env::text(known.variable);
  if (path.empty()) path = beside_this_library(known.file);
  std::error_code none;
  if (!std::filesystem::exists(path, none))
    return {nullptr, std::string(known.file) + " is not at " + path + "; build Scaffolding where " + known.headers +
                         " is installed (apt install " + known.headers + "), or set " + known.variable};
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    return {nullptr, std::string(dlerror()) + "; install what it was built with (Debian 12: apt install " +
                         known.runtime + "), or build Scaffolding again"};
  auto* entry = reinterpret_cast<decltype(&scaffolding_engine_library)>(dlsym(handle, "scaffolding_engine_library"));
  const EngineLibrary* library = entry ? entry() : nullptr;
  if (!library || std::string_view(library->version) != version())
    return {nullptr, path + " is of another version than this library, " + version() + "; build both together"};
  return {library, ""};
}

const Loaded& loaded(const Known& known) {
  static std::mutex mutex;
  static std::map<std::string, Loaded> all;
  std::lock_guard lock(mutex);
  auto it = all.find(known.backend);
  if (it == all.end()) it = all.emplace(known.backend, load(known)).first;
  return it->second;
}

const Known* known(const std::string& backend) {
  for (auto& k : kKnown)
    if (backend == k.backend) return &k;
  return nullptr;
}

}  // namespace

bool engine_available(const std::string& backend, std::string* why_not) {
  if (backend == "fake") return true;
  const Known* k = known(backend);
  if (!k) return false;
  const Loaded& l = loaded(*k);
  if (!l.library && why_not) *why_not = l.why;
  return l.library;
}

void check_backend(const std::string& backend) {
  SF_CHECK(backend == "fake" || known(backend), "init_process_group: backend must be 'gloo', 'mpi' or 'fake', got '",
           backend, "'",
           backend == "tcp"    ? "; use 'gloo', which has taken its place"
           : backend == "nccl" ? "; tensors of GPUs travel by .cpu() and 'gloo'"
                               : "");
}

std::unique_ptr<Engine> make_engine(const std::string& backend, const EngineOptions& options) {
  check_backend(backend);
  if (backend == "fake") return make_fake_engine(options);
  const Known* k = known(backend);
  const Loaded& l = loaded(*k);
  SF_CHECK_AS(RuntimeError, l.library, "init_process_group: backend '", backend, "' is not available: ", l.why);
  return l.library->make(options);
}

}  // namespace sf::distributed
