// cuBLASLt: the functions of the library that products use, found at run time, and a handle per device.
// The header is the toolkit's; nothing is linked. Thread-safe once made.
#pragma once
#include <cublasLt.h>

#include "scaffolding/core/dtype.h"

namespace sf::cuda {

struct CublasLt {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoCheck) algo_check;
  decltype(&cublasLtMatmul) matmul;
};

const CublasLt& cublaslt();                    // RuntimeError naming the library and where it was looked for
cublasLtHandle_t cublaslt_handle(int device);  // made on first use, for the process
void check_cublas(cublasStatus_t status, const char* op);  // RuntimeError "<op>: cuBLASLt: ..."
cudaDataType_t cuda_type(DType t);                         // of a floating dtype, int8 or int32

}  // namespace sf::cuda
