// Compiled kernels as files of SF_KERNEL_CACHE, one per key. A file holds its whole key and a checksum: one that was
// cut, changed or belongs to another key is not read. A folder that cannot be written keeps nothing,
// and every process compiles for itself. Once it holds more than SF_KERNEL_CACHE_MB, those go that were read longest
// ago.
#pragma once
#include "scaffolding/backend/nvrtc.h"

namespace sf::cuda {

std::string kernel_file_path(const std::string& key);  // empty where files are switched off, or there is no home folder
bool read_kernel_file(const std::string& key, KernelImage& image);
void write_kernel_file(const std::string& key, const KernelImage& image);

// Where a folder's kernel files have more than `most` bytes, removes those that were read longest ago until three
// quarters of that are left; and what processes that ended left half-written an hour ago. What else is in the folder
// stays. A file that another process reads stays readable to it.
void limit_kernel_files(const std::string& folder, uint64_t most);

}  // namespace sf::cuda
