// Which of two ways a product takes, measured at the first call of its kind and remembered in a file of
// SF_KERNEL_CACHE, as cuBLASLt's algorithms are.
#include <map>
#include <mutex>
#include <string>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cuda/cublaslt.h"
#include "scaffolding/backend/cuda/stream.h"
#include "scaffolding/backend/cuda/timer.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/backend/kernel_file.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/ops/matmul/wgmma_product.h"

namespace sf::cuda {
namespace {

constexpr char kEntry[] = "wgmma or library";

std::string key_of(const WgmmaProduct& p) {
  std::string key =
      "wgmma, cuBLASLt " + std::to_string(cublaslt().version()) + '\n' + properties(p.device.index).name + '\n';
  for (int64_t x : {int64_t(p.operands), int64_t(p.dtype), p.m, p.n, p.k, p.a_row, p.b_row, p.c_row,
                    int64_t(p.gate != nullptr), int64_t(p.bias.defined()), int64_t(p.addend != nullptr), int64_t(p.act),
                    p.row_scale.defined() ? p.row_scale.numel() : 0})
    key += std::to_string(x) + ' ';
  return key;
}

bool is_faster(const WgmmaProduct& p, const char* op, const std::function<void()>& library) {
  constexpr int kRuns = 5;  // of each, after one that does not count
  const Timer timer(op);
  cudaStream_t stream = Stream::current(p.device.index).handle;
  auto measure = [&](const std::function<void()>& way) {
    way();
    return timer.of(stream, kRuns, way);
  };
  const float theirs = measure(library);
  return measure([&] { p.run(op); }) < theirs;
}

}  // namespace

bool wgmma_is_wanted(const WgmmaProduct& p, const char* op, const std::function<void()>& library) {
  const WarpgroupProducts where = warpgroup_products();
  if (where == WarpgroupProducts::Off) return false;
  if (where == WarpgroupProducts::On) return true;
  if (!matmul_benchmark() || p.addend == p.c) return false;
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, bool>;
  const std::string key = std::to_string(p.device.index) + ' ' + key_of(p);
  {
    std::lock_guard lock(mutex);
    if (auto at = known.find(key); at != known.end()) return at->second;
  }
  if (CudaGraph::recording()) return false;
  KernelImage file;
  bool wanted;
  DeviceScope scope(p.device.index);
  if (read_kernel_file(key_of(p), file) && file.entry == kEntry) {
    wanted = file.cubin == "wgmma";
  } else {
    wanted = is_faster(p, op, library);
    write_kernel_file(key_of(p), {kEntry, wanted ? "wgmma" : "library"});
  }
  std::lock_guard lock(mutex);
  return known[key] = wanted;
}

}  // namespace sf::cuda
