// Of checkpoints whose tensors may lie in blocks that products read as they are (ops/quantize/gguf.h): GGUF files.
#pragma once
#include <optional>
#include <string>

#include "scaffolding/core/tensor.h"

namespace sf::io {

struct StoredBlocks {
  Tensor bytes;        // uint8, one dimension; borrows the file's
  std::string format;  // "Q4_K"
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
