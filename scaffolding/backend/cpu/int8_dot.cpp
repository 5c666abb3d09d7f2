#include "scaffolding/backend/cpu/int8_dot.h"

#include "scaffolding/backend/cpu/isa.h"
#include "scaffolding/core/env.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace sf::cpu {
namespace {

struct Widths {
  bool wide = false, narrow = false;
};
Widths widths() {
  Widths found;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!env::flag("SF_INT8_DOT") || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
  found.wide = has(Isa::avx512) && (c >> 11 & 1);
  if (a < 1) return found;  // there is no second leaf
  __get_cpuid_count(7, 1, &a, &b, &c, &d);
  found.narrow = has(Isa::avx2) && (a >> 4 & 1);
#endif
  return found;
}

}  // namespace

bool int8_dot_of_bytes(int bytes) {
  static const Widths found = widths();
  return bytes == 64 ? found.wide : bytes == 32 && found.narrow;
}

}  // namespace sf::cpu
