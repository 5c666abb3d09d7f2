#include "scaffolding/backend/free_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <sstream>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/core/cgroups.h"

namespace sf {

namespace {

// The number that a file holds; absent for "max", for another text and for no file.
std::optional<uint64_t> number_in(const std::string& path) {
  auto text = system_text(path);
  if (!text || text->empty() || text->find_first_not_of("0123456789\n ") != text->npos) return {};
  std::istringstream in(*text);
  uint64_t value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

// Lines of "name value" or "name: value kB", in bytes.
std::map<std::string, uint64_t> table_in(const std::string& path) {
  std::map<std::string, uint64_t> out;
  std::istringstream lines(system_text(path).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, unit;
    uint64_t value = 0;
    if (!(words >> name >> value)) continue;
    words >> unit;
    if (name.ends_with(':')) name.pop_back();
    out[name] = unit == "kB" ? value << 10 : value;
  }
  return out;
}

uint64_t left(uint64_t limit, uint64_t used) { return limit > used ? limit - used : 0; }

// Limits of one group: pages of files are dropped before anything is killed, so they are not in the way.
void add_group(std::vector<HostLimit>& limits, const CGroup& group) {
  auto stat = table_in(group.folder + "/memory.stat");
  auto usage = number_in(group.folder + (group.v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!usage) return;
  const char* prefix = group.v2 ? "" : "total_";
  const uint64_t files = stat[std::string(prefix) + "inactive_file"] + stat[std::string(prefix) + "active_file"],
                 used = left(*usage, files);
  auto add = [&](const char* file) {
    auto limit = number_in(group.folder + "/" + file);
    if (!limit || *limit >= uint64_t(1) << 62) return;  // v1 writes no limit as a number of pages near 2^63 bytes
    limits.push_back({std::string("cgroup ") + (group.v2 ? "v2 " : "v1 ") + group.name + " (" + file + ")",
                      size_t(left(*limit, used))});
  };
  if (group.v2) add("memory.max"), add("memory.high");  // above the second the kernel slows a process to a crawl
  else add("memory.limit_in_bytes");
}

uint64_t limit_of_process(int resource) {
  rlimit limit{};
  return getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : uint64_t(limit.rlim_cur);
}

}  // namespace

FreeHostMemory free_host_memory(const MemorySources& s) {
  FreeHostMemory out;
  auto meminfo = table_in(s.root + "/proc/meminfo");
  out.total = size_t(meminfo["MemTotal"]);
#ifdef _SC_PHYS_PAGES
  if (out.total == 0) out.total = size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE));
#endif
  if (auto at = meminfo.find("MemAvailable"); at != meminfo.end())
    out.limits.push_back({"MemAvailable", size_t(at->second)});
  for (auto& group : cgroups_of_process("memory", s.root)) add_group(out.limits, group);

  auto status = table_in(s.root + "/proc/self/status");
  for (auto [resource, name, used] :
       {std::tuple(RLIMIT_AS, "RLIMIT_AS", "VmSize"), {RLIMIT_DATA, "RLIMIT_DATA", "VmData"}}) {
    const uint64_t limit = s.rlimit ? s.rlimit(resource) : limit_of_process(resource);
    if (limit != UINT64_MAX) out.limits.push_back({name, size_t(left(limit, status[used]))});
  }
  if (const size_t limit = cpu::memory_limit())
    out.limits.push_back({"SF_CPU_MEMORY_LIMIT_MB", size_t(left(limit, cpu::allocated_bytes()))});

  std::stable_sort(out.limits.begin(), out.limits.end(), [](auto& a, auto& b) { return a.free < b.free; });
  out.free = out.limits.empty() ? out.total : out.limits[0].free;
  return out;
}

size_t free_device_memory(Device device) {
  if (!device.is_cuda()) return 0;
  Accelerator& gpu = accelerator(device);
  const MemoryStatistics m = gpu.memory(device.index);
  const size_t free = gpu.device_memory(device.index).free;
  const size_t kept = m.reserved - m.allocated,
               fresh = m.limit ? std::min(free, size_t(left(m.limit, m.reserved))) : free;
  return fresh + kept - std::min(kept, m.in_graph_pools + m.split_free);
}

}  // namespace sf
