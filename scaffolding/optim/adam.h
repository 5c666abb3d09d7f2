// Adam and AdamW: torch.optim's arithmetic, options and names of states. All tensors of a step go through one kernel in
// one pass over their memory (ops/adamw).
// Statistics of 16-bit params are float32 (torch keeps them in 16 bits). With master_weights a float32 copy of such a
// param is trained and the param is its rounding: without one,
// updates smaller than half a unit in the last place are lost.
#pragma once
#include "scaffolding/optim/update.h"

namespace sf::optim {

template <bool decoupled> struct AdamFamily {
  double lr = 1e-3;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = decoupled ? 1e-2 : 0;
  bool amsgrad = false;
  bool maximize = false;
  bool decoupled_weight_decay = decoupled;
  bool master_weights = false;
  bool capturable = false;  // step count and settings are in device memory, so that a step can be part of a CUDA graph
  Tensor settings_there;    // with capturable: Settings in device memory (DeviceSettings); the optimizer's
  Tensor found_inf;         // with capturable: float32 [], other than 0 where the step is to change nothing

  static constexpr const char* kName = decoupled ? "AdamW" : "Adam";
  static constexpr std::array kSlots{"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "master"};
  // f(name, member) for each option.
  template <class Self, class F> static void fields(Self& o, F&& f) {
    f("lr", o.lr);
    f("betas", o.betas);
    f("eps", o.eps);
    f("weight_decay", o.weight_decay);
    f("amsgrad", o.amsgrad);
    f("maximize", o.maximize);
    f("decoupled_weight_decay", o.decoupled_weight_decay);
    f("master_weights", o.master_weights);
    f("capturable", o.capturable);
  }
  std::array<double, 5> settings() const { return {lr, betas[0], betas[1], eps, weight_decay}; }
  static Shape slot_shape(size_t slot, const Tensor& param) { return slot == 0 ? Shape{} : param.shape(); }
  void check() const;  // ValueError in torch's words
  void step(std::span<Update> updates) const;
};
using AdamOptions = AdamFamily<false>;
using AdamWOptions = AdamFamily<true>;

// lr, betas, eps and weight_decay within their ranges; shared with the 8-bit form.
void check_adam(double lr, const std::array<double, 2>& betas, double eps, double weight_decay);

}  // namespace sf::optim
