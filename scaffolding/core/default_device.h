// The device of tensors made without one. The CPU, unless a guard on this thread says otherwise: under Device::Meta a
// whole model is made without memory and without drawing initial values, to be filled from a file.
#pragma once
#include "scaffolding/core/device.h"

namespace sf {

Device default_device();

class DefaultDevice {
 public:
  explicit DefaultDevice(Device device);
  ~DefaultDevice();
  DefaultDevice(const DefaultDevice&) = delete;

 private:
  Device before_;
};

}  // namespace sf
