// Which products wgmma_product.h makes, and which of two ways one takes: measured at the first call of its kind and
// remembered in a file of SF_KERNEL_CACHE, as cuBLASLt's algorithms are.
#include <array>
#include <map>
#include <mutex>
#include <string>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cuda/stream.h"
#include "scaffolding/backend/cuda/timer.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/backend/kernel_file.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/ops/matmul/cublaslt_product.h"
#include "scaffolding/ops/matmul/wgmma_product.h"

namespace sf::cuda {
namespace {

constexpr char kEntry[] = "wgmma or library";

using Key = std::array<int64_t, 14>;
Key key_of(const WgmmaProduct& p) {
  return {p.device.index,
          int64_t(p.operands),
          int64_t(p.dtype),
          p.m,
          p.n,
          p.k,
          p.a_row,
          p.b_row,
          p.c_row,
          int64_t(p.gate != nullptr),
          int64_t(p.bias.defined()),
          int64_t(p.addend != nullptr),
          int64_t(p.act),
          p.row_scale.defined() ? p.row_scale.numel() : 0};
}

std::string file_key_of(const WgmmaProduct& p) {
  std::string key =
      "wgmma, cuBLASLt " + std::to_string(cublaslt().version()) + '\n' + properties(p.device.index).name + '\n';
  const Key numbers = key_of(p);
  for (size_t i = 1; i < numbers.size(); ++i) key += std::to_string(numbers[i]) + ' ';  // any device of that name
  return key;
}

bool is_measured_faster(const WgmmaProduct& p, const char* op, const std::function<void()>& library) {
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

std::optional<WgmmaProduct> wgmma_product_of(const TensorView& a, const TensorView& b, const TensorView& c) {
  const auto x = columns_of(a), w = columns_of(b), y = columns_of(c);
  if (c.sizes[0] != 1 || !x || x->as_written || !w || !w->as_written || !y || y->as_written) return {};
  WgmmaProduct p;
  p.operands = a.dtype, p.dtype = c.dtype, p.device = c.device;
  p.m = c.sizes[1], p.n = c.sizes[2], p.k = a.sizes[2];
  p.a = x->data, p.a_row = x->ld, p.b = w->data, p.b_row = w->ld, p.c = c.data, p.c_row = y->ld;
  return p;
}

bool wgmma_is_faster(const WgmmaProduct& p, const char* op, const std::function<void()>& library) {
  if (!matmul_benchmark() || p.addend == p.c) return false;
  static std::mutex mutex;
  static auto& known = *new std::map<Key, bool>;
  const Key key = key_of(p);
  {
    std::lock_guard lock(mutex);
    if (auto at = known.find(key); at != known.end()) return at->second;
  }
  if (CudaGraph::recording()) return false;
  const std::string file_key = file_key_of(p);
  KernelImage file;
  bool faster;
  DeviceScope scope(p.device.index);
  if (read_kernel_file(file_key, file) && file.entry == kEntry) {
    faster = file.cubin == "wgmma";
  } else {
    faster = is_measured_faster(p, op, library);
    write_kernel_file(file_key, {kEntry, faster ? "wgmma" : "library"});
  }
  std::lock_guard lock(mutex);
  return known[key] = faster;
}

}  // namespace sf::cuda
