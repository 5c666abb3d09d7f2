#include "scaffolding/optim/per_param.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::optim {

Tensor& Turn::statistic(size_t slot, double initial) {
  Tensor& s = slots[slot];
  if (!s) s = zeros_like(param).fill_(initial);
  if (s.dtype() != param.dtype()) s = to_dtype(s, param.dtype());
  if (s.device() != param.device()) s = to_device(s, param.device());
  return s;
}

float& Turn::number(size_t slot, double initial) {
  Tensor& s = slots[slot];
  if (!s) s = zeros({}, kFloat32, Device()).fill_(initial);
  prepare_step(s);
  autograd::bump_version(s);
  return *static_cast<float*>(s.data_ptr());
}

void move_towards(Tensor& average, const Tensor& value, double weight) { average.add_(sub(value, average), weight); }

void check_option(bool holds, const char* name, double value) {
  SF_CHECK(holds, "Invalid ", name, " value: ", python_number(value));
}

namespace detail {

void each_turn(const char* rule, std::span<Update> updates, double weight_decay, bool maximize,
               const std::function<void(Turn&)>& f) {
  SF_CHECK_AS(RuntimeError, !cuda::CudaGraph::recording(), rule,
              ".step: cannot be part of a CUDA graph, since numbers of its steps are computed on the host; capture "
              "AdamW or AdamW8bit with capturable=True");
  autograd::NoGrad off;
  for (Update& u : updates) {
    Tensor p = u.param.detach();
    DType wide = state_dtype(p);
    prepare_step(u.slots[0]);
    Turn turn{to_dtype(p, wide), to_dtype(u.grad.detach(), wide), advance_step(u.slots[0]), u.slots};
    if (maximize) turn.grad = neg(turn.grad);
    if (weight_decay != 0) turn.grad = add(turn.grad, turn.param, weight_decay);
    f(turn);
    if (p.dtype() != wide) p.copy_(turn.param);
  }
}

}  // namespace detail

}  // namespace sf::optim
