#include "scaffolding/core/version.h"

namespace sf {

const char* version() { return SF_VERSION; }

std::string build_info() {
#if defined(__clang__)
  std::string compiler = "clang " __clang_version__;
#else
  std::string compiler = "g++ " __VERSION__;
#endif
  return compiler + ", " SF_BUILD_FACTS;
}

}  // namespace sf
