// Finds the libraries of engines, and explains why one is missing.
#include <dlfcn.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "scaffolding/core/env.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/version.h"
#include "scaffolding/distributed/device_engine.h"
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
// Built everywhere: it needs no headers, and finds NCCL at run time.
constexpr Known kNccl = {"nccl", "libscaffolding_nccl.so", "SF_NCCL_LIBRARY", "", ""};

template <class Library> struct Loaded {
  const Library* library = nullptr;
  std::string why;
};

std::string beside_this_library(const char* file) {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&engine_available), &info) && info.dli_fname)
    return (std::filesystem::path(info.dli_fname).parent_path() / file).string();
  return file;
}

template <class Library> Loaded<Library> load(const Known& known, const char* entry_name) {
  std::string path = env::text(known.variable);
  if (path.empty()) path = beside_this_library(known.file);
  bool packaged = *known.headers;
  std::error_code none;
  if (!std::filesystem::exists(path, none))
    return {nullptr, std::string(known.file) + " is not at " + path +
                         (packaged ? std::string("; build Scaffolding where ") + known.headers +
                                         " is installed (apt install " + known.headers + ")"
                                   : std::string("; build Scaffolding again")) +
                         ", or set " + known.variable};
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    return {nullptr, std::string(dlerror()) +
                         (packaged ? std::string("; install what it was built with (Debian 12: apt install ") +
                                         known.runtime + ")"
                                   : std::string()) +
                         ", or build Scaffolding again"};
  auto* entry = reinterpret_cast<const Library* (*)()>(dlsym(handle, entry_name));
  const Library* library = entry ? entry() : nullptr;
  if (!library || std::string_view(library->version) != version())
    return {nullptr, path + " is of another version than this library, " + version() + "; build both together"};
  return {library, ""};
}

const Loaded<EngineLibrary>& loaded(const Known& known) {
  static std::mutex mutex;
  static std::map<std::string, Loaded<EngineLibrary>> all;
  std::lock_guard lock(mutex);
  auto it = all.find(known.backend);
  if (it == all.end()) it = all.emplace(known.backend, load<EngineLibrary>(known, "scaffolding_engine_library")).first;
  return it->second;
}

const Loaded<DeviceEngineLibrary>& loaded_nccl() {
  static const auto library = load<DeviceEngineLibrary>(kNccl, "scaffolding_device_engine_library");
  return library;
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
  const auto& l = loaded(*k);
  if (!l.library && why_not) *why_not = l.why;
  return l.library;
}

void check_backend(const std::string& backend) {
  SF_CHECK(backend == "fake" || known(backend), "init_process_group: backend must be 'gloo', 'mpi' or 'fake', got '",
           backend, "'",
           backend == "tcp"    ? "; use 'gloo', which has taken its place"
           : backend == "nccl" ? "; for tensors of GPUs it stands beside one of those, as 'cpu:gloo,cuda:nccl'"
                               : "");
}

bool nccl_available(std::string* why_not) {
  const auto& l = loaded_nccl();
  const char* missing = l.library ? l.library->why_not() : l.why.c_str();
  if (missing && why_not) *why_not = missing;
  return !missing;
}

const DeviceEngineLibrary& nccl_library() {
  std::string why;
  SF_CHECK_AS(RuntimeError, nccl_available(&why), "backend 'nccl' is not available: ", why);
  return *loaded_nccl().library;
}

std::unique_ptr<Engine> make_engine(const std::string& backend, const EngineOptions& options) {
  check_backend(backend);
  if (backend == "fake") return make_fake_engine(options);
  const Known* k = known(backend);
  const auto& l = loaded(*k);
  SF_CHECK_AS(RuntimeError, l.library, "init_process_group: backend '", backend, "' is not available: ", l.why);
  return l.library->make(options);
}

}  // namespace sf::distributed
