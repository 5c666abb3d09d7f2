#include "scaffolding/train/nan_guard.h"

#include <cmath>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/nn/clip_grad.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"

namespace sf::train {

static const char* spelled(double v) { return std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf"; }

static double norm_of(const Tensor& t) { return t ? nn::get_total_norm({t.detach()}).item() : 0; }

void check_loss(double loss, int64_t step, const Named& parameters) {
  if (std::isfinite(loss)) [[likely]]
    return;
  for (auto& p : parameters)
    if (double norm = norm_of(p.tensor); !std::isfinite(norm))
      fail<RuntimeError>("Trainer: the loss is ", spelled(loss), " at step ", step, ": the parameter '", p.name,
                         "' was ", spelled(norm), " already");
  fail<RuntimeError>("Trainer: the loss is ", spelled(loss), " at step ", step,
                     "; every parameter is finite, the weights are those of step ", step - 1);
}

void check_gradients(double norm, int64_t step, const Named& parameters) {
  if (std::isfinite(norm)) [[likely]]
    return;
  for (auto& p : parameters)
    if (double of_one = norm_of(p.tensor.grad()); !std::isfinite(of_one))
      fail<RuntimeError>("Trainer: the gradient of '", p.name, "' is ", spelled(of_one), " at step ", step,
                         "; the weights are those of step ", step - 1);
  fail<RuntimeError>("Trainer: the norm of the gradients is ", spelled(norm), " at step ", step,
                     "; the weights are those of step ", step - 1);
}

void note_not_finite(const Tensor& values, Tensor& flag) {
  autograd::NoGrad off;
  flag.copy_(maximum(flag, amax(to_dtype(logical_not(isfinite(values)), kFloat32))));
}

}  // namespace sf::train
