// The NaN guard: a run stops before a loss or a gradient that is NaN or infinite reaches the weights.
#pragma once
#include "scaffolding/nn/module.h"

namespace sf::train {

// The parameters that are trained, with their names. All throw RuntimeError; `step` is the step under way, from 1.
using Named = std::vector<nn::NamedTensor>;

// "the loss is nan at step 12", and the first parameter that is not finite where there is one.
void check_loss(double loss, int64_t step, const Named& parameters);
// For a norm of all gradients: names the first parameter whose gradient is not finite.
void check_gradients(double norm, int64_t step, const Named& parameters);

// flag, float32 [] on the values' device, becomes 1 where a value is not finite, and stays what it is where all are:
// nothing waits for the device.
void note_not_finite(const Tensor& values, Tensor& flag);

}  // namespace sf::train
