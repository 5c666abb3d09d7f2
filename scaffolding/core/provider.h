// Providers by name: pin one to bisect or to test it, list who offers what.
#pragma once
#include <functional>
#include <string>

#include "scaffolding/core/kernel.h"

namespace sf {

std::string provider_label(const KernelEntry& e);  // "onednn", "native-avx2"
// Kernel tables whose name starts with `table` ("*": all) prefer `provider` (a label or its first word) from now on.
void pin_provider(const std::string& table, const std::string& provider);
void unpin_providers();

// One finished kernel call. args is the table's argument struct.
struct KernelCall {
  const KernelTableBase& table;
  const KernelEntry& entry;
  const void* args;
  double wall, cpu;  // seconds; cpu: of the whole process
  bool composed;     // other kernels ran within it and reported themselves before
};
// While alive, kernels report their calls. One at a time, made and gone while nothing computes.
class KernelWatcher {
 public:
  explicit KernelWatcher(std::function<void(const KernelCall&)> report);
  ~KernelWatcher();
  KernelWatcher(const KernelWatcher&) = delete;
};

}  // namespace sf
