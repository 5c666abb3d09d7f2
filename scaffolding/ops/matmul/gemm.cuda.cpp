// Products of floating matrices on CUDA through cuBLASLt. It thinks in columns: what it is asked for is c^T = b^T a^T, so that its first
// operand is our b, its rows are our n, and its bias, one number per row, is ours per column. Nothing is copied unless an operand has no
// dimension of stride 1. What its heuristics chose is kept per shape, layout, alignment and epilogue.
#include <array>
#include <bit>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "scaffolding/backend/cuda/cublaslt.h"
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/ops/copy/kernel.h"
#include "scaffolding/ops/matmul/gemm_finish.h"

namespace sf::cuda {
namespace {

// How much memory the heuristics may plan with; cuBLAS's own default on Hopper ("cuBLAS workspace", 2.1.8). A call takes what its algorithm asks for.
constexpr size_t kWorkspace = size_t(32) << 20;
constexpr size_t kMostPlans = 8192;  // then all are forgotten: a program of ever new shapes must not grow without end

// A matrix X[r, c] of a batch, as cuBLASLt sees memory: by columns.
struct Columns {
  const void* data = nullptr;
  int64_t rows = 0, cols = 0, ld = 0, batch_stride = 0;
  bool as_written = false;  // the columns are X's own, else its rows: then this is X^T
};

std::optional<Columns> columns_of(const TensorView& x) {
  int64_t r = x.sizes[1], c = x.sizes[2], batch = x.sizes[0] > 1 ? x.strides[0] : 0;
  int64_t along_c = r > 1 ? x.strides[1] : c, along_r = c > 1 ? x.strides[2] : r;
  if ((c == 1 || x.strides[2] == 1) && along_c >= c) return Columns{x.data, c, r, along_c, batch, false};
  if ((r == 1 || x.strides[1] == 1) && along_r >= r) return Columns{x.data, r, c, along_r, batch, true};
  return {};
}

// An operand that cuBLASLt can read: the view itself, or a dense copy of one that has no dimension of stride 1.
struct Readable {
  std::optional<Scratch> copy;
  Columns columns;

  explicit Readable(const TensorView& x) {
    if (auto c = columns_of(x)) {
      columns = *c;
      return;
    }
    Copy to{x, x};
    copy.emplace(x.device, size_t(x.numel()) * size_of(x.dtype));
    to.dst.data = copy->as<void>();
    to.dst.strides[2] = 1, to.dst.strides[1] = x.sizes[2], to.dst.strides[0] = x.sizes[1] * x.sizes[2];
    copy_kernel.find(x.device, to)(to);
    columns = *columns_of(to.dst);
  }
};

struct Epilogue {
  cublasLtEpilogue_t kind = CUBLASLT_EPILOGUE_DEFAULT;
  TensorView bias, pre;
};

// The epilogue that does all of what follows the product, if there is one (cublasLtMatmul, "Supported configurations"): none in float64, no
// sum after an activation, no GELU but the one by tanh, a bias of the result's dtype, and rows of `pre` a multiple of 8 apart.
std::optional<Epilogue> whole_epilogue(const Gemm& g) {
  bool bias = g.bias.defined();
  Epilogue e{CUBLASLT_EPILOGUE_DEFAULT, g.bias, g.pre};
  if (!bias && !g.pre && g.act == Activation::None) return e;
  if (g.a.dtype == kFloat64 || (bias && g.bias.dtype != g.c.dtype) || (g.act != Activation::None && g.beta != 0)) return {};
  switch (g.act) {
    case Activation::None:
      if (g.pre) return {};
      e.kind = CUBLASLT_EPILOGUE_BIAS;
      return e;
    case Activation::Relu:
      if (g.pre) return {};
      e.kind = bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
      return e;
    case Activation::GeluTanh:
      if (!g.pre) {
        e.kind = bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
        return e;
      }
      if (g.pre.dtype != g.c.dtype || g.pre.strides[2] != 1 || g.pre.strides[1] % 8 != 0 || g.pre.strides[1] < g.c.sizes[2] || g.pre.strides[0] % 8 != 0)
        return {};
      e.kind = bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      return e;
    default: return {};
  }
}

// The descriptors of one kind of call, and the algorithm chosen for it. Lives in the cache.
struct Plan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algo{};
  size_t workspace = 0;
  bool found = false;

  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    if (desc) cublaslt().desc_destroy(desc);
    for (auto layout : {first, second, result})
      if (layout) cublaslt().layout_destroy(layout);
  }
};

uint32_t alignment_of(const void* p) { return uint32_t(std::min<uintptr_t>(256, uintptr_t(1) << std::countr_zero(reinterpret_cast<uintptr_t>(p) | 256))); }

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

// One call in cuBLASLt's terms.
struct Product {
  DType in, out;
  int64_t batch;
  Columns first, second, result;  // b, a, c
  Epilogue epilogue;
  bool tf32;
  Device device;

  using Key = std::array<int64_t, 30>;
  Key key() const {
    Key k{};
    size_t n = 0;
    for (int64_t x : {int64_t(device.index), int64_t(in), int64_t(out), batch, int64_t(tf32), int64_t(epilogue.kind)}) k[n++] = x;
    for (const Columns* c : {&first, &second, &result})
      for (int64_t x : {c->rows, c->cols, c->ld, c->batch_stride, int64_t(c->as_written), int64_t(alignment_of(c->data))}) k[n++] = x;
    if (epilogue.bias) k[n++] = int64_t(alignment_of(epilogue.bias.data));
    if (epilogue.pre)
      for (int64_t x : {int64_t(alignment_of(epilogue.pre.data)), epilogue.pre.strides[1], epilogue.pre.strides[0]}) k[n++] = x;
    return k;
  }
  void set_pointers(cublasLtMatmulDesc_t desc) const {
    if (epilogue.bias) set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, epilogue.bias.data);
    if (epilogue.pre) set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, epilogue.pre.data);
  }
  void fill(Plan& plan) const {
    cublasComputeType_t compute = in == kFloat64 ? CUBLAS_COMPUTE_64F : in == kFloat32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    check_cublas(cublaslt().desc_create(&plan.desc, compute, in == kFloat64 ? CUDA_R_64F : CUDA_R_32F), "matmul");
    // Memory by columns holds b^T when b is dense along n, and so for a: what is wanted are b^T and a^T.
    set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSA, first.as_written ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSB, second.as_written ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(plan.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue.kind);
    if (epilogue.pre) {
      set(plan.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, epilogue.pre.strides[1]);
      set(plan.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, batch > 1 ? epilogue.pre.strides[0] : int64_t(0));
    }
    set_pointers(plan.desc);
    plan.first = layout_of(first, in, batch);
    plan.second = layout_of(second, in, batch);
    plan.result = layout_of(result, out, batch);
    cublasLtMatmulPreference_t wishes = nullptr;
    check_cublas(cublaslt().preference_create(&wishes), "matmul");
    set(wishes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
    set(wishes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(first.data));
    set(wishes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(second.data));
    set(wishes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(result.data));
    set(wishes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(result.data));
    cublasLtMatmulHeuristicResult_t best{};
    int count = 0;
    cublasStatus_t status =
        cublaslt().heuristic(cublaslt_handle(device.index), plan.desc, plan.first, plan.second, plan.result, plan.result, wishes, 1, &best, &count);
    cublaslt().preference_destroy(wishes);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) check_cublas(status, "matmul");
    plan.found = status == CUBLAS_STATUS_SUCCESS && count > 0;
    plan.algo = best.algo;
    plan.workspace = best.workspaceSize;
  }

  // False when cuBLASLt has no algorithm for it. Nothing is done then.
  bool run(double alpha, double beta) const {
    // One lock for the cache and for the pointers in a plan's descriptor: cublasLtMatmul has read them when it returns.
    static std::mutex mutex;
    static auto& plans = *new std::map<Key, Plan>;
    DeviceScope scope(device.index);
    std::lock_guard lock(mutex);
    Key k = key();
    auto at = plans.find(k);
    if (at == plans.end()) {
      if (plans.size() >= kMostPlans) plans.clear();
      at = plans.try_emplace(k).first;
      try {
        fill(at->second);
      } catch (...) {
        plans.erase(at);
        throw;
      }
    }
    Plan& plan = at->second;
    if (!plan.found) return false;
    set_pointers(plan.desc);
    Scratch workspace(device, plan.workspace);
    float alpha32 = float(alpha), beta32 = float(beta);
    const void *a = &alpha32, *b = &beta32;
    if (in == kFloat64) a = &alpha, b = &beta;
    void* c = const_cast<void*>(result.data);
    check_cublas(cublaslt().matmul(cublaslt_handle(device.index), plan.desc, a, first.data, plan.first, second.data, plan.second, b, c, plan.result, c,
                                   plan.result, &plan.algo, workspace.as<void>(), plan.workspace, Stream::current(device.index).handle),
                 "matmul");
    return true;
  }
};

// One tall product where b is shared by the batch and rows of a, c and pre follow on from entry to entry.
Gemm tall(Gemm g) {
  int64_t batch = g.c.sizes[0], m = g.c.sizes[1];
  auto follows_on = [&](const TensorView& t) { return t.strides[0] == m * t.strides[1] && (t.strides[2] == 1 || t.sizes[2] == 1); };
  if (batch == 1 || g.b.strides[0] != 0 || !follows_on(g.a) || !follows_on(g.c) || (g.pre && !follows_on(g.pre))) return g;
  for (TensorView* t : {&g.a, &g.c, &g.pre}) t->sizes[1] = batch * m, t->sizes[0] = 1;
  g.b.sizes[0] = 1;
  return g;
}

Product product_of(const Gemm& g, const Columns& a, const Columns& b, const TensorView& c, const Epilogue& epilogue) {
  return {g.a.dtype, c.dtype, c.sizes[0], b, a, *columns_of(c), epilogue, g.a.dtype == kFloat32 && matmul_allow_tf32(), c.device};
}

void run(const Gemm& given) {
  Gemm g = tall(given);
  Readable a(g.a), b(g.b);
  if (auto epilogue = whole_epilogue(g))
    if (product_of(g, a.columns, b.columns, g.c, *epilogue).run(g.alpha, g.beta)) return;
  // The product first, the rest in a pass of its own. The product is rounded to the dtype it is kept in, as where the ops are called one by one.
  std::optional<Scratch> kept;
  TensorView product = g.c;
  if (g.beta != 0) {
    kept.emplace(g.c.device, size_t(g.c.numel()) * size_of(g.c.dtype));
    product.data = kept->as<void>();
    product.strides[2] = 1, product.strides[1] = g.c.sizes[2], product.strides[0] = g.c.sizes[1] * g.c.sizes[2];
  }
  Product plain = product_of(g, a.columns, b.columns, product, {});
  if (!plain.run(g.alpha, 0)) check_cublas(CUBLAS_STATUS_NOT_SUPPORTED, "matmul");
  finish_product(g, product);
}

// Every product of floats that has something to sum; the library's absence is an error of the call and not a reason to take a slower kernel.
bool supports(const Gemm& g) {
  if (!is_floating(g.a.dtype) || is_float8(g.a.dtype) || g.a.sizes[2] == 0 || !columns_of(g.c)) return false;
  return !columns_of(g.c)->as_written && (g.c.dtype == g.a.dtype || (is_reduced(g.a.dtype) && g.c.dtype == kFloat32));
}

SF_KERNEL(gemm, DeviceType::CUDA, "cublaslt", 10, run, supports)

}  // namespace
}  // namespace sf::cuda
