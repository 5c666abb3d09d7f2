// Rprop (Riedmiller and Braun 1993): a step size for each weight, which grows while its gradient keeps its sign;
// torch.optim.Rprop's arithmetic and options.
#pragma once
#include "scaffolding/optim/update.h"

namespace sf::optim {

struct RpropOptions {
  double lr = 1e-2;                             // the first step size
  std::array<double, 2> etas{0.5, 1.2};         // what a step size is multiplied with, shrinking and growing
  std::array<double, 2> step_sizes{1e-6, 50.};  // the least and the largest
  bool maximize = false;

  static constexpr const char* kName = "Rprop";
  static constexpr std::array kSlots{"step", "prev", "step_size"};
  template <class Self, class F> static void fields(Self& o, F&& f) {
    f("lr", o.lr);
    f("etas", o.etas);
    f("step_sizes", o.step_sizes);
    f("maximize", o.maximize);
  }
  static Shape slot_shape(size_t slot, const Tensor& param) { return slot == 0 ? Shape{} : param.shape(); }
  void check() const;
  void step(std::span<Update> updates) const;
};

}  // namespace sf::optim
