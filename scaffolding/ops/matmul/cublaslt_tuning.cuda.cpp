#include "scaffolding/ops/matmul/cublaslt_tuning.h"

#include <sstream>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/kernel_file.h"

namespace sf::cuda {

static constexpr char kEntry[] = "cublaslt algorithm";

std::string algorithm_file_key(int device, const std::string& product) {
  return "cuBLASLt " + std::to_string(cublaslt().version()) + '\n' + properties(device).name + '\n' + product;
}

// The workspace's bytes, then the algorithm's words; anything else is no algorithm.
std::optional<Algorithm> read_algorithm(const std::string& file_key) {
  KernelImage file;
  if (!read_kernel_file(file_key, file) || file.entry != kEntry) return {};
  Algorithm a;
  std::istringstream words(file.cubin);
  if (!(words >> a.workspace)) return {};
  for (uint64_t& word : a.algo.data)
    if (!(words >> std::hex >> word)) return {};
  if (!words.eof()) return {};
  return a;
}

void write_algorithm(const std::string& file_key, const Algorithm& a) {
  std::ostringstream text;
  text << a.workspace << std::hex;
  for (uint64_t word : a.algo.data) text << ' ' << word;
  write_kernel_file(file_key, {kEntry, text.str()});
}

}  // namespace sf::cuda
