// TimeShifts: what a network's residual blocks make of the time embedding, for all of them at once. In force on its thread for as long as it lives, and
// only where no gradient is recorded; blocks are asked for in the order they were given.
#pragma once
#include "scaffolding/models/parts/resnet.h"

namespace sf::models {

class TimeShifts {
 public:
  // temb[B, D], or [1, D] where all samples have the same. One product for all blocks where their weights lie side by side (pack_time_projections).
  TimeShifts(const Tensor& temb, std::vector<const ResnetBlock2D*> blocks);
  ~TimeShifts();
  TimeShifts(const TimeShifts&) = delete;
  TimeShifts& operator=(const TimeShifts&) = delete;
  static const TimeShifts* current(const Tensor& temb);  // null where none is in force for this embedding

  const Tensor& activated() const { return activated_; }  // silu(temb)
  bool is_one() const { return activated_.size(0) == 1; }
  // The block's shift [B, C]. Where is_one(), the bias of its first convolution is in it.
  Tensor of(const ResnetBlock2D& block) const;

 private:
  const TimeShifts* before_;
  Tensor temb_, activated_, all_;
  std::vector<const ResnetBlock2D*> blocks_;
};

}  // namespace sf::models
