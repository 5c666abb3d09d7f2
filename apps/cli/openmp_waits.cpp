#include "apps/cli/openmp_waits.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>

#include "scaffolding/core/spin_count.h"

namespace sf::cli {

static constexpr char kSpins[] = "GOMP_SPINCOUNT", kPolicy[] = "OMP_WAIT_POLICY";

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SF_BEFORE_LIBRARIES

// "NAME=" of the environment's entry.
static bool is_entry_of(const char* entry, const char* name) {
  const size_t length = strlen(name);
  return strncmp(entry, name, length) == 0 && entry[length] == '=';
}

static char g_spins[sizeof kSpins + 24];           // "GOMP_SPINCOUNT=4000"
static char **g_slot = nullptr, *g_was = nullptr;  // where that stands, and what stood there

// Called by the loader before the constructors of any library, libc's too: getenv and setenv do not work yet, and the
// array cannot grow. An entry that no constructor reads lends its place until main.
static void before_libraries(int, char**, char** environment) {
  char** lent = nullptr;
  for (char** entry = environment; *entry; ++entry) {
    if (is_entry_of(*entry, kSpins) || is_entry_of(*entry, kPolicy)) return;
    for (const char* name : {"_", "OLDPWD", "SHLVL", "PWD"})
      if (is_entry_of(*entry, name)) lent = entry;
  }
  if (!lent) return;
  memcpy(g_spins, kSpins, sizeof kSpins - 1);
  g_spins[sizeof kSpins - 1] = '=';
  *std::to_chars(g_spins + sizeof kSpins, g_spins + sizeof g_spins - 1, spin_count()).ptr = 0;
  g_slot = lent, g_was = *lent, *lent = g_spins;
}

__attribute__((section(".preinit_array"), used)) static void (*g_before)(int, char**, char**) = before_libraries;
#endif

void wait_sparingly(char** argv) {
#ifdef SF_BEFORE_LIBRARIES
  if (g_slot) {
    const char* value = g_spins + sizeof kSpins;
    for (char** entry = environ; *entry; ++entry)  // a constructor's setenv has copied the array
      if (*entry == g_spins) *entry = g_was;
    setenv(kSpins, value, 1);
    return;
  }
#endif
  if (std::getenv(kSpins) || std::getenv(kPolicy)) return;
  setenv(kSpins, std::to_string(spin_count()).c_str(), 1);
  // By its path, so that the process keeps its name; both return where there is no /proc: then it stays as it is.
  char path[4096];
  if (ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1); n > 0) {
    path[n] = 0;
    execv(path, argv);
  }
  execv("/proc/self/exe", argv);  // the file was replaced or removed
}

}  // namespace sf::cli
