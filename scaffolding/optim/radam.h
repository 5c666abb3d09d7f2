// RAdam (Liu et al. 2020): Adam that divides by the second moment only once its variance is small; torch.optim.RAdam's
// arithmetic and options.
#pragma once
#include "scaffolding/optim/update.h"

namespace sf::optim {

struct RAdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;
  bool maximize = false;

  static constexpr const char* kName = "RAdam";
  static constexpr std::array kSlots{"step", "exp_avg", "exp_avg_sq"};
  template <class Self, class F> static void fields(Self& o, F&& f) {
    f("lr", o.lr);
    f("betas", o.betas);
    f("eps", o.eps);
    f("weight_decay", o.weight_decay);
    f("decoupled_weight_decay", o.decoupled_weight_decay);
    f("maximize", o.maximize);
  }
  static Shape slot_shape(size_t slot, const Tensor& param) { return slot == 0 ? Shape{} : param.shape(); }
  void check() const;
  void step(std::span<Update> updates) const;
};

}  // namespace sf::optim
