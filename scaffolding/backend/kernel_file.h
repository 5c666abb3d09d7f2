// Compiled kernels as files of SF_KERNEL_CACHE, one per key. A file holds its whole key and a checksum: one that was
// cut, changed or belongs to another key is not read. A folder that cannot be written keeps nothing,
// and every process compiles for itself.
#pragma once
#include "scaffolding/backend/nvrtc.h"

namespace sf::cuda {

std::string kernel_file_path(const std::string& key);  // empty where files are switched off, or there is no home folder
bool read_kernel_file(const std::string& key, KernelImage& image);
void write_kernel_file(const std::string& key, const KernelImage& image);

}  // namespace sf::cuda
