#include "scaffolding/ops/matmul/cublaslt_product.h"

#include <bit>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "scaffolding/backend/cuda/queued.h"
#include "scaffolding/backend/cuda/relaxed.h"
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/backend/cuda/stream.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/ops/matmul/cublaslt_tuning.h"

namespace sf::cuda {

TensorView batch_of_one(TensorView t) {
  t.ndim = 3;
  for (int i = 2; i > 0; --i) t.sizes[i] = t.sizes[i - 1], t.strides[i] = t.strides[i - 1];
  t.sizes[0] = 1, t.strides[0] = 0;
  return t;
}

std::optional<Columns> columns_of(const TensorView& x) {
  int64_t r = x.sizes[1], c = x.sizes[2], batch = x.sizes[0] > 1 ? x.strides[0] : 0;
  int64_t along_c = r > 1 ? x.strides[1] : c, along_r = c > 1 ? x.strides[2] : r;
  if ((c == 1 || x.strides[2] == 1) && along_c >= c) return Columns{x.data, c, r, along_c, batch, false};
  if ((r == 1 || x.strides[1] == 1) && along_r >= r) return Columns{x.data, r, c, along_r, batch, true};
  return {};
}

namespace {

// How much memory the heuristics may plan with; cuBLAS's own default on Hopper ("cuBLAS workspace", 2.1.8). A call
// takes what its algorithm asks for.
constexpr size_t kWorkspace = size_t(32) << 20;
constexpr size_t kMostPlans = 8192;  // then all are forgotten: a program of ever new shapes must not grow without end

// The descriptors of one kind of call, and the algorithm chosen for it. Lives in the cache.
struct Plan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  Algorithm algorithm;
  bool found = false, has_run[2] = {};  // with a beta of 0, and with another
  std::vector<Algorithm> rivals;        // to be timed by the first call outside of a captured graph
  std::string file_key;

  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    if (desc) cublaslt().desc_destroy(desc);
    for (auto layout : {first, second, result})
      if (layout) cublaslt().layout_destroy(layout);
  }
};

uint32_t alignment_of(const void* p) {
  return uint32_t(std::min<uintptr_t>(256, uintptr_t(1) << std::countr_zero(reinterpret_cast<uintptr_t>(p) | 256)));
}

template <class T> void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what, const T& value) {
  check_cublas(cublaslt().desc_set(desc, what, &value, sizeof value), "matmul");
}
template <class T> void set(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t what, const T& value) {
  check_cublas(cublaslt().preference_set(p, what, &value, sizeof value), "matmul");
}

cublasLtMatrixLayout_t layout_of(const Columns& x, DType dtype, int64_t batch) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_cublas(cublaslt().layout_create(&layout, cuda_type(dtype), uint64_t(x.rows), uint64_t(x.cols), x.ld), "matmul");
  int32_t count = int32_t(batch);
  cublaslt().layout_set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
  cublaslt().layout_set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &x.batch_stride, sizeof x.batch_stride);
  return layout;
}

using Key = std::array<int64_t, 35>;
Key key_of(const Product& p) {
  Key k{};
  size_t n = 0;
  for (int64_t x : {int64_t(p.device.index), int64_t(p.first_type), int64_t(p.second_type), int64_t(p.out), p.batch,
                    int64_t(p.tf32), int64_t(p.epilogue.kind), int64_t(matmul_benchmark()),
                    int64_t(p.scales.first != nullptr) + int64_t(p.scales.vectors), int64_t(p.fast_accumulation)})
    k[n++] = x;
  for (const Columns* c : {&p.first, &p.second, &p.result})
    for (int64_t x : {c->rows, c->cols, c->ld, c->batch_stride, int64_t(c->as_written), int64_t(alignment_of(c->data))})
      k[n++] = x;
  k[n++] = p.addend ? int64_t(alignment_of(p.addend)) : 0;
  if (p.epilogue.bias)
    for (int64_t x : {int64_t(alignment_of(p.epilogue.bias.data)), int64_t(p.epilogue.bias.dtype)}) k[n++] = x;
  if (p.epilogue.pre)
    for (int64_t x : {int64_t(alignment_of(p.epilogue.pre.data)), p.epilogue.pre.strides[1], p.epilogue.pre.strides[0]})
      k[n++] = x;
  return k;
}

void set_pointers(const Product& p, cublasLtMatmulDesc_t desc) {
  if (p.epilogue.bias) set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.epilogue.bias.data);
  if (p.epilogue.pre) set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.epilogue.pre.data);
  if (p.scales.first) set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.scales.first);
  if (p.scales.second) set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.scales.second);
}

// What cuBLASLt answers where it has nothing for a call: of some epilogues, types and layouts it says that they are
// invalid.
bool refuses(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

// Up to `wanted` algorithms, the most promising first; none where it has none.
std::vector<Algorithm> proposals(const Product& p, const Plan& plan, int wanted) {
  cublasLtMatmulPreference_t wishes = nullptr;
  check_cublas(cublaslt().preference_create(&wishes), "matmul");
  set(wishes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
  set(wishes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.first.data));
  set(wishes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.second.data));
  set(wishes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.addend ? p.addend : p.result.data));
  set(wishes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.result.data));
  cublasLtMatmulHeuristicResult_t found[kRivals] = {};
  int count = 0;
  cublasStatus_t status = cublaslt().heuristic(cublaslt_handle(p.device.index), plan.desc, plan.first, plan.second,
                                               plan.result, plan.result, wishes, wanted, found, &count);
  cublaslt().preference_destroy(wishes);
  if (refuses(status)) return {};
  check_cublas(status, "matmul");
  std::vector<Algorithm> all;
  for (int i = 0; i < count; ++i)
    if (found[i].state == CUBLAS_STATUS_SUCCESS) all.push_back({found[i].algo, found[i].workspaceSize});
  return all;
}

// What a file remembers, if this cuBLASLt accepts it for this product; else all are timed later.
void choose(const Product& p, Plan& plan, const std::vector<Algorithm>& found) {
  std::string key;
  for (int64_t x : key_of(p)) key += std::to_string(x) + ' ';
  plan.file_key = algorithm_file_key(p.device.index, key);
  if (auto known = read_algorithm(plan.file_key)) {
    cublasLtMatmulHeuristicResult_t checked{};
    cublasStatus_t status = cublaslt().algo_check(cublaslt_handle(p.device.index), plan.desc, plan.first, plan.second,
                                                  plan.result, plan.result, &known->algo, &checked);
    if (status == CUBLAS_STATUS_SUCCESS && checked.workspaceSize <= known->workspace &&
        known->workspace <= kWorkspace) {
      plan.algorithm = *known;
      return;
    }
  }
  plan.rivals = found;
}

void fill(const Product& p, Plan& plan) {
  const bool wide = p.first_type == kFloat64, whole = p.first_type == kInt8;
  cublasComputeType_t compute = wide                                 ? CUBLAS_COMPUTE_64F
                                : whole                              ? CUBLAS_COMPUTE_32I
                                : p.first_type == kFloat32 && p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                     : CUBLAS_COMPUTE_32F;
  check_cublas(cublaslt().desc_create(&plan.desc, compute,
                                      wide    ? CUDA_R_64F
                                      : whole ? CUDA_R_32I
                                              : CUDA_R_32F),
               "matmul");
  // Memory by columns holds b^T when b is dense along n, and so for a: what is wanted are b^T and a^T.
  set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSA, p.first.as_written ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSB, p.second.as_written ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue.kind);
  if (p.epilogue.pre) {
    set(plan.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.epilogue.pre.strides[1]);
    set(plan.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE,
        p.batch > 1 ? p.epilogue.pre.strides[0] : int64_t(0));
  }
  if (p.epilogue.bias && p.epilogue.bias.dtype != p.out)
    set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t(cuda_type(p.epilogue.bias.dtype)));
  if (p.scales.vectors) {
    set(plan.desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, int32_t(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F));
    set(plan.desc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, int32_t(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F));
  }
  if (p.fast_accumulation) set(plan.desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t(1));
  set_pointers(p, plan.desc);
  plan.first = layout_of(p.first, p.first_type, p.batch);
  plan.second = layout_of(p.second, p.second_type, p.batch);
  plan.result = layout_of(p.result, p.out, p.batch);
  const auto found = proposals(p, plan, matmul_benchmark() ? kRivals : 1);
  plan.found = !found.empty();
  if (!plan.found) return;
  plan.algorithm = found[0];
  if (matmul_benchmark()) choose(p, plan, found);
}

// One lock for the cache and for the pointers in a plan's descriptor: cublasLtMatmul has read them when it returns.
std::mutex plans_mutex;

Plan& plan_of(const Product& p) {
  static auto& plans = *new std::map<Key, Plan>;
  Key k = key_of(p);
  auto at = plans.find(k);
  if (at == plans.end()) {
    DeviceScope scope(p.device.index);
    Relaxed relaxed;
    if (plans.size() >= kMostPlans) plans.clear();
    at = plans.try_emplace(k).first;
    try {
      fill(p, at->second);
    } catch (...) {
      plans.erase(at);
      throw;
    }
  }
  return at->second;
}

}  // namespace

bool Product::exists() const {
  std::lock_guard lock(plans_mutex);
  return plan_of(*this).found;
}

bool Product::run(double alpha, double beta) const {
  DeviceScope scope(device.index);
  std::lock_guard lock(plans_mutex);
  Plan& plan = plan_of(*this);
  if (!plan.found) return false;
  std::optional<Relaxed> relaxed;  // an algorithm's first run may load its kernels
  if (CudaGraph::recording() || !plan.rivals.empty() || !plan.has_run[beta != 0]) relaxed.emplace();
  set_pointers(*this, plan.desc);
  float alpha32 = float(alpha), beta32 = float(beta);
  const void *a = &alpha32, *b = &beta32;
  const int32_t alpha_whole = int32_t(alpha), beta_whole = int32_t(beta);
  if (first_type == kFloat64) a = &alpha, b = &beta;
  if (first_type == kInt8) a = &alpha_whole, b = &beta_whole;
  void* c = const_cast<void*>(result.data);
  cudaStream_t stream = Stream::current(device.index).handle;
  auto queue = [&](const Algorithm& algorithm, void* d) {
    Scratch workspace(device, algorithm.workspace);
    return cublaslt().matmul(cublaslt_handle(device.index), plan.desc, a, first.data, plan.first, second.data,
                             plan.second, b, addend ? addend : c, plan.result, d, plan.result, &algorithm.algo,
                             workspace.as<void>(), algorithm.workspace, stream);
  };
  if (!plan.rivals.empty() && !CudaGraph::recording()) {
    // What a product adds to must not change while it is timed. Elsewhere each run writes the same.
    std::optional<Scratch> apart;
    if (beta != 0 && !addend)
      apart.emplace(
          device,
          size_t((result.cols - 1) * result.ld + result.rows + (batch - 1) * result.batch_stride) * size_of(out) + 256);
    if (auto best = fastest(plan.rivals, stream, [&](const Algorithm& algorithm) {
          return queue(algorithm, apart ? apart->as<void>() : c);
        })) {
      plan.algorithm = *best;
      write_algorithm(plan.file_key, *best);
    }
    plan.rivals.clear();
  }
  cublasStatus_t status = queue(plan.algorithm, c);
  if (refuses(status)) {  // some algorithms are proposed and refuse when they are run: the first that does not
    for (const Algorithm& other : proposals(*this, plan, kRivals)) {
      status = queue(other, c);
      if (refuses(status)) continue;
      plan.algorithm = other;
      break;
    }
    if (refuses(status)) return plan.found = false;
  }
  check_cublas(status, "matmul");
  plan.has_run[beta != 0] = true;
  queued("matmul", device.index, stream);
  return true;
}

}  // namespace sf::cuda
