#include "scaffolding/backend/cpu/isa.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string_view>

#include "scaffolding/backend/cpu/amx.h"
#include "scaffolding/core/env.h"
#include "scaffolding/core/kernel.h"

namespace sf::cpu {

static constexpr const char* kNames[] = {"base", "avx2", "avx512", "avx512bf16", "avx512amx"};
static constexpr std::string_view kEmulated = "amx_emulated";

const char* name(Isa isa) { return kNames[int(isa)]; }

bool isa_from_name(const char* text, Isa& out) {
  for (int i = 0; i < int(std::size(kNames)); ++i)
    if (std::string_view(text) == kNames[i]) return out = Isa(i), true;
  return false;
}

static Isa detect() {
  Isa found = Isa::base;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
    found = Isa::avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512cd"))
      found = !__builtin_cpu_supports("avx512bf16") ? Isa::avx512 : has_tiles() ? Isa::avx512amx : Isa::avx512bf16;
  }
#endif
  return found;
}

// What SF_ISA allows of it. A wish that cannot be met is no reason to compute nothing: the next best serves, and one
// sentence says so.
static Isa limited(Isa found) {
  const std::string cap = env::text("SF_ISA");
  if (cap.empty()) return found;
  Isa limit = Isa::avx512bf16;  // of amx_emulated
  if (!isa_from_name(cap.c_str(), limit) && cap != kEmulated) {
    std::fprintf(stderr,
                 "SF_ISA: must be base, avx2, avx512, avx512bf16, avx512amx or amx_emulated, got '%s'; going on with "
                 "%s\n",
                 cap.c_str(), name(found));
    return found;
  }
  if (limit > found && cap != kEmulated) {
    const std::string refused = limit == Isa::avx512amx ? tiles_refused() : "";
    std::fprintf(stderr, "SF_ISA: there is no %s here%s%s; going on with %s\n", cap.c_str(),
                 refused.empty() ? "" : ", ", refused.c_str(), name(found));
  }
  return std::min(limit, found);
}

Isa best() {
  static const Isa found = limited(detect());
  return found;
}
bool emulates_tiles() {
  static const bool wanted = env::text("SF_ISA") == kEmulated;
  return wanted;
}
bool has(Isa isa) { return isa <= best(); }

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

// Kernels that were announced before main() ran.
static constinit bool g_some_serve = false;
static constinit int g_least_left_out = int(std::size(kNames));  // an Isa, or none

std::string why_no_kernels() {
  if (g_some_serve || g_least_left_out == int(std::size(kNames))) return "";
  return std::string("this build has CPU kernels for ") + kNames[g_least_left_out] + " alone, and here is " +
         name(best()) + ": build it on this machine, or for every one by `make build`";
}

}  // namespace sf::cpu

// Kernels for instruction sets that this processor lacks stay out of the tables.
void sf::detail::register_kernel(KernelTableBase& table, DeviceType device, const char* provider, int priority,
                                 void (*fn)(), void (*supports)(), const char* isa) {
  cpu::Isa level = cpu::Isa::base;
  if (isa && isa == cpu::kEmulated) {
    if (!cpu::emulates_tiles()) return;
  } else if (isa && !(cpu::isa_from_name(isa, level) && cpu::has(level))) {
    cpu::g_least_left_out = std::min(cpu::g_least_left_out, int(level));
    return;
  }
  cpu::g_some_serve |= isa && device == DeviceType::CPU;
  table.add(device, {provider, isa, priority, fn, supports});
}
