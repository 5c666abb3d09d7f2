// Providers by name: pin one to bisect or to test it, list who offers what.
#pragma once
#include <string>

#include "scaffolding/core/kernel.h"

namespace sf {

std::string provider_label(const KernelEntry& e);  // "onednn", "native-avx2"
// Kernel tables whose name starts with `table` ("*": all) prefer `provider` (a label or its first word) from now on.
void pin_provider(const std::string& table, const std::string& provider);
void unpin_providers();

}  // namespace sf
