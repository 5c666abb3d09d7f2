// Finds libscaffolding_postgres.so, and explains why it is missing.
#include "scaffolding/server/jobs/postgres_library.h"

#include <dlfcn.h>

#include <filesystem>

#include "scaffolding/core/env.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/version.h"

namespace sf::server {

namespace {

constexpr const char* kFile = "libscaffolding_postgres.so";

// The core library's folder: the server's code is the program's own, which may lie elsewhere.
std::string beside_the_library() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&version), &info) && info.dli_fname)
    return (std::filesystem::path(info.dli_fname).parent_path() / kFile).string();
  return kFile;
}

const PostgresLibrary& library() {
  std::string path = env::text("SF_POSTGRES_LIBRARY");
  if (path.empty()) path = beside_the_library();
  std::error_code none;
  SF_CHECK_AS(RuntimeError, std::filesystem::exists(path, none), "--database: ", kFile, " is not at ", path,
              "; build Scaffolding where libpq's headers are (apt install libpq-dev), or set SF_POSTGRES_LIBRARY");
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  SF_CHECK_AS(RuntimeError, handle, "--database: ", dlerror(),
              "; install libpq (Debian 12: apt install libpq5), or build Scaffolding again");
  auto* entry =
      reinterpret_cast<decltype(&scaffolding_postgres_library)>(dlsym(handle, "scaffolding_postgres_library"));
  const PostgresLibrary* found = entry ? entry() : nullptr;
  SF_CHECK_AS(RuntimeError, found && std::string_view(found->version) == version(), "--database: ", path,
              " is of another version than this program, ", version(), "; build both together");
  return *found;
}

}  // namespace

std::unique_ptr<Database> open_postgres(const std::string& address) {
  static const PostgresLibrary& there = library();
  return there.open(address);
}

}  // namespace sf::server
