// Which of cuBLASLt's algorithms a product runs by where backends.cuda.matmul.benchmark lets it be measured: the
// fastest, and a file of SF_KERNEL_CACHE that remembers it, as cuDNN's plans are remembered. An algorithm is 64 bytes
// of cuBLASLt's own that the same version may be given again.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "scaffolding/backend/cuda/cublaslt.h"
#include "scaffolding/backend/cuda/timer.h"

namespace sf::cuda {

struct Algorithm {
  cublasLtMatmulAlgo_t algo{};
  size_t workspace = 0;
};

inline constexpr int kRivals = 8;  // algorithms that are timed

// product: what it depends on, as text. The file's key adds cuBLASLt's version and the device's name.
std::string algorithm_file_key(int device, const std::string& product);
// none without a file, or from one that is damaged
std::optional<Algorithm> read_algorithm(const std::string& file_key);
void write_algorithm(const std::string& file_key, const Algorithm& a);

// The fastest; queue(algorithm) puts the product on the stream once and says how that went.
// An algorithm that cuBLASLt refuses is left out.
template <class F>
std::optional<Algorithm> fastest(std::span<const Algorithm> rivals, cudaStream_t stream, const F& queue) {
  constexpr int kRuns = 5;  // of each, after one that does not count
  std::optional<Algorithm> best;
  float least = 0;
  Timer timer("matmul");
  for (const Algorithm& a : rivals) {
    if (queue(a) != CUBLAS_STATUS_SUCCESS) continue;
    float ms = timer.of(stream, kRuns, [&] { check_cublas(queue(a), "matmul"); });
    if (!best || ms < least) best = a, least = ms;
  }
  return best;
}

}  // namespace sf::cuda
