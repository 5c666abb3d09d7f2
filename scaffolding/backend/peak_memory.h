// PeakMemory: the most that this process took since a moment.
#pragma once
#include <cstdint>
#include <optional>

#include "scaffolding/core/device.h"

namespace sf {

// Of the host all that is resident, pages of mapped files included; of a GPU what tensors take. The peaks are the
// system's and the allocator's own, of which there is one each: another PeakMemory, or reset_peak, begins them anew.
class PeakMemory {
 public:
  explicit PeakMemory(std::optional<Device> gpu = {});
  int64_t host() const;    // bytes
  int64_t device() const;  // bytes; 0 without a GPU

 private:
  std::optional<Device> gpu_;
};

}  // namespace sf
