#include "scaffolding/core/cores.h"

#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <thread>

#include "scaffolding/core/cgroups.h"

namespace sf {

namespace {

constexpr int kMostCpus = 1 << 16;

std::vector<int> cpus_of_process() {
#if defined(__linux__)
  for (int most = 1024; most <= kMostCpus; most *= 2) {  // too small a set for the system's is refused
    cpu_set_t* set = CPU_ALLOC(most);
    const size_t bytes = CPU_ALLOC_SIZE(most);
    std::vector<int> cpus;
    if (sched_getaffinity(0, bytes, set) == 0)
      for (int cpu = 0; cpu < most; ++cpu)
        if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
    CPU_FREE(set);
    if (!cpus.empty()) return cpus;
  }
#endif
  std::vector<int> cpus(std::max(1u, std::thread::hardware_concurrency()));
  for (size_t i = 0; i < cpus.size(); ++i) cpus[i] = int(i);
  return cpus;
}

// Of "0-3,8": 0 to 3 and 8. Empty where the text is another.
std::set<int> listed(const std::string& text) {
  std::set<int> out;
  std::istringstream in(text);
  for (std::string range; std::getline(in, range, ',');) {
    std::istringstream words(range);
    int first = -1, last = -1;
    char dash = 0;
    if (!(words >> first)) return {};
    if (!(words >> dash)) last = first;
    else if (dash != '-' || !(words >> last)) return {};
    if (first < 0 || last < first || last >= kMostCpus) return {};
    for (int cpu = first; cpu <= last; ++cpu) out.insert(cpu);
  }
  return out;
}

// A CPU of which the system does not tell is a core.
int cores_of(const std::vector<int>& cpus, const std::string& root) {
  std::set<int> seen;
  int cores = 0;
  for (int cpu : cpus) {
    if (seen.count(cpu)) continue;
    ++cores;
    const std::string topology = root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    for (const char* file : {"core_cpus_list", "thread_siblings_list"}) {  // the second is older kernels'
      const auto siblings = listed(system_text(topology + file).value_or(""));
      if (!siblings.count(cpu)) continue;
      seen.insert(siblings.begin(), siblings.end());
      break;
    }
  }
  return cores;
}

// CPUs' worth of time that a cgroup grants; 0: no limit.
double quota_of(const CGroup& group) {
  std::string text = system_text(group.folder + (group.v2 ? "/cpu.max" : "/cpu.cfs_quota_us")).value_or("");
  if (!group.v2) text += " " + system_text(group.folder + "/cpu.cfs_period_us").value_or("");
  std::istringstream words(text);  // "max" and -1 are none
  double time = 0, period = 0;
  return words >> time >> period && time > 0 && period > 0 ? time / period : 0;
}

}  // namespace

int usable_cores(const CoreSources& s) {
  const std::vector<int> cpus = s.cpus.empty() ? cpus_of_process() : s.cpus;
  int cores = std::max(cores_of(cpus, s.root), int(std::min<size_t>(2, cpus.size())));
  for (auto& group : cgroups_of_process("cpu", s.root))
    if (const double quota = quota_of(group); quota > 0) cores = int(std::min<double>(cores, std::ceil(quota)));
  return cores;
}

}  // namespace sf
