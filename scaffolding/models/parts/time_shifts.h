// TimeShifts: what a network's residual blocks make of the time embedding, for all of them at once. In force on its
// thread for as long as it lives, on CUDA where no gradient is recorded and each of the blocks takes it; elsewhere it
// does nothing, and blocks compute their own. Asked in the order of the blocks.
#pragma once
#include "scaffolding/models/parts/resnet.h"

namespace sf::models {

class TimeShifts {
 public:
  // temb[B, D], or [1, D] where all samples have the same and are_joined_on their device. One product for all blocks
  // where their weights lie side by side.
  TimeShifts(const Tensor& temb, std::vector<const ResnetBlock2D*> blocks);
  ~TimeShifts();
  TimeShifts(const TimeShifts&) = delete;
  TimeShifts& operator=(const TimeShifts&) = delete;
  static const TimeShifts* current(const Tensor& temb);  // null where none is in force for this embedding
  static bool are_joined_on(const Device& device);       // whether shifts may be made so here and now
  // Lays the blocks' time projections side by side, and the biases of the convolutions that their results are added to
  // (packed_projections.h).
  static bool pack(const std::vector<const ResnetBlock2D*>& blocks);

  const Tensor& activated() const { return activated_; }  // silu(temb)
  bool is_one() const { return activated_.size(0) == 1; }
  // The block's shift [B, C]. Where is_one(), the bias of its first convolution is in it.
  Tensor of(const ResnetBlock2D& block) const;

 private:
  bool active_ = false;
  const TimeShifts* before_ = nullptr;
  Tensor temb_, activated_, all_;
  std::vector<const ResnetBlock2D*> blocks_;
};

}  // namespace sf::models
