#include "scaffolding/backend/cpu/amx.h"

#include <cstring>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#endif

namespace sf::cpu {
namespace {

struct Answer {
  bool usable = false;
  std::string refused;
};

Answer ask() {
  Answer answer;
#if defined(__x86_64__) && defined(__linux__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool cpu = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1) && (d >> 24 & 1) && (d >> 25 & 1);
  if (!cpu) return answer;
  if (!(__get_cpuid(1, &a, &b, &c, &d) && (c >> 27 & 1))) return answer;  // no XGETBV: nothing is enabled
  unsigned low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & 0x60000) != 0x60000) {  // tile configuration and tile data
    answer.refused = "the operating system does not keep them";
    return answer;
  }
  // Linux gives the registers, 8 KB a thread, to processes that ask (5.16 and later). It refuses where a signal stack
  // is too small to save them on.
  constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  if (syscall(SYS_arch_prctl, kRequest, kTileData) == 0) answer.usable = true;
  else answer.refused = std::string("the kernel refuses them: ") + std::strerror(errno);
#endif
  return answer;
}

const Answer& answer() {
  static const Answer once = ask();
  return once;
}

}  // namespace

bool has_tiles() { return answer().usable; }
std::string tiles_refused() { return answer().refused; }

}  // namespace sf::cpu
