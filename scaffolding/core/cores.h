// How many cores this process may use.
#pragma once
#include <string>
#include <vector>

namespace sf {

// Where the system tells, tests give their own: the CPUs of the process's affinity, and what stands before /sys, /proc
// and the mount points of the cgroups.
struct CoreSources {
  std::vector<int> cpus;  // none: sched_getaffinity's
  std::string root;
};

// Cores of the process's CPUs, the hardware threads of one counted once: kernels keep a core's multipliers busy with
// one, and a second takes its cache away (PyTorch counts so too); of a lone core both count. No more than the quotas of
// its cgroups allow, rounded up: threads beyond them would only be stopped the sooner. At least 1.
int usable_cores(const CoreSources& sources = {});

}  // namespace sf
