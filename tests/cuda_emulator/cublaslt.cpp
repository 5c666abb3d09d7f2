// A stand-in for libcublasLt.so.13, so that what we ask of it is computed and checked: layouts, leading dimensions,
// transposes, batch strides, epilogues, alignments that were promised, workspace. It refuses what the documentation of
// cublasLtMatmul does not list. Sums in double.
#include <cublasLt.h>
#include <math.h>
#include <stdlib.h>

#include <cstring>
#include <initializer_list>
#include <vector>

#include "scaffolding/core/half.h"

extern "C" void sf_cuda_emulator_queue(cudaStream_t stream, void (*work)(void*), void* argument, void (*drop)(void*));
extern "C" int sf_cuda_emulator_unsafe_call();
extern "C" int sf_cuda_emulator_safe_call();

struct EmulatedCublasLt {};
struct EmulatedMatmulDesc {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t transa = CUBLAS_OP_N, transb = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* aux = nullptr;
  int64_t aux_ld = 0, aux_batch = 0;
  const float *scale_a = nullptr, *scale_b = nullptr;
  int32_t scale_mode_a = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
          scale_mode_b = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  int32_t bias_type = -1;  // the result's
  int8_t fast_accum = 0;
  uint32_t loaded = 0;  // a bit for each kernel that has run
  cudaDataType_t type_of_bias(cudaDataType_t result) const {
    return bias_type < 0 ? result : cudaDataType_t(bias_type);
  }
};
struct EmulatedMatrixLayout {
  cudaDataType_t type;
  int64_t rows, cols, ld;
  int32_t batch = 1;
  int64_t batch_offset = 0;
};
struct EmulatedPreference {
  uint64_t workspace = 0;
  uint32_t alignment[4] = {256, 256, 256, 256};
};

namespace {

double read(const void* p, cudaDataType_t t, int64_t i) {
  switch (t) {
    case CUDA_R_64F: return static_cast<const double*>(p)[i];
    case CUDA_R_32F: return double(static_cast<const float*>(p)[i]);
    case CUDA_R_8I: return double(static_cast<const int8_t*>(p)[i]);
    case CUDA_R_32I: return double(static_cast<const int32_t*>(p)[i]);
    case CUDA_R_16F: return double(sf::to_float(static_cast<const sf::Half*>(p)[i]));
    case CUDA_R_8F_E4M3: return double(sf::to_float(static_cast<const sf::Float8E4M3*>(p)[i]));
    case CUDA_R_8F_E5M2: return double(sf::to_float(static_cast<const sf::Float8E5M2*>(p)[i]));
    default: return double(sf::to_float(static_cast<const sf::BFloat16*>(p)[i]));
  }
}
void write(void* p, cudaDataType_t t, int64_t i, double x) {
  switch (t) {
    case CUDA_R_64F: static_cast<double*>(p)[i] = x; return;
    case CUDA_R_32F: static_cast<float*>(p)[i] = float(x); return;
    case CUDA_R_32I: static_cast<int32_t*>(p)[i] = int32_t(uint32_t(int64_t(x))); return;
    case CUDA_R_16F: static_cast<sf::Half*>(p)[i] = sf::to_half(float(x)); return;
    default: static_cast<sf::BFloat16*>(p)[i] = sf::to_bfloat16(float(x)); return;
  }
}

// What a queued product needs: everything by value, since descriptors may change after the call.
struct Job {
  EmulatedMatmulDesc desc;
  EmulatedMatrixLayout a, b, d;
  const void *A, *B, *C;
  void *D, *workspace;
  size_t workspace_bytes;
  double alpha, beta;
};

double round_tf32(double x) {
  float f = float(x);
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  bits = (bits + 0x1000) & ~0x1fffu;
  std::memcpy(&f, &bits, 4);
  return double(f);
}

// What a Hopper's matrix units keep of a sum of float8's products: 14 bits, cut off after each 32 products, as far as
// people have found out (DeepSeek-V3 report, 3.3.2).
constexpr int64_t kProductsAtOnce = 32;
double cut_to_14_bits(double x) {
  int exponent = 0;
  const double fraction = frexp(x, &exponent);
  return ldexp(trunc(ldexp(fraction, 14)), exponent - 14);
}

// An epilogue's number is a sum of what it does.
constexpr uint32_t kDrelu = 8, kSumOfColumns = 16, kDgelu = 64, kAux = 128;
// The mask of signs, whose distances are in bits.
bool has_mask(uint32_t epilogue) { return (epilogue & kAux) && (epilogue & (CUBLASLT_EPILOGUE_RELU | kDrelu)); }
// DGELU and DRELU: the product times the slope of the activation at what the forward pass kept; with BGRAD the bias'
// gradient is the sum over columns of that.
bool is_gradient(uint32_t epilogue) { return epilogue & (kDrelu | kDgelu); }
// The GPU's approximate tanh: 2^-11 (PTX ISA, tanh.approx).
double tanh_of(double x) { return nearbyint(tanh(x) * 2048) / 2048; }
double gelu_slope(double x) {
  const double k = 0.79788456080286536, t = tanh_of(k * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x);
}

void run(void* argument) {
  Job* j = static_cast<Job*>(argument);
  const EmulatedMatmulDesc& s = j->desc;
  if (j->workspace) std::memset(j->workspace, 0x5a, j->workspace_bytes);  // whoever still needs those bytes finds out
  int64_t inner = s.transa == CUBLAS_OP_N ? j->a.cols : j->a.rows;
  bool tf32 = s.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  std::vector<double> gradient_of_bias(s.epilogue & kSumOfColumns ? size_t(j->d.rows) : 0);
  for (int64_t n = 0; n < j->d.batch; ++n)
    for (int64_t col = 0; col < j->d.cols; ++col) {
      if (s.epilogue == CUBLASLT_EPILOGUE_BGRADB) {
        double sum = 0;
        for (int64_t k = 0; k < inner; ++k)
          sum += read(j->B, j->b.type, s.transb == CUBLAS_OP_N ? k + col * j->b.ld : col + k * j->b.ld);
        write(const_cast<void*>(s.bias), s.type_of_bias(j->d.type), col, sum);
      }
      for (int64_t row = 0; row < j->d.rows; ++row) {
        double sum = 0;
        for (int64_t k = 0; k < inner; ++k) {
          double x = read(j->A, j->a.type,
                          n * j->a.batch_offset + (s.transa == CUBLAS_OP_N ? row + k * j->a.ld : k + row * j->a.ld));
          double y = read(j->B, j->b.type,
                          n * j->b.batch_offset + (s.transb == CUBLAS_OP_N ? k + col * j->b.ld : col + k * j->b.ld));
          sum += tf32 ? round_tf32(x) * round_tf32(y) : x * y;
          if (s.fast_accum && (k + 1) % kProductsAtOnce == 0) sum = cut_to_14_bits(sum);
        }
        int64_t at = n * j->d.batch_offset + row + col * j->d.ld;
        double v = j->alpha * sum;
        if (s.scale_a) v *= double(s.scale_a[s.scale_mode_a == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F ? row : 0]);
        if (s.scale_b) v *= double(s.scale_b[s.scale_mode_b == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F ? col : 0]);
        if (j->beta != 0) v += j->beta * read(j->C, j->d.type, at);
        if (s.epilogue & CUBLASLT_EPILOGUE_BIAS) v += read(s.bias, s.type_of_bias(j->d.type), row);
        const int64_t aux = n * s.aux_batch + row + col * s.aux_ld;
        if (s.epilogue & kDgelu) {
          v *= gelu_slope(read(s.aux, j->d.type, aux));
        } else if (has_mask(s.epilogue)) {
          uint8_t& bits = static_cast<uint8_t*>(s.aux)[aux / 8];
          const uint8_t bit = uint8_t(1 << aux % 8);
          if (s.epilogue & kDrelu) v = bits & bit ? v : 0;
          else bits = uint8_t(v > 0 ? bits | bit : bits & ~bit);
        } else if (s.epilogue & kAux) {
          write(s.aux, j->d.type, aux, v);
        }
        if (s.epilogue & kSumOfColumns) gradient_of_bias[size_t(row)] += v;
        if (s.epilogue & CUBLASLT_EPILOGUE_RELU) v = v < 0 ? 0 : v;
        if (s.epilogue & CUBLASLT_EPILOGUE_GELU)
          v = 0.5 * v * (1 + tanh_of(0.79788456080286536 * (v + 0.044715 * v * v * v)));
        write(j->D, j->d.type, at, v);
      }
    }
  for (size_t row = 0; row < gradient_of_bias.size(); ++row)
    write(const_cast<void*>(s.bias), s.type_of_bias(j->d.type), int64_t(row), gradient_of_bias[row]);
}
void drop(void* argument) { delete static_cast<Job*>(argument); }

bool aligned(const void* p, uint32_t to) { return reinterpret_cast<uintptr_t>(p) % to == 0; }
uint32_t alignment_of(const void* p) {
  uint32_t n = 1;
  while (n < 16 && aligned(p, 2 * n)) n *= 2;
  return n;
}

// What would be wrong with the call, as the library would answer.
cublasStatus_t examine(const EmulatedMatmulDesc& s, const EmulatedMatrixLayout& a, const EmulatedMatrixLayout& b,
                       const EmulatedMatrixLayout& d) {
  for (auto* m : {&a, &b, &d})
    if (m->rows <= 0 || m->cols <= 0 || m->ld < m->rows || m->batch < 1) return CUBLAS_STATUS_INVALID_VALUE;
  bool ta = s.transa == CUBLAS_OP_T, tb = s.transb == CUBLAS_OP_T;
  if ((ta ? a.cols : a.rows) != d.rows || (tb ? b.rows : b.cols) != d.cols ||
      (ta ? a.rows : a.cols) != (tb ? b.cols : b.rows))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (a.batch != d.batch || b.batch != d.batch) return CUBLAS_STATUS_INVALID_VALUE;
  bool wide = a.type == CUDA_R_64F;
  auto is_float8 = [](cudaDataType_t t) { return t == CUDA_R_8F_E4M3 || t == CUDA_R_8F_E5M2; };
  auto is_short = [](cudaDataType_t t) { return t == CUDA_R_16F || t == CUDA_R_16BF; };
  if ((s.epilogue & (CUBLASLT_EPILOGUE_BIAS | kSumOfColumns)) && !s.bias) return CUBLAS_STATUS_INVALID_VALUE;
  if (is_float8(a.type) || is_float8(b.type)) {
    if (!is_float8(a.type) || !is_float8(b.type) || (a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2))
      return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!ta || tb || s.compute != CUBLAS_COMPUTE_32F || s.scale != CUDA_R_32F ||
        !(is_short(d.type) || d.type == CUDA_R_32F))
      return CUBLAS_STATUS_NOT_SUPPORTED;
    if (a.rows % 16 != 0 || a.ld % 16 != 0 || b.ld % 16 != 0 || d.rows % 16 != 0 || s.scale_mode_a != s.scale_mode_b)
      return CUBLAS_STATUS_NOT_SUPPORTED;
    if (s.epilogue != CUBLASLT_EPILOGUE_DEFAULT && s.epilogue != CUBLASLT_EPILOGUE_BIAS)
      return CUBLAS_STATUS_NOT_SUPPORTED;
    cudaDataType_t bias = d.type == CUDA_R_16F ? CUDA_R_16F : CUDA_R_16BF;
    if (s.epilogue == CUBLASLT_EPILOGUE_BIAS && s.type_of_bias(d.type) != bias) return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
  }
  // "Regular data ordering" of IMMA kernels: TN alone, m, k and leading dimensions multiples of 4, no epilogue; scales
  // of int32 with a result of int32.
  if (a.type == CUDA_R_8I || b.type == CUDA_R_8I) {
    const bool types = a.type == b.type && d.type == CUDA_R_32I && s.scale == CUDA_R_32I;
    const bool fours = d.rows % 4 == 0 && a.rows % 4 == 0 && a.ld % 4 == 0 && b.ld % 4 == 0 && d.ld % 4 == 0;
    const bool plain = s.epilogue == CUBLASLT_EPILOGUE_DEFAULT && !s.scale_a && !s.scale_b;
    return types && fours && plain && ta && !tb && s.compute == CUBLAS_COMPUTE_32I ? CUBLAS_STATUS_SUCCESS
                                                                                   : CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (s.fast_accum || s.compute == CUBLAS_COMPUTE_32I || s.scale == CUDA_R_32I) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (s.scale_a || s.scale_b || (s.bias_type >= 0 && s.bias_type != d.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (s.epilogue == CUBLASLT_EPILOGUE_BGRADB || s.epilogue == CUBLASLT_EPILOGUE_BGRADA) {
    if (!s.bias) return CUBLAS_STATUS_INVALID_VALUE;
    if (wide || s.epilogue == CUBLASLT_EPILOGUE_BGRADA || d.batch != 1) return CUBLAS_STATUS_NOT_SUPPORTED;
    // An H100 refuses two of the four shapes of quantize_device_test.cpp: as many as were read so.
    if (s.transb != CUBLAS_OP_T) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (a.type != b.type || (d.type != a.type && (wide || d.type != CUDA_R_32F))) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (wide != (s.compute == CUBLAS_COMPUTE_64F) || wide != (s.scale == CUDA_R_64F)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (s.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (wide && s.epilogue != CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_NOT_SUPPORTED;
  const int64_t unit = has_mask(s.epilogue) ? 128 : 8;
  if ((s.epilogue & kAux) && (!s.aux || s.aux_ld % unit != 0 || s.aux_ld < d.rows || s.aux_batch % unit != 0))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (is_gradient(s.epilogue) && d.batch != 1) return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

#define SF_EXPORT extern "C" __attribute__((visibility("default")))

// For tests: what is refused besides. kEpilogues: heuristics call every epilogue invalid; kFirst, kAll: the first
// algorithm, or each, is proposed and refuses when it runs, kRunningEpilogues: each where there is an epilogue.
constexpr int kEpilogues = 1, kFirst = 2, kAll = 4, kRunningEpilogues = 8;
static int g_refusals = [] {
  const char* from = getenv("SF_CUBLASLT_EMULATOR_REFUSES");
  return from ? atoi(from) : 0;
}();
SF_EXPORT void sf_cublaslt_emulator_refuse(int what) { g_refusals = what; }

SF_EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) {
  if (sf_cuda_emulator_unsafe_call() != 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  *h = new EmulatedCublasLt;
  return CUBLAS_STATUS_SUCCESS;
}
SF_EXPORT size_t cublasLtGetVersion() { return 130000; }
SF_EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t compute,
                                                  cudaDataType_t scale) {
  *d = new EmulatedMatmulDesc{compute, scale};
  return CUBLAS_STATUS_SUCCESS;
}
SF_EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete d;
  return CUBLAS_STATUS_SUCCESS;
}
SF_EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t what,
                                                        const void* value, size_t bytes) {
  auto take = [&](auto& field) {
    if (bytes != sizeof field) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(d->transa);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(d->transb);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return take(d->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(d->bias);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return take(d->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return take(d->aux_ld);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: return take(d->aux_batch);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return take(d->scale_a);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return take(d->scale_b);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return take(d->bias_type);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return take(d->fast_accum);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE: return take(d->scale_mode_a);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE: return take(d->scale_mode_b);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
SF_EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* m, cudaDataType type, uint64_t rows,
                                                    uint64_t cols, int64_t ld) {
  *m = new EmulatedMatrixLayout{type, int64_t(rows), int64_t(cols), ld};
  return CUBLAS_STATUS_SUCCESS;
}
SF_EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t m) {
  delete m;
  return CUBLAS_STATUS_SUCCESS;
}
SF_EXPORT cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t m,
                                                          cublasLtMatrixLayoutAttribute_t what, const void* value,
                                                          size_t bytes) {
  bool count = what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
  if (bytes != (count ? sizeof m->batch : sizeof m->batch_offset)) return CUBLAS_STATUS_INVALID_VALUE;
  if (count) std::memcpy(&m->batch, value, bytes);
  else std::memcpy(&m->batch_offset, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
SF_EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  *p = new EmulatedPreference;
  return CUBLAS_STATUS_SUCCESS;
}
SF_EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete p;
  return CUBLAS_STATUS_SUCCESS;
}
SF_EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                              cublasLtMatmulPreferenceAttributes_t what,
                                                              const void* value, size_t bytes) {
  bool workspace = what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  if (bytes != (workspace ? sizeof p->workspace : sizeof p->alignment[0])) return CUBLAS_STATUS_INVALID_VALUE;
  if (workspace) std::memcpy(&p->workspace, value, bytes);
  else std::memcpy(&p->alignment[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

// An algorithm's words are the alignments it counts on, its number, and how the epilogue's pointers were aligned when
// heuristics were asked ("depend on its value to determine expected pointer alignment"). It wants some workspace, as
// those that split sums do. Number 1 refuses when it is run, as the real ones sometimes do,
// the others differ in their workspace.
constexpr int kAlgorithms = 3, kRefuses = 1;
static size_t workspace_of(int algorithm) { return size_t(1024) << algorithm; }
static int64_t g_runs[kAlgorithms] = {}, g_questions = 0;
// For tests: how often an algorithm ran, and how often heuristics were asked.
SF_EXPORT int64_t sf_cublaslt_emulator_runs(int64_t algorithm) {
  return algorithm >= 0 && algorithm < kAlgorithms ? g_runs[algorithm] : -1;
}
SF_EXPORT int64_t sf_cublaslt_emulator_questions() { return g_questions; }

SF_EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t s,
                                                        cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                        cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                                        cublasLtMatmulPreference_t p, int wanted,
                                                        cublasLtMatmulHeuristicResult_t* result, int* found) {
  *found = 0;
  ++g_questions;
  if (!handle || wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  if (sf_cuda_emulator_unsafe_call() != 0) return CUBLAS_STATUS_EXECUTION_FAILED;
  cublasStatus_t status = examine(*s, *a, *b, *d);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if ((g_refusals & kEpilogues) && s->epilogue != CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_INVALID_VALUE;
  bool short_floats = a->type == CUDA_R_8F_E4M3 || a->type == CUDA_R_8F_E5M2;
  if (short_floats && (p->alignment[0] < 16 || p->alignment[1] < 16)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (a->type == CUDA_R_8I && (p->alignment[0] < 4 || p->alignment[1] < 4)) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (; *found < wanted && *found < kAlgorithms; ++*found) {
    result[*found] = {};
    for (int i = 0; i < 4; ++i) result[*found].algo.data[i] = p->alignment[i];
    result[*found].algo.data[4] = uint64_t(*found);
    result[*found].algo.data[5] = alignment_of(s->bias), result[*found].algo.data[6] = alignment_of(s->aux);
    result[*found].workspaceSize = p->workspace < workspace_of(*found) ? p->workspace : workspace_of(*found);
  }
  return CUBLAS_STATUS_SUCCESS;
}

SF_EXPORT cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t s,
                                                 cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                 cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                                 const cublasLtMatmulAlgo_t* algo,
                                                 cublasLtMatmulHeuristicResult_t* result) {
  if (!handle || !algo) return CUBLAS_STATUS_INVALID_VALUE;
  cublasStatus_t status = examine(*s, *a, *b, *d);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (algo->data[4] >= kAlgorithms || algo->data[4] == kRefuses) return CUBLAS_STATUS_NOT_SUPPORTED;
  *result = {*algo, workspace_of(int(algo->data[4])), CUBLAS_STATUS_SUCCESS, 1, {}};
  return CUBLAS_STATUS_SUCCESS;
}

SF_EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t s, const void* alpha,
                                        const void* A, cublasLtMatrixLayout_t a, const void* B,
                                        cublasLtMatrixLayout_t b, const void* beta, const void* C,
                                        cublasLtMatrixLayout_t, void* D, cublasLtMatrixLayout_t d,
                                        const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes,
                                        cudaStream_t stream) {
  if (!handle || !algo || (workspace_bytes > 0 && !workspace)) return CUBLAS_STATUS_INVALID_VALUE;
  cublasStatus_t status = examine(*s, *a, *b, *d);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const void* pointers[] = {A, B, C, D};
  for (int i = 0; i < 4; ++i)
    if (!aligned(pointers[i], uint32_t(algo->data[i]))) return CUBLAS_STATUS_INVALID_VALUE;
  if (!aligned(s->bias, uint32_t(algo->data[5])) || !aligned(s->aux, uint32_t(algo->data[6])))
    return CUBLAS_STATUS_INVALID_VALUE;
  auto number = [&](const void* p) {
    if (s->scale == CUDA_R_32I) return double(*static_cast<const int32_t*>(p));
    return s->scale == CUDA_R_64F ? *static_cast<const double*>(p) : double(*static_cast<const float*>(p));
  };
  const uint32_t kernel = 1u << (2 * (algo->data[4] % 16) + (number(beta) != 0));
  if ((s->loaded & kernel ? sf_cuda_emulator_safe_call() : sf_cuda_emulator_unsafe_call()) != 0)
    return CUBLAS_STATUS_EXECUTION_FAILED;
  s->loaded |= kernel;
  if ((g_refusals & kRunningEpilogues) && s->epilogue != CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_NOT_SUPPORTED;
  if ((g_refusals & kAll) || ((g_refusals & kFirst) && algo->data[4] == 0)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (algo->data[4] >= kAlgorithms || algo->data[4] == kRefuses || workspace_bytes < workspace_of(int(algo->data[4])))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  ++g_runs[algo->data[4]];
  sf_cuda_emulator_queue(
      stream, run, new Job{*s, *a, *b, *d, A, B, C, D, workspace, workspace_bytes, number(alpha), number(beta)}, drop);
  return CUBLAS_STATUS_SUCCESS;
}
