#include "scaffolding/core/cgroups.h"

#include <fstream>
#include <sstream>

namespace sf {

std::optional<std::string> system_text(const std::string& path) {
  std::ifstream in(path);
  if (!in) return {};
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

namespace {

// A hierarchy of cgroups: where it is mounted, and which of its groups the mount shows as its top.
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

std::vector<Mount> mounts_of(const std::string& controller, const std::string& root) {
  std::vector<Mount> out;
  std::istringstream lines(system_text(root + "/proc/self/mountinfo").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const size_t dash = line.find(" - ");
    if (dash == line.npos) continue;
    std::istringstream before(line.substr(0, dash)), after(line.substr(dash + 3));
    std::string id, parent, device, top, point, type, source, options;
    before >> id >> parent >> device >> top >> point;
    after >> type >> source >> options;
    if (type == "cgroup2" || (type == "cgroup" && in_list(options, controller)))
      out.push_back({unescaped(point), unescaped(top), type == "cgroup2"});
  }
  return out;
}

// The group of this process in the hierarchy: lines of "id:controllers:path", of v2 "0::path".
std::optional<std::string> group_of_process(const std::string& controller, const std::string& root, bool v2) {
  std::istringstream lines(system_text(root + "/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (v2 ? line.starts_with("0::") : in_list(controllers, controller)) return line.substr(second + 1);
  }
  return {};
}

// Of the process's group and of all above it that can be seen.
void add_groups(std::vector<CGroup>& groups, const std::string& controller, const std::string& root,
                const Mount& mount) {
  auto group = group_of_process(controller, root, mount.v2);
  if (!group) return;
  std::string below = *group;
  if (mount.root != "/") {  // the mount shows a part of the tree; a group beside that part is seen as its top
    const bool inside =
        below.starts_with(mount.root) && (below.size() == mount.root.size() || below[mount.root.size()] == '/');
    below = inside ? below.substr(mount.root.size()) : "";
  }
  if (below == "/") below.clear();
  for (;;) {
    groups.push_back({root + mount.point + below, below.empty() ? "/" : below, mount.v2});
    if (below.empty()) return;
    below.resize(below.rfind('/') == below.npos ? 0 : below.rfind('/'));
  }
}

}  // namespace

std::vector<CGroup> cgroups_of_process(const std::string& controller, const std::string& root) {
  std::vector<CGroup> groups;
  for (auto& mount : mounts_of(controller, root)) add_groups(groups, controller, root, mount);
  return groups;
}

}  // namespace sf
