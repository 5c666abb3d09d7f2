#include "scaffolding/nn/clip_grad.h"

#include <cmath>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/nn/clip_grad_kernel.h"
#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/pointwise/pointwise_loop.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/reduce/reduce_internal.h"
#include "scaffolding/ops/view/view.h"

namespace sf::nn {

constinit KernelTable<SquareSumOfAll> square_sum_of_all{"square_sum_of_all"};
constinit KernelTable<ScaleAll> scale_all{"scale_all"};

namespace {

// The tensors for a pass over all of them at once, or nothing where they are not of one device, of another kind,
// or have gaps.
std::vector<GradientPart> parts_of(const Tensors& tensors, Device device) {
  std::vector<GradientPart> parts;
  for (const Tensor& t : tensors) {
    const bool dense = t.is_contiguous() || t.is_contiguous(MemoryFormat::ChannelsLast);
    if (t.device() != device || !is_floating(t.dtype()) || is_float8(t.dtype()) || !dense) return {};
    parts.push_back({t.data_ptr(), t.numel(), t.dtype()});
  }
  return parts;
}

// The sum of all squares, float64 []; absent where no kernel does them at once.
Tensor square_sum_at_once(const Tensors& tensors) {
  const Device device = tensors[0].device();
  auto parts = parts_of(tensors, device);
  if (parts.empty() || !device.is_cuda()) return {};
  Tensor total = empty({}, kFloat64, device);
  SquareSumOfAll s{parts.data(), int64_t(parts.size()), total.data<double>(), device};
  auto kernel = square_sum_of_all.find(device, s);
  if (!kernel) return {};
  kernel(s);
  return total;
}

Tensors gradients_of(const char* function, const Tensors& parameters) {
  Tensors grads;
  for (const Tensor& p : parameters) {
    check_defined(function, "a parameter", p);
    if (Tensor g = p.grad()) grads.push_back(g.detach());
  }
  return grads;
}

Reduction partial_of(double p) {
  if (std::isinf(p)) return p > 0 ? Reduction::AbsMax : Reduction::AbsMin;
  return p == 0   ? Reduction::NonzeroSum
         : p == 1 ? Reduction::AbsSum
         : p == 2 ? Reduction::SquareSum
                  : Reduction::PowerSum;
}

}  // namespace

Tensor get_total_norm(const Tensors& tensors, double norm_type, bool error_if_nonfinite) {
  const char* function = "get_total_norm";
  SF_CHECK(!std::isnan(norm_type), function, ": norm_type must be a number, got NaN");
  autograd::NoGrad off;
  Reduction what = partial_of(norm_type);
  Tensors filled, parts;
  for (const Tensor& t : tensors) {
    check_defined(function, "a tensor", t);
    check_floating(function, "a tensor", t);
    if (t.numel() > 0) filled.push_back(t);
  }
  if (filled.empty()) return zeros({});
  Tensor total = what == Reduction::SquareSum ? square_sum_at_once(filled) : Tensor();
  if (!total) {
    for (const Tensor& t : filled)
      parts.push_back(reduction::run(function, what, t, reduction::dims_of(function, t, {}, false), kFloat64, norm_type)
                          .to(tensors[0].device()));
    Tensor all = stack(parts, 0);
    total = !std::isinf(norm_type) ? sum(all) : norm_type > 0 ? amax(all) : amin(all);
  }
  if (what == Reduction::SquareSum) total = sqrt(total);
  if (what == Reduction::PowerSum) total = pow(total, wrapped(1 / norm_type));
  DType first = tensors[0].dtype();
  total = total.to(is_reduced(first) ? kFloat32 : first);
  SF_CHECK_AS(RuntimeError, !error_if_nonfinite || total.device().is_meta() || std::isfinite(total.item()), function,
              ": the total norm of order ", norm_type, " is non-finite (", total.item(),
              "), so gradients cannot be clipped by it; pass error_if_nonfinite=False to scale them by it anyway");
  return total;
}

void clip_grads_with_norm_(const Tensors& parameters, double max_norm, const Tensor& total_norm) {
  const char* function = "clip_grads_with_norm_";
  SF_CHECK(max_norm >= 0, function, ": max_norm must not be negative, got ", max_norm);
  check_defined(function, "total_norm", total_norm);
  SF_CHECK(total_norm.numel() == 1, function, ": total_norm must hold one number, got shape ", total_norm.shape());
  Tensors grads = gradients_of(function, parameters);
  autograd::NoGrad off;
  Tensor factor = clamp(max_norm / (total_norm.detach() + 1e-6), {}, 1.0);
  if (factor.device().is_cpu() && factor.item() == 1) return;  // NaN goes on, into every gradient
  if (grads.empty()) return;
  const Device device = grads[0].device();
  const Tensor number = factor.reshape({1}).to(device);
  if (auto parts = parts_of(grads, device); !parts.empty() && device.is_cuda()) {
    for (const Tensor& g : grads) autograd::check_inplace(function, g);
    ScaleAll s{parts.data(), int64_t(parts.size()), number, device};
    if (auto kernel = scale_all.find(device, s)) {
      kernel(s);
      for (const Tensor& g : grads) autograd::bump_version(g);
      return;
    }
  }
  for (Tensor& g : grads) g.mul_(factor.device() == g.device() ? factor : factor.to(g.device()));
}

Tensor clip_grad_norm_(const Tensors& parameters, double max_norm, double norm_type, bool error_if_nonfinite) {
  SF_CHECK(max_norm >= 0, "clip_grad_norm_: max_norm must not be negative, got ", max_norm);
  Tensor total = get_total_norm(gradients_of("clip_grad_norm_", parameters), norm_type, error_if_nonfinite);
  clip_grads_with_norm_(parameters, max_norm, total);
  return total;
}

void clip_grad_value_(const Tensors& parameters, double clip_value) {
  const char* function = "clip_grad_value_";
  SF_CHECK(clip_value >= 0, function, ": clip_value must not be negative, got ", clip_value);
  autograd::NoGrad off;
  for (const Tensor& g : gradients_of(function, parameters)) {
    autograd::check_inplace(function, g);
    pointwise::run(function, clamp_forward, g, {g}, g.dtype(), -clip_value, clip_value);
    autograd::bump_version(g);
  }
}

Tensor parameters_to_vector(const Tensors& parameters) {
  SF_CHECK(!parameters.empty(), "parameters_to_vector: there are no parameters");
  Tensors flat;
  for (const Tensor& p : parameters) {
    check_defined("parameters_to_vector", "a parameter", p);
    check_same_device("parameters_to_vector", parameters[0], p);
    flat.push_back(p.reshape({-1}));
  }
  return cat(flat, 0);
}

void vector_to_parameters(const Tensor& vec, const Tensors& parameters) {
  const char* function = "vector_to_parameters";
  check_defined(function, "vec", vec);
  int64_t wanted = 0;
  for (const Tensor& p : parameters) {
    check_defined(function, "a parameter", p);
    wanted += p.numel();
  }
  SF_CHECK(vec.ndim() == 1 && vec.numel() == wanted, function, ": vec must be a vector of ", wanted,
           " elements, as many as the parameters have, got ", vec.shape());
  autograd::NoGrad off;
  int64_t at = 0;
  for (Tensor p : parameters) {
    p.copy_(vec.detach().narrow(0, at, p.numel()).reshape(p.shape()));
    at += p.numel();
  }
}

}  // namespace sf::nn
