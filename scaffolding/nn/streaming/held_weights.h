// HeldWeights: tensors of a model whose memory somebody else decides about. Each has a home in host memory, where it is
// when it is nowhere else: pages of a mapped file, memory, or a part of one pinned block that has them all. Tensors
// keep their identity wherever their bytes are.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::io {
class UploadRing;
}

namespace sf::nn {

class HeldWeights {
 public:
  // What is on a device goes to the host. as_in_files: as one block, each lies in its page as its home does, and those
  // that lie together in a file still do.
  void hold(const Tensors& tensors, bool as_in_files = false);
  const Tensors& tensors() const { return tensors_; }
  int64_t bytes() const { return bytes_; }

  // ---- as one block: each at a multiple of 256 bytes, but those that lay side by side (packed_projections.h) still do
  size_t laid_out_bytes() const { return laid_out_; }
  // From now on these lie next to each other, in this order, wherever they are shown. False where not all are here.
  bool lay_side_by_side(const Tensors& list);
  bool lie_side_by_side(const Tensors& list) const;  // by an earlier call
  bool holds(const Tensor& t) const { return place_of(t) < tensors_.size(); }
  void write_block(char* to);                           // from the homes; pages of files are released as they are read
  void settle(const Ref<Storage>& block);               // from now on the homes are in this block of host memory
  const Ref<Storage>& block() const { return block_; }  // null: homes are where they were found
  struct Part {
    size_t at;  // bytes from the block's begin
    Tensor home;
  };
  const std::vector<Part>& parts() const { return parts_; }

  void show(const Ref<Storage>& block);  // the tensors are views of it
  void show_home();
  int64_t bring_back();  // what the tensors show becomes the content of their homes; returns the bytes
  void sent();           // a copy of the homes was made
  // Since then: tensors were given other memory, or a home was written.
  bool changed_home() const;
  void hold_again();  // what the tensors show now

  // ---- for as long as they stay on a device
  void move_to(Device device, io::UploadRing* ring);
  void move_home();  // what was not written there is dropped

  bool in_files() const;                        // all homes are pages of files
  void refuse_changed() const;                  // RuntimeError where a file that the homes are in has changed
  void release_pages(bool from_cache = false);  // see below

 private:
  void lay_out();
  void lay_out_as_in_files();
  size_t place_of(const Tensor& t) const;  // among the tensors, or their number
  Tensor view_of(const Ref<Storage>& block, size_t i) const;

  Tensors tensors_;
  std::vector<Part> parts_;
  Ref<Storage> block_;
  struct Away {
    Ref<Storage> storage;
    uint32_t version = 0;
  };
  std::vector<Away> away_;                 // on the device
  std::vector<std::vector<size_t>> rows_;  // that lie side by side
  std::vector<uint32_t> versions_;         // of the homes, when they were sent
  int64_t bytes_ = 0;
  size_t laid_out_ = 0;
  bool as_in_files_ = false;
};

// Drops pages of files that this weight of the host lies in, and what kernels packed of it, unless keeps_packed. They
// come back when it is touched; from_cache: from the disk (io::release_mapped).
void release_pages(const Tensor& weight, bool from_cache = false, bool keeps_packed = false);

}  // namespace sf::nn
