// Of checkpoints whose tensors may lie in few bits that products read as they are: GGUF files (ops/quantize/gguf.h),
// and files with float8 or int8 and scales (io/scaled_checkpoint.h).
#pragma once
#include <optional>
#include <string>

#include "scaffolding/core/tensor.h"

namespace sf::io {

struct StoredBlocks {
  Tensor bytes;        // uint8, one dimension; borrows the file's. With a scale: the weight as it is, float8 or int8
  std::string format;  // "Q4_K", "float8_e4m3fn", "int8"
  Tensor scale;        // float32, [] or [rows]: the numbers are bytes * scale
};

// A checkpoint is one too where it can have such tensors: dynamic_cast tells.
class StoresBlocks {
 public:
  virtual ~StoresBlocks() = default;
  // Nothing for a tensor that is no blocks, or whose blocks are another tensor's too. ValueError for a name that is not
  // there.
  virtual std::optional<StoredBlocks> blocks(const std::string& name) const = 0;
};

}  // namespace sf::io
