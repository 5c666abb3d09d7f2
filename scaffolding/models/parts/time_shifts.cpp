#include "scaffolding/models/parts/time_shifts.h"

#include "scaffolding/models/parts/packed_projections.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {
thread_local const TimeShifts* in_force = nullptr;

// linear(x), and the convolution's bias added to it where there is one row.
Tensor shifts(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& of_convolution) {
  return x.size(0) == 1 ? linear_add(x, weight, bias, of_convolution.unsqueeze(0)) : linear(x, weight, bias);
}
}  // namespace

TimeShifts::TimeShifts(const Tensor& temb, std::vector<const ResnetBlock2D*> blocks)
    : before_(in_force), temb_(temb), activated_(silu(temb)), blocks_(std::move(blocks)) {
  Tensors weights, biases, of_convolutions;
  for (const ResnetBlock2D* b : blocks_)
    weights.push_back(b->time_emb_proj->weight), biases.push_back(b->time_emb_proj->bias), of_convolutions.push_back(b->conv1.bias);
  if (!blocks_.empty())
    if (Tensor w = side_by_side(weights), b = side_by_side(biases), c = side_by_side(of_convolutions); w && b && c) all_ = shifts(activated_, w, b, c);
  in_force = this;
}
TimeShifts::~TimeShifts() { in_force = before_; }

const TimeShifts* TimeShifts::current(const Tensor& temb) {
  return in_force && temb && temb.storage().get() == in_force->temb_.storage().get() && temb.version() == in_force->temb_.version() ? in_force : nullptr;
}

Tensor TimeShifts::of(const ResnetBlock2D& block) const {
  int64_t at = 0;
  for (const ResnetBlock2D* b : blocks_) {
    const int64_t channels = b->time_emb_proj->weight.size(0);
    if (b == &block && all_) return all_.narrow(1, at, channels);
    at += channels;
  }
  return shifts(activated_, block.time_emb_proj->weight, block.time_emb_proj->bias, block.conv1.bias);
}

}  // namespace sf::models
