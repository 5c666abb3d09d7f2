// Passes over all gradients of a model at once: the contract with backends. Where no provider supports a call,
// there is a pass for each tensor.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf::nn {

// Dense memory, in any order. The array of parts lives on the host for the duration of the call; the rest on `device`.
struct GradientPart {
  void* data = nullptr;
  int64_t numel = 0;
  DType dtype = kFloat32;  // float32, float64, bfloat16 or float16
};
// *total = the sum of the squares of all elements, in float64 and in one order whatever the launch.
struct SquareSumOfAll {
  const GradientPart* parts = nullptr;
  int64_t count = 0;
  double* total = nullptr;
  Device device;
};
extern KernelTable<SquareSumOfAll> square_sum_of_all;

// Each element is multiplied by the factor; nothing is written where that is 1.
struct ScaleAll {
  const GradientPart* parts = nullptr;
  int64_t count = 0;
  TensorView factor;  // one number of float32 or float64
  Device device;
};
extern KernelTable<ScaleAll> scale_all;

}  // namespace sf::nn
