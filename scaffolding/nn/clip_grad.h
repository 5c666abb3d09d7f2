// Gradients of a list of parameters as one vector: its norm, clipping it;
// and the parameters themselves as one vector (torch.nn.utils).
// Parameters without a gradient are passed over. Nothing here records; each write bumps the version of what is written.
// For the gradients of one backward pass as values of their own see optim/gradient_map.h.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::nn {

// The norm of all tensors as one vector (0-d, of the first tensor's dtype but at least float32; on its device), 0 for
// none: one pass over each, summed in float64. norm_type may be infinity.
// RuntimeError for a norm of NaN or Inf when asked.
Tensor get_total_norm(const Tensors& tensors, double norm_type = 2, bool error_if_nonfinite = false);
// Multiplies the gradients by max_norm / (total_norm + 1e-6) where that is below 1: one more pass,
// and none where nothing is to clip.
void clip_grads_with_norm_(const Tensors& parameters, double max_norm, const Tensor& total_norm);
// Both; returns the norm before clipping.
Tensor clip_grad_norm_(const Tensors& parameters, double max_norm, double norm_type = 2,
                       bool error_if_nonfinite = false);
// Limits each element of each gradient to [-clip_value, clip_value], in place.
void clip_grad_value_(const Tensors& parameters, double clip_value);

// All elements, one parameter after the other; on the tape.
Tensor parameters_to_vector(const Tensors& parameters);
// Copies vec's elements back, converting dtypes; vec must have as many as there are parameters' elements.
void vector_to_parameters(const Tensor& vec, const Tensors& parameters);

}  // namespace sf::nn
