#include "scaffolding/backend/cuda/tensor_map.h"

#include <cuda.h>

#include "scaffolding/backend/cuda/driver.h"
#include "scaffolding/core/error.h"

namespace sf::cuda {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) && alignof(TensorMap) >= alignof(CUtensorMap));

TensorMap tensor_map(const char* op, const void* data, DType dtype, int64_t rows, int64_t cols, int64_t stride,
                     int box_rows) {
  static const auto encode =
      reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(driver_function("cuTensorMapEncodeTiled"));
  if (!encode)
    fail<RuntimeError>(op, ": the NVIDIA driver has no cuTensorMapEncodeTiled: CUDA 12.0 or later is needed");
  const cuuint64_t sizes[] = {cuuint64_t(cols), cuuint64_t(rows)}, strides[] = {cuuint64_t(stride) * size_of(dtype)};
  const cuuint32_t box[] = {cuuint32_t(kBoxRowBytes / size_of(dtype)), cuuint32_t(box_rows)}, every[] = {1, 1};
  const CUtensorMapDataType type = dtype == kBFloat16  ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                   : dtype == kFloat16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                       : CU_TENSOR_MAP_DATA_TYPE_UINT8;
  TensorMap map;
  const CUresult status = encode(reinterpret_cast<CUtensorMap*>(&map), type, 2, const_cast<void*>(data), sizes, strides,
                                 box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    fail<RuntimeError>(op, ": cuTensorMapEncodeTiled refuses [", rows, ", ", cols, "] with rows ", stride,
                       " apart (error ", int(status), ')');
  return map;
}

}  // namespace sf::cuda
