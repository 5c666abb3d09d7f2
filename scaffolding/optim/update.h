// Update: one parameter's turn in an optimizer's step, and what every rule asks of it.
// Rules keep their state (moments, step count, float32 weights behind 16-bit ones) in tensors named by the rule: C++
// optimizers own them in a list, Python's in the dictionaries of `optimizer.state`. One rule serves both.
#pragma once
#include <array>
#include <span>
#include <string>

#include "scaffolding/core/tensor.h"

namespace sf::optim {

inline constexpr int kMaxSlots = 8;

struct Update {
  Tensor param, grad;
  std::array<Tensor, kMaxSlots> slots;  // in the order of the rule's kSlots; empty until the rule needs them
};

// Refuses, before anything changes, what no rule can work with: integer params, gradients of another shape or device,
// state of another shape (a param that was replaced since).
void check_update(const char* rule, const Update& u);

// The type that a param's statistics are kept in: float64 for float64, else float32, also for 16-bit params.
DType state_dtype(const Tensor& param);

// Whether a kernel may walk both as one run of numel elements: the same strides without holes.
bool is_dense(const Tensor& t);
bool same_layout(const Tensor& a, const Tensor& b);
// t itself, or its values in memory laid out as param's.
Tensor laid_out_as(const Tensor& t, const Tensor& param);

// A statistic of param's shape: made of zeros on first use; one that was loaded with another dtype or layout is
// converted.
void prepare_slot(const char* rule, const char* name, Tensor& slot, const Tensor& param, DType dtype);
// The same for float32 weights behind a 16-bit param, which begin as its values.
void prepare_master(const char* rule, Tensor& slot, const Tensor& param);

// The step count is a 0-d float32 tensor on the host, as torch's; counts from 1. Returns the new count.
void prepare_step(Tensor& slot);
double advance_step(Tensor& slot);

// Runs f on the updates, with copies standing in for params that are views with holes.
void with_dense_params(std::span<Update> updates, void (*f)(void*, std::span<Update>), void* context);
template <class F> void with_dense_params(std::span<Update> updates, F f) {
  with_dense_params(
      updates, [](void* context, std::span<Update> u) { (*static_cast<F*>(context))(u); }, &f);
}

// A number as Python prints it: refusals read as torch's ("Invalid learning rate: -1.0").
std::string python_number(double v);

}  // namespace sf::optim
