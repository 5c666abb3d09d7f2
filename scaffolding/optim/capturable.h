// Optimizers whose numbers are in device memory, so that a step can be part of a CUDA graph: a captured step would repeat numbers of the host as they
// were when it was captured.
#pragma once
#include <vector>

#include "scaffolding/optim/update.h"

namespace sf::optim {

// The step count of some of a call's updates: 0-d float32 on their device, one tensor for all whose counts are equal.
struct DeviceCount {
  Tensor count;
  std::vector<size_t> members;  // of the updates
};
// Each count advanced by one. Counts are in slots[slot]; those that are absent or on the host are made, which the first step does, never a captured
// one: RuntimeError.
std::vector<DeviceCount> advance_device_counts(const char* rule, std::span<Update> updates, size_t slot);

// {lr, lr / bias_correction1, sqrt(bias_correction2), 1, 0} as AdamWStep::numbers. lr: 0-d float64 on the device.
Tensor step_numbers(const Tensor& lr, const Tensor& count, const std::array<double, 2>& betas);

// The rate where captured steps read it, made or written. ValueError for params that are not on one CUDA device, RuntimeError while a graph is captured.
void write_device_lr(const char* rule, double lr, const Tensors& params, Tensor& device_lr);

}  // namespace sf::optim
