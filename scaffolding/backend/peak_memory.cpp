#include "scaffolding/backend/peak_memory.h"

#include <sys/resource.h>

#include <fstream>
#include <string>

#include "scaffolding/backend/accelerator.h"

namespace sf {

PeakMemory::PeakMemory(std::optional<Device> gpu) : gpu_(gpu) {
  // 5: the peak of the resident set becomes what it is now (proc(5)). Where that is not allowed it is the process's.
  std::ofstream("/proc/self/clear_refs") << 5;
  if (gpu_) accelerator(*gpu_).reset_peak(gpu_->index);
}

int64_t PeakMemory::host() const {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
  return usage.ru_maxrss;
#else
  return usage.ru_maxrss * 1024;
#endif
}

int64_t PeakMemory::device() const { return gpu_ ? int64_t(accelerator(*gpu_).memory(gpu_->index).max_allocated) : 0; }

}  // namespace sf
