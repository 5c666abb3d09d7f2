#include "scaffolding/models/parts/time_shifts.h"

#include <algorithm>

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/models/parts/packed_projections.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {
thread_local const TimeShifts* in_force = nullptr;

// linear(x), and the convolution's bias added to it where there is one row.
Tensor shifts(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& of_convolution) {
  return x.size(0) == 1 ? linear_add(x, weight, bias, of_convolution.unsqueeze(0)) : linear(x, weight, bias);
}

// Of the blocks, in their order.
struct Weights {
  Tensors weights, biases, of_convolutions;
  explicit Weights(const std::vector<const ResnetBlock2D*>& blocks) {
    for (const ResnetBlock2D* b : blocks)
      weights.push_back(b->time_emb_proj->weight), biases.push_back(b->time_emb_proj->bias),
          of_convolutions.push_back(b->conv1.bias);
  }
};
}  // namespace

bool TimeShifts::are_joined_on(const Device& device) {
  return device.is_cuda() && !autograd::grad_enabled() && !autocast::active();
}

TimeShifts::TimeShifts(const Tensor& temb, std::vector<const ResnetBlock2D*> blocks) : blocks_(std::move(blocks)) {
  if (!are_joined_on(temb.device()) ||
      !std::all_of(blocks_.begin(), blocks_.end(), [](auto* b) { return b->takes_shifts(); }))
    return;
  temb_ = temb, activated_ = silu(temb);
  if (const Weights of(blocks_); !blocks_.empty())
    if (Tensor w = side_by_side(of.weights), b = side_by_side(of.biases), c = side_by_side(of.of_convolutions);
        w && b && c)
      all_ = shifts(activated_, w, b, c);
  before_ = in_force, in_force = this, active_ = true;
}
TimeShifts::~TimeShifts() {
  if (active_) in_force = before_;
}

bool TimeShifts::pack(const std::vector<const ResnetBlock2D*>& blocks) {
  auto may_move = [](const ResnetBlock2D* b) {
    return b->time_emb_proj && !b->scale_shift && is_plain(*b->time_emb_proj) && is_plain(b->conv1);
  };
  if (blocks.empty() || !std::all_of(blocks.begin(), blocks.end(), may_move)) return false;
  const Weights of(blocks);
  return lay_side_by_side({of.weights, of.biases, of.of_convolutions});
}

const TimeShifts* TimeShifts::current(const Tensor& temb) {
  return in_force && temb && temb.storage().get() == in_force->temb_.storage().get() &&
                 temb.version() == in_force->temb_.version()
             ? in_force
             : nullptr;
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
