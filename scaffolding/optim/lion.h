// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms"): steps of one size, in the direction of the
// sign of a moving average; weight decay as AdamW's.
#pragma once
#include "scaffolding/optim/update.h"

namespace sf::optim {

struct LionOptions {
  double lr = 1e-4;
  std::array<double, 2> betas{0.9, 0.99};  // of the direction, and of the average that is kept
  double weight_decay = 0;
  bool maximize = false;

  static constexpr const char* kName = "Lion";
  static constexpr std::array kSlots{"step", "exp_avg"};
  template <class Self, class F> static void fields(Self& o, F&& f) {
    f("lr", o.lr);
    f("betas", o.betas);
    f("weight_decay", o.weight_decay);
    f("maximize", o.maximize);
  }
  static Shape slot_shape(size_t slot, const Tensor& param) { return slot == 0 ? Shape{} : param.shape(); }
  void check() const;
  void step(std::span<Update> updates) const;
};

}  // namespace sf::optim
