// SGD with momentum: torch.optim.SGD's arithmetic and options, all tensors of a step in one pass.
#pragma once
#include "scaffolding/optim/update.h"

namespace sf::optim {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
  bool master_weights = false;  // as AdamW's
  bool capturable = false;      // as AdamW's, and the next two too
  Tensor settings_there, found_inf;

  static constexpr const char* kName = "SGD";
  static constexpr std::array kSlots{"momentum_buffer", "master"};
  template <class Self, class F> static void fields(Self& o, F&& f) {
    f("lr", o.lr);
    f("momentum", o.momentum);
    f("dampening", o.dampening);
    f("weight_decay", o.weight_decay);
    f("nesterov", o.nesterov);
    f("maximize", o.maximize);
    f("master_weights", o.master_weights);
    f("capturable", o.capturable);
  }
  std::array<double, 5> settings() const { return {lr, momentum, dampening, 0, weight_decay}; }
  static Shape slot_shape(size_t, const Tensor& param) { return param.shape(); }
  void check() const;
  void step(std::span<Update> updates) const;
};

}  // namespace sf::optim
