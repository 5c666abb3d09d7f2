// Adagrad (Duchi, Hazan and Singer 2011): torch.optim.Adagrad's arithmetic and options.
#pragma once
#include "scaffolding/optim/update.h"

namespace sf::optim {

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;  // the rate of step t is lr / (1 + (t - 1) * lr_decay)
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;

  static constexpr const char* kName = "Adagrad";
  static constexpr std::array kSlots{"step", "sum"};
  template <class Self, class F> static void fields(Self& o, F&& f) {
    f("lr", o.lr);
    f("lr_decay", o.lr_decay);
    f("weight_decay", o.weight_decay);
    f("initial_accumulator_value", o.initial_accumulator_value);
    f("eps", o.eps);
    f("maximize", o.maximize);
  }
  static Shape slot_shape(size_t slot, const Tensor& param) { return slot == 0 ? Shape{} : param.shape(); }
  void check() const;
  void step(std::span<Update> updates) const;
};

}  // namespace sf::optim
