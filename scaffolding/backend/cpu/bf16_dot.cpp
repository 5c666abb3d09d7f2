#include "scaffolding/backend/cpu/bf16_dot.h"

#include "scaffolding/backend/cpu/amx.h"
#include "scaffolding/backend/cpu/isa.h"
#include "scaffolding/core/env.h"
#include "scaffolding/core/error.h"

namespace sf::cpu {

static bool is_intel() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("intel");
#else
  return false;
#endif
}

bool bf16_dot_pays() {
  static const bool pays = [] {
    const std::string wanted = env::text("SF_BF16_DOT");
    SF_CHECK(wanted.empty() || wanted == "0" || wanted == "1", "SF_BF16_DOT: must be 0 or 1, got '", wanted, "'");
    return has(Isa::avx512bf16) && (wanted.empty() ? !is_intel() : wanted == "1");
  }();
  return pays;
}

bool bf16_library_pays() {
  static const bool pays = has(Isa::avx512bf16) && (bf16_dot_pays() || has_tiles());
  return pays;
}

}  // namespace sf::cpu
