// How much memory there is to plan with: of the host what this process may still take, of a GPU what new tensors may.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "scaffolding/core/device.h"

namespace sf {

// Where the system tells; tests give folders of their own.
struct MemorySources {
  std::string root;  // before /proc and the mount points of the cgroups
  // RLIMIT_AS and RLIMIT_DATA in bytes, UINT64_MAX without a limit; absent: getrlimit's
  std::function<uint64_t(int resource)> rlimit;
};

struct HostLimit {
  std::string name;  // "MemAvailable", "cgroup v2 /box (memory.max)", "RLIMIT_AS", "SF_CPU_MEMORY_LIMIT_MB"
  size_t free = 0;   // bytes that it leaves
};

struct FreeHostMemory {
  size_t free = 0;                // bytes: the least that a limit leaves
  size_t total = 0;               // of the machine
  std::vector<HostLimit> limits;  // each that there is, the least first
};

// The least of MemAvailable, of what cgroups v1 and v2 leave this process (their pages of files count as free, which
// the kernel drops before it kills), RLIMIT_AS, RLIMIT_DATA and the allocator's own limit. Files that are absent or
// unreadable limit nothing; where the system does not tell at all, as off Linux, free is the machine's memory.
FreeHostMemory free_host_memory(const MemorySources& sources = {});

// Bytes that new tensors of a GPU can take: what the device has free, and what is kept of freed tensors but for the
// graphs' own and what lies beside tensors in use. 0 for the CPU's like; RuntimeError as backend().
size_t free_device_memory(Device device);

}  // namespace sf
