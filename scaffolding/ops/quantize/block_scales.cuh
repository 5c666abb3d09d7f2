// The magnitudes of blocks of codes on CUDA: float32, or bytes of the dynamic map in blocks of their own.
#pragma once
#include "scaffolding/core/tensor_view.h"
#include "scaffolding/ops/quantize/codes.h"
#include "scaffolding/ops/quantize/kernel.h"

namespace sf::cuda {

static __device__ const DynamicTable dynamic_table = make_dynamic_table();
static __device__ const Nf4Table nf4_table = kNf4, fp4_table = kFp4;

struct BlockScales {
  const void* absmax;
  const float *nested, *offset;  // null where absmax is float32
  int shift;                     // log2 of the block

  BlockScales(const TensorView& magnitudes, const TensorView& of_magnitudes, const TensorView& mean, int64_t block)
      : absmax(magnitudes.data),
        nested(of_magnitudes ? of_magnitudes.as<const float>() : nullptr),
        offset(mean ? mean.as<const float>() : nullptr),
        shift(0) {
    while (int64_t(1) << shift < block) ++shift;
  }
  __device__ float of(int64_t element) const {
    const int64_t b = element >> shift;
    if (!nested) return static_cast<const float*>(absmax)[b];
    return dynamic_table.v[static_cast<const uint8_t*>(absmax)[b]] * nested[b / kNestedBlock] + *offset;
  }
};

}  // namespace sf::cuda
