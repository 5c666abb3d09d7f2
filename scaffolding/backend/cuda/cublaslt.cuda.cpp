#include "scaffolding/backend/cuda/cublaslt.h"

#include <mutex>
#include <string>

#include "scaffolding/backend/cuda/device.h"
#include "scaffolding/backend/cuda/queued.h"
#include "scaffolding/backend/cuda/relaxed.h"
#include "scaffolding/backend/library.h"
#include "scaffolding/core/error.h"

namespace sf::cuda {

static CublasLt load() {
  Library lib(("libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR)).c_str(),
              reinterpret_cast<const void*>(&check_cublas));
  CublasLt f{};
  lib.find(f.create, "cublasLtCreate");
  lib.find(f.version, "cublasLtGetVersion");
  lib.find(f.desc_create, "cublasLtMatmulDescCreate");
  lib.find(f.desc_destroy, "cublasLtMatmulDescDestroy");
  lib.find(f.desc_set, "cublasLtMatmulDescSetAttribute");
  lib.find(f.layout_create, "cublasLtMatrixLayoutCreate");
  lib.find(f.layout_destroy, "cublasLtMatrixLayoutDestroy");
  lib.find(f.layout_set, "cublasLtMatrixLayoutSetAttribute");
  lib.find(f.preference_create, "cublasLtMatmulPreferenceCreate");
  lib.find(f.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  lib.find(f.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  lib.find(f.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  lib.find(f.algo_check, "cublasLtMatmulAlgoCheck");
  lib.find(f.matmul, "cublasLtMatmul");
  return f;
}

const CublasLt& cublaslt() {
  static const CublasLt functions = load();  // throws again on the next call when it throws
  return functions;
}

void check_cublas(cublasStatus_t status, const char* op) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  const char* text = "an error of its own";
  switch (status) {
    case CUBLAS_STATUS_NOT_INITIALIZED: text = "it could not start: no usable GPU, or no memory on it"; break;
    case CUBLAS_STATUS_ALLOC_FAILED: text = "it found no memory"; break;
    case CUBLAS_STATUS_INVALID_VALUE: text = "an argument is invalid"; break;
    case CUBLAS_STATUS_ARCH_MISMATCH: text = "the GPU lacks what this product needs"; break;
    case CUBLAS_STATUS_EXECUTION_FAILED: text = "a kernel failed"; break;
    case CUBLAS_STATUS_NOT_SUPPORTED: text = "it has no algorithm for this product"; break;
    default: break;
  }
  fail<RuntimeError>(op, ": cuBLASLt: ", text, " (status ", int(status), ")",
                     status == CUBLAS_STATUS_EXECUTION_FAILED ? suspects() : "");
}

cublasLtHandle_t cublaslt_handle(int device) {
  static std::mutex mutex;
  static cublasLtHandle_t handles[kMaxDevices] = {};
  std::lock_guard lock(mutex);
  if (!handles[device]) {
    DeviceScope scope(device);
    Relaxed relaxed;
    check_cublas(cublaslt().create(&handles[device]), "matmul");
  }
  return handles[device];
}

cudaDataType_t cuda_type(DType t) {
  switch (t) {
    case kBFloat16: return CUDA_R_16BF;
    case kFloat16: return CUDA_R_16F;
    case kFloat64: return CUDA_R_64F;
    case kFloat8E4M3: return CUDA_R_8F_E4M3;
    case kFloat8E5M2: return CUDA_R_8F_E5M2;
    case kInt8: return CUDA_R_8I;
    case kInt32: return CUDA_R_32I;
    default: return CUDA_R_32F;
  }
}

}  // namespace sf::cuda
