#include "scaffolding/backend/cuda/tensor_map.h"

#include <cuda.h>

#include "scaffolding/backend/cuda/driver.h"
#include "scaffolding/core/error.h"

namespace sf::cuda {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) && alignof(TensorMap) >= alignof(CUtensorMap));

namespace {

// sizes[rank], from the dense dimension on; strides[rank - 1] in bytes, of the others.
TensorMap encoded(const char* op, const void* data, DType dtype, int rank, const cuuint64_t* sizes,
                  const cuuint64_t* strides, int box_rows) {
  static const auto encode =
      reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(driver_function("cuTensorMapEncodeTiled"));
  if (!encode)
    fail<RuntimeError>(op, ": the NVIDIA driver has no cuTensorMapEncodeTiled: CUDA 12.0 or later is needed");
  const cuuint32_t box[] = {cuuint32_t(kBoxRowBytes / size_of(dtype)), cuuint32_t(box_rows), 1, 1},
                   every[] = {1, 1, 1, 1};
  const CUtensorMapDataType type = dtype == kBFloat16  ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                   : dtype == kFloat16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                       : CU_TENSOR_MAP_DATA_TYPE_UINT8;
  TensorMap map;
  const CUresult status = encode(reinterpret_cast<CUtensorMap*>(&map), type, cuuint32_t(rank), const_cast<void*>(data),
                                 sizes, strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    fail<RuntimeError>(op, ": cuTensorMapEncodeTiled refuses rows of ", sizes[0], " elements, ", strides[0],
                       " bytes apart (error ", int(status), ')');
  return map;
}

}  // namespace

TensorMap tensor_map(const char* op, const void* data, DType dtype, int64_t rows, int64_t cols, int64_t stride,
                     int box_rows) {
  const cuuint64_t sizes[] = {cuuint64_t(cols), cuuint64_t(rows)}, strides[] = {cuuint64_t(stride) * size_of(dtype)};
  return encoded(op, data, dtype, 2, sizes, strides, box_rows);
}

TensorMap heads_map(const char* op, const TensorView& x, int box_rows) {
  cuuint64_t sizes[4], strides[3];
  for (int i = 0; i < 4; ++i) sizes[i] = cuuint64_t(x.sizes[3 - i]);
  for (int i = 0; i < 3; ++i) strides[i] = cuuint64_t(x.sizes[2 - i] > 1 ? x.strides[2 - i] : x.sizes[3]) * 2;
  return encoded(op, x.data, x.dtype, 4, sizes, strides, box_rows);
}

}  // namespace sf::cuda
