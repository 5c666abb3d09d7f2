// RMSprop (Tieleman and Hinton 2012): torch.optim.RMSprop's arithmetic and options.
#pragma once
#include "scaffolding/optim/update.h"

namespace sf::optim {

struct RMSpropOptions {
  double lr = 1e-2;
  double alpha = 0.99;  // of the mean of squared gradients
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;  // divides by the deviation: the squared mean gradient is taken off
  bool maximize = false;

  static constexpr const char* kName = "RMSprop";
  static constexpr std::array kSlots{"step", "square_avg", "momentum_buffer", "grad_avg"};
  template <class Self, class F> static void fields(Self& o, F&& f) {
    f("lr", o.lr);
    f("alpha", o.alpha);
    f("eps", o.eps);
    f("weight_decay", o.weight_decay);
    f("momentum", o.momentum);
    f("centered", o.centered);
    f("maximize", o.maximize);
  }
  static Shape slot_shape(size_t slot, const Tensor& param) { return slot == 0 ? Shape{} : param.shape(); }
  void check() const;
  void step(std::span<Update> updates) const;
};

}  // namespace sf::optim
