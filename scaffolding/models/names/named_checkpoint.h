// NamedCheckpoint: one model's tensors, which lie in a file under another program's names, as a checkpoint with ours.
#pragma once
#include <memory>

#include "scaffolding/io/checkpoint.h"
#include "scaffolding/io/stored_blocks.h"
#include "scaffolding/models/names/name_table.h"

namespace sf::models {

class NamedCheckpoint final : public io::Checkpoint, public io::StoresBlocks {
 public:
  // who: "model.ckpt: its unet", for errors. names: as long as this lives, with sources as the file has them.
  NamedCheckpoint(std::shared_ptr<const io::Checkpoint> file, const NameTable& names, std::string who)
      : file_(std::move(file)), names_(names), who_(std::move(who)) {}
  const char* kind() const override { return file_->kind(); }
  std::vector<std::string> names() const override;
  bool contains(const std::string& name) const override { return names_.find(name); }
  io::CheckpointEntry entry(const std::string& name) const override;
  Tensor get(const std::string& name) const override;
  // Of a tensor that is a source, or rows of one, with its numbers in the same order.
  std::optional<io::StoredBlocks> blocks(const std::string& name) const override;

 private:
  const NamedTensor& named(const std::string& name) const;
  std::shared_ptr<const io::Checkpoint> file_;
  const NameTable& names_;
  std::string who_;
};

// ValueError that names tensors which the file lacks or has in another shape; it begins with `who`.
void check_sources(const NameTable& names, const io::Checkpoint& file, const std::string& who);

}  // namespace sf::models
