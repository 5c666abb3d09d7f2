// What a checkpoint file says of itself, for looking into many files of strangers.
#pragma once
#include "scaffolding/io/checkpoint.h"

namespace sf::io {

inline constexpr uint64_t kMostHead = uint64_t(16) << 20, kMostPickleHead = uint64_t(4) << 20;

// Names, shapes, dtypes and metadata of safetensors, PyTorch's zip and GGUF. Of headers and directories at most
// kMostHead bytes are read, of pickles kMostPickleHead, and nothing is inflated: what would take more is a ValueError,
// and another kind of file NotSupported or ValueError. Tensors are not to be asked for. Thread-safe.
std::shared_ptr<const Checkpoint> open_checkpoint_head(const std::string& path);
std::shared_ptr<const Checkpoint> open_checkpoint_head(const Bytes& file);

}  // namespace sf::io
