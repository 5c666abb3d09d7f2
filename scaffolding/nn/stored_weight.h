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

// What these layers check; the errors begin with the layer's name.
void check_features(const char* layer, int64_t in, int64_t out);
void check_dense_weight(const char* layer, const Tensor& dense, int64_t out, int64_t in);
void check_input_features(const char* layer, const Tensor& input, int64_t in);

// Magnitudes of blocks as bitsandbytes keeps them: as they are, or in eight bits about their mean.
struct BlockMagnitudes {
  Tensor absmax, nested_absmax, offset;  // the latter absent where they are as they are
};
BlockMagnitudes kept_magnitudes(const Tensor& magnitudes, bool compress);

}  // namespace sf::nn
