// Rules that are written in ops, one parameter at a time, on any device: several passes over memory for each, where
// AdamW and SGD take one over all parameters.
#pragma once
#include <functional>

#include "scaffolding/optim/update.h"

namespace sf::optim {

// A parameter's turn. Values, gradient and statistics are float32, also of 16-bit params, or float64.
struct Turn {
  Tensor param;             // changed in place
  Tensor grad;              // negated to maximise, with weight_decay * param
  double step = 1;          // which step of this param it is
  std::span<Tensor> slots;  // the rule's state; the first is the step count

  // A statistic of the param's shape, which begins as `initial`.
  Tensor& statistic(size_t slot, double initial = 0);
  // A number of the state, float32 on the host.
  float& number(size_t slot, double initial);
};

namespace detail {
void each_turn(const char* rule, std::span<Update> updates, double weight_decay, bool maximize,
               const std::function<void(Turn&)>& f);
}

// Checks all state before anything changes, counts the step and calls f(turn) for each param.
template <class Rule, class F>
void each_param(const Rule& rule, std::span<Update> updates, double weight_decay, F&& f) {
  for (const Update& u : updates) {
    check_update(Rule::kName, u);
    for (size_t i = 0; i < Rule::kSlots.size(); ++i)
      if (u.slots[i]) check_shape(Rule::kName, Rule::kSlots[i], u.slots[i], Rule::slot_shape(i, u.param));
  }
  bool maximize = false;
  if constexpr (requires { rule.maximize; }) maximize = rule.maximize;
  detail::each_turn(Rule::kName, updates, weight_decay, maximize, std::forward<F>(f));
}

// average += weight * (value - average)
void move_towards(Tensor& average, const Tensor& value, double weight);
// "Invalid lr_decay value: -1.0", in torch's words, unless `holds`.
void check_option(bool holds, const char* name, double value);

}  // namespace sf::optim
