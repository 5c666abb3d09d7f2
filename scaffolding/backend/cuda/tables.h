// Small tables that the host makes and kernels read (which input an output shows, weights of a filter): kept on the
// device by content, so that a step repeated with the same sizes copies nothing and waits for nothing. A new table
// waits once until it is there.
// Thread-safe. A pointer is good as long as its handle lives: hold it until the kernel is launched.
#pragma once
#include <memory>

#include "scaffolding/backend/cuda/scratch.h"

namespace sf::cuda {

using DeviceTable = std::shared_ptr<const Scratch>;
DeviceTable device_table(Device device, const void* bytes, size_t size);

template <class T> DeviceTable device_table(Device device, const T* first, int64_t count) {
  return device_table(device, static_cast<const void*>(first), size_t(count) * sizeof(T));
}

// The host's tables of a call, on the device for as long as this lives.
struct DeviceTables {
  Device device;
  DeviceTable kept[16];
  int count = 0;

  explicit DeviceTables(Device d) : device(d) {}
  template <class T> const T* operator()(const T* first, int64_t n) {
    kept[count] = device_table(device, first, n);
    return kept[count++]->template as<const T>();
  }
};

}  // namespace sf::cuda
