#include "scaffolding/backend/free_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <sstream>

#include "scaffolding/backend/accelerator.h"

namespace sf {

namespace {

std::optional<std::string> text_of(const std::string& path) {
  std::ifstream in(path);
  if (!in) return {};
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// The number that a file holds; absent for "max", for another text and for no file.
std::optional<uint64_t> number_in(const std::string& path) {
  auto text = text_of(path);
  if (!text || text->empty() || text->find_first_not_of("0123456789\n ") != text->npos) return {};
  std::istringstream in(*text);
  uint64_t value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

// Lines of "name value" or "name: value kB", in bytes.
std::map<std::string, uint64_t> table_in(const std::string& path) {
  std::map<std::string, uint64_t> out;
  std::istringstream lines(text_of(path).value_or(""));
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

// A hierarchy of cgroups that counts memory: where it is mounted, and which of its groups the mount shows as its top.
struct Mount {
  std::string point, root;
  bool v2 = false;
};

// mountinfo writes a space in a path as \040.
std::string unescaped(const std::string& path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '\\' && i + 3 < path.size()) {
      out += char((path[i + 1] - '0') * 64 + (path[i + 2] - '0') * 8 + (path[i + 3] - '0'));
      i += 3;
    } else {
      out += path[i];
    }
  }
  return out;
}

bool in_list(const std::string& list, const std::string& wanted) {  // with commas between
  return ("," + list + ",").find("," + wanted + ",") != std::string::npos;
}

std::vector<Mount> memory_mounts(const std::string& root) {
  std::vector<Mount> out;
  std::istringstream lines(text_of(root + "/proc/self/mountinfo").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const size_t dash = line.find(" - ");
    if (dash == line.npos) continue;
    std::istringstream before(line.substr(0, dash)), after(line.substr(dash + 3));
    std::string id, parent, device, top, point, type, source, options;
    before >> id >> parent >> device >> top >> point;
    after >> type >> source >> options;
    if (type == "cgroup2" || (type == "cgroup" && in_list(options, "memory")))
      out.push_back({unescaped(point), unescaped(top), type == "cgroup2"});
  }
  return out;
}

// The group of this process in the hierarchy: lines of "id:controllers:path", of v2 "0::path".
std::optional<std::string> group_of_process(const std::string& root, bool v2) {
  std::istringstream lines(text_of(root + "/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (v2 ? line.starts_with("0::") : in_list(controllers, "memory")) return line.substr(second + 1);
  }
  return {};
}

// Limits of one group: pages of files are dropped before anything is killed, so they are not in the way.
void add_group(std::vector<HostLimit>& limits, const Mount& mount, const std::string& folder,
               const std::string& group) {
  auto stat = table_in(folder + "/memory.stat");
  auto usage = number_in(folder + (mount.v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!usage) return;
  const char* prefix = mount.v2 ? "" : "total_";
  const uint64_t files = stat[std::string(prefix) + "inactive_file"] + stat[std::string(prefix) + "active_file"],
                 used = left(*usage, files);
  auto add = [&](const char* file) {
    auto limit = number_in(folder + "/" + file);
    if (!limit || *limit >= uint64_t(1) << 62) return;  // v1 writes no limit as a number of pages near 2^63 bytes
    limits.push_back(
        {std::string("cgroup ") + (mount.v2 ? "v2 " : "v1 ") + group + " (" + file + ")", size_t(left(*limit, used))});
  };
  if (mount.v2) add("memory.max"), add("memory.high");  // above the second the kernel slows a process to a crawl
  else add("memory.limit_in_bytes");
}

// Of the process's group and of all above it that can be seen.
void add_groups(std::vector<HostLimit>& limits, const std::string& root, const Mount& mount) {
  auto group = group_of_process(root, mount.v2);
  if (!group) return;
  std::string below = *group;
  if (mount.root != "/") {  // the mount shows a part of the tree; a group beside that part is seen as its top
    const bool inside =
        below.starts_with(mount.root) && (below.size() == mount.root.size() || below[mount.root.size()] == '/');
    below = inside ? below.substr(mount.root.size()) : "";
  }
  if (below == "/") below.clear();
  for (;;) {
    add_group(limits, mount, root + mount.point + below, below.empty() ? "/" : below);
    if (below.empty()) return;
    below.resize(below.rfind('/') == below.npos ? 0 : below.rfind('/'));
  }
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
  for (auto& mount : memory_mounts(s.root)) add_groups(out.limits, s.root, mount);

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
