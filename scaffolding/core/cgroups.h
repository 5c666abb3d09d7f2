// The cgroups that this process is in: what a container may take of memory and processors.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace sf {

struct CGroup {
  std::string folder;  // of its files
  std::string name;    // "/box/inner", as its mount shows it
  bool v2 = false;
};

// Those of `controller` ("memory", "cpu"), of both versions: the process's own and all above it that can be seen, the
// innermost of a hierarchy first. `root` stands before /proc and the mount points; tests give a folder of their own.
// Files that are absent or unreadable tell of no group.
std::vector<CGroup> cgroups_of_process(const std::string& controller, const std::string& root = "");

std::optional<std::string> system_text(
    const std::string& path);  // a file of /proc or /sys; absent where it cannot be read

}  // namespace sf
