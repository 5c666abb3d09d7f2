// AdamW whose moments take two bytes a parameter instead of eight, as bitsandbytes' AdamW8bit: block-wise dynamic
// quantisation in blocks of 256. Tensors of fewer than min_8bit_size elements, and float64 ones, keep full moments.
#pragma once
#include "scaffolding/optim/update.h"

namespace sf::optim {

struct AdamW8bitOptions {
  double lr = 1e-3;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
  int64_t min_8bit_size = 4096;
  bool maximize = false;
  bool master_weights = false;  // as AdamW's, and the next three too
  bool capturable = false;
  Tensor settings_there, found_inf;

  static constexpr const char* kName = "AdamW8bit";
  // state1 and state2 are uint8 of the parameter's shape (or the float moments of a small one), absmax1 and absmax2
  // float32, one for each block: bitsandbytes' names.
  static constexpr std::array kSlots{"step", "state1", "state2", "absmax1", "absmax2", "master"};
  template <class Self, class F> static void fields(Self& o, F&& f) {
    f("lr", o.lr);
    f("betas", o.betas);
    f("eps", o.eps);
    f("weight_decay", o.weight_decay);
    f("min_8bit_size", o.min_8bit_size);
    f("maximize", o.maximize);
    f("master_weights", o.master_weights);
    f("capturable", o.capturable);
  }
  std::array<double, 5> settings() const { return {lr, betas[0], betas[1], eps, weight_decay}; }
  static Shape slot_shape(size_t slot, const Tensor& param);
  void check() const;
  void step(std::span<Update> updates) const;
};

// The levels of the dynamic map with 256 entries, ascending: in [-1, 1] when it has a sign, else in [0, 1].
std::vector<float> dynamic_map(bool has_sign);

}  // namespace sf::optim
