// Adamax (Kingma and Ba 2015): Adam by the largest gradient instead of the mean square; torch.optim.Adamax's arithmetic
// and options.
#pragma once
#include "scaffolding/optim/update.h"

namespace sf::optim {

struct AdamaxOptions {
  double lr = 2e-3;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool maximize = false;

  static constexpr const char* kName = "Adamax";
  static constexpr std::array kSlots{"step", "exp_avg", "exp_inf"};
  template <class Self, class F> static void fields(Self& o, F&& f) {
    f("lr", o.lr);
    f("betas", o.betas);
    f("eps", o.eps);
    f("weight_decay", o.weight_decay);
    f("maximize", o.maximize);
  }
  static Shape slot_shape(size_t slot, const Tensor& param) { return slot == 0 ? Shape{} : param.shape(); }
  void check() const;
  void step(std::span<Update> updates) const;
};

}  // namespace sf::optim
