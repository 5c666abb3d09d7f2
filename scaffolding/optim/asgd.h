// ASGD (Polyak and Juditsky 1992): descent with an average of the parameters beside it; torch.optim.ASGD's arithmetic
// and options.
#pragma once
#include "scaffolding/optim/update.h"

namespace sf::optim {

struct ASGDOptions {
  double lr = 1e-2;
  double lambd = 1e-4;  // decay of the weights and of the rate
  double alpha = 0.75;  // power of the rate's decay
  double t0 = 1e6;      // the step after which averaging begins
  double weight_decay = 0;
  bool maximize = false;

  static constexpr const char* kName = "ASGD";
  static constexpr std::array kSlots{"step", "eta", "mu", "ax"};
  template <class Self, class F> static void fields(Self& o, F&& f) {
    f("lr", o.lr);
    f("lambd", o.lambd);
    f("alpha", o.alpha);
    f("t0", o.t0);
    f("weight_decay", o.weight_decay);
    f("maximize", o.maximize);
  }
  static Shape slot_shape(size_t slot, const Tensor& param) { return slot < 3 ? Shape{} : param.shape(); }
  void check() const;
  void step(std::span<Update> updates) const;
};

}  // namespace sf::optim
