// Optimizers whose numbers are in device memory, so that a step can be part of a CUDA graph: a captured step would
// repeat numbers of the host as they were when it was captured.
#pragma once
#include <vector>

#include "scaffolding/optim/update.h"

namespace sf::optim {

// What schedules and users change between the steps of a group: {lr, beta1 or momentum, beta2 or dampening, eps,
// weight_decay}.
using Settings = std::array<double, 5>;

// A group's Settings where captured steps read them. Belongs to one thread at a time.
class DeviceSettings {
 public:
  // float64 [5] on the device: made by the first call, which cannot be captured (RuntimeError); later ones write what
  // changed, without waiting for the device. RuntimeError for a change while a graph is captured,
  // which every replay would repeat.
  const Tensor& write(const char* rule, const Settings& now, Device device);

  // RuntimeError before the first write.
  const Tensor& there(const char* rule) const;

 private:
  Tensor there_;
  Settings written_{};
};
// ValueError for params that are not on one CUDA device.
Device capturable_device(const char* rule, const Tensors& params);

// The step count of some of a call's updates: 0-d float32 on their device, one tensor for all whose counts are equal.
struct DeviceCount {
  Tensor count;
  std::vector<size_t> members;  // of the updates
};
// Counts are in slots[slot]; those that are absent or on the host are made, which the first step does,
// never a captured one: RuntimeError.
std::vector<DeviceCount> device_counts(const char* rule, std::span<Update> updates, size_t slot);

// float64 [kStepNumbers] as AdamWStep::numbers, for a step whose count is one more than `count`, which is advanced.
// found_inf: absent, or float32 [] on the device, other than 0 where nothing is to change. count:
// absent for rules that do not count.
Tensor numbers_of(const char* rule, const Tensor& settings, const Tensor& count, const Tensor& found_inf);

// Throws before a replay of the graph that is being captured, if there is one, when *revision is not what it is now.
void expect_revision(const char* rule, std::shared_ptr<const int64_t> revision);

}  // namespace sf::optim
