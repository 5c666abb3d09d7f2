// MetaMemory: the bytes that tensors on Device::Meta would take elsewhere. A model that runs there while a counter
// looks tells what it would need, for the cost of its shapes.
#pragma once
#include <cstdint>

#include "scaffolding/core/device.h"

namespace sf {

class MetaMemory {
 public:
  // stands_for: the device that it counts for. Ops that are made of others where a device has no kernel for the whole
  // are so made here, since that takes more.
  explicit MetaMemory(Device stands_for = {}) : stands_for_(stands_for) {}

  int64_t live() const { return live_; }  // bytes of the meta tensors that were made and not dropped while it counted
  int64_t peak() const { return peak_; }  // the most
  void reset_peak() { peak_ = live_; }

  // Tensors that the calling thread makes and drops meanwhile are those of a counter. The innermost one counts alone.
  class Counting {
   public:
    explicit Counting(MetaMemory& counter);
    ~Counting();
    Counting(const Counting&) = delete;

   private:
    MetaMemory* before_;
  };

  // Where kernels are looked for: for a meta tensor that is counted the device that it stands for, else the tensor's.
  static Device kernels_of(Device device);
  static void count(int64_t bytes);  // of the backend: made, or dropped where negative

 private:
  Device stands_for_;
  int64_t live_ = 0, peak_ = 0;
};

}  // namespace sf
