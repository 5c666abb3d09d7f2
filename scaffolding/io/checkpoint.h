// One way into every kind of checkpoint file: names, shapes and dtypes, and the tensors one by one.
// The kind is recognised by content, not by the file's name. Thread-safe.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "scaffolding/core/tensor.h"
#include "scaffolding/io/file.h"

namespace sf::io {

struct CheckpointEntry {
  std::string name;
  std::string dtype;  // as the format spells it: "F32", "float32", "Q4_K"
  Shape shape;
};

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;
  // "safetensors", "sharded", "torch", "gguf", "npz" or "npy".
  virtual const char* kind() const = 0;
  virtual std::vector<std::string> names() const = 0;
  virtual bool contains(const std::string& name) const = 0;
  virtual CheckpointEntry entry(const std::string& name) const = 0;  // ValueError for a name that is not there
  virtual std::vector<CheckpointEntry> entries() const;              // of all names()
  virtual Tensor get(const std::string& name) const = 0;             // borrows the file's bytes where the format allows
  virtual std::map<std::string, std::string> metadata() const { return {}; }
};

// `path`: a file, or a folder that holds one index or one checkpoint. Of a torch file the tensors of nested dicts and
// lists are offered with their keys joined by dots ("state_dict.conv.weight"). An .npy file offers one, "array".
// Shards are opened when their first tensor is asked for. ValueError when the file is damaged or of no known kind.
std::shared_ptr<const Checkpoint> open_checkpoint(const std::string& path);
std::shared_ptr<const Checkpoint> open_checkpoint(const Bytes& file);  // a sharded one needs a path
std::map<std::string, Tensor> load_checkpoint(const std::string& path);
// Tensors in memory as a checkpoint, whose kind is "tensors": for readers of files that take what was read already.
std::shared_ptr<const Checkpoint> checkpoint_of(std::map<std::string, Tensor> tensors);

}  // namespace sf::io
