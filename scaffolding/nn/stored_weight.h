// What layers have in common whose frozen weight stays in few bits: NF4 and FP4, int8 rows, float8, GGUF's blocks.
#pragma once
#include <string>

#include "scaffolding/core/tensor.h"

namespace sf::nn {

class StoredWeight {
 public:
  virtual ~StoredWeight() = default;
  virtual std::string weight_format() const = 0;       // "nf4", "Q4_K", "float8_e4m3fn"
  virtual Shape dense_shape() const = 0;               // of the weight that it stands for
  virtual Tensor dense_weight(DType dtype) const = 0;  // that weight, as forward() multiplies with it
};

class StoredLinear : public StoredWeight {
 public:
  // What forward() gives plus a residual of that size: one pass over the weight where nothing learns.
  virtual Tensor forward_plus(const Tensor& input, const Tensor& residual) const = 0;
};

}  // namespace sf::nn
