// Adadelta (Zeiler 2012): torch.optim.Adadelta's arithmetic and options.
#pragma once
#include "scaffolding/optim/update.h"

namespace sf::optim {

struct AdadeltaOptions {
  double lr = 1;
  double rho = 0.9;  // of the means of squared gradients and of squared updates
  double eps = 1e-6;
  double weight_decay = 0;
  bool maximize = false;

  static constexpr const char* kName = "Adadelta";
  static constexpr std::array kSlots{"step", "square_avg", "acc_delta"};
  template <class Self, class F> static void fields(Self& o, F&& f) {
    f("lr", o.lr);
    f("rho", o.rho);
    f("eps", o.eps);
    f("weight_decay", o.weight_decay);
    f("maximize", o.maximize);
  }
  static Shape slot_shape(size_t slot, const Tensor& param) { return slot == 0 ? Shape{} : param.shape(); }
  void check() const;
  void step(std::span<Update> updates) const;
};

}  // namespace sf::optim
