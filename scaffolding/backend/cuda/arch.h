// runs_on: whether a build for some CUDA architectures has code that a GPU can run. Plain arithmetic,
// known without a GPU.
#pragma once
#include <string_view>

namespace sf::cuda {

// archs: the list the library was compiled for, "80-real,90a-real,120"; capability: 10 * major + minor of the GPU.
// "80-real" is machine code, which runs on capabilities 8.0 to 8.9; "90a" is for 9.0 alone; "-virtual" is PTX, which
// the driver compiles for any GPU from that capability on; no suffix means both (CUDA C++ Programming Guide,
// "Compute capability").
constexpr bool runs_on(std::string_view archs, int capability) {
  while (!archs.empty()) {
    std::string_view arch = archs.substr(0, archs.find(','));
    archs.remove_prefix(arch.size() < archs.size() ? arch.size() + 1 : arch.size());
    int built = 0;
    while (!arch.empty() && arch[0] >= '0' && arch[0] <= '9') {
      built = built * 10 + (arch[0] - '0');
      arch.remove_prefix(1);
    }
    bool one_only = arch.starts_with('a');
    if (one_only) {
      if (capability == built) return true;
      continue;
    }
    bool machine_code = !arch.ends_with("-virtual"), ptx = !arch.ends_with("-real");
    if (machine_code && capability >= built && capability / 10 == built / 10) return true;
    if (ptx && capability >= built) return true;
  }
  return false;
}

}  // namespace sf::cuda
