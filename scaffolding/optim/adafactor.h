// Adafactor (Shazeer and Stern 2018): second moments of matrices as a row and a column, so that state is sublinear in
// the parameters. torch.optim.Adafactor's arithmetic and options.
#pragma once
#include "scaffolding/optim/update.h"

namespace sf::optim {

struct AdafactorOptions {
  double lr = 1e-2;           // the largest relative step
  double beta2_decay = -0.8;  // beta2 at step t is 1 - t^beta2_decay
  // floors of the moments (none: the dtype's epsilon) and of the weights' size
  std::array<std::optional<double>, 2> eps{std::nullopt, 1e-3};
  double d = 1;  // updates of a larger root mean square are scaled down
  double weight_decay = 0;
  bool maximize = false;

  static constexpr const char* kName = "Adafactor";
  static constexpr std::array kSlots{"step", "row_var", "col_var", "variance"};
  template <class Self, class F> static void fields(Self& o, F&& f) {
    f("lr", o.lr);
    f("beta2_decay", o.beta2_decay);
    f("eps", o.eps);
    f("d", o.d);
    f("weight_decay", o.weight_decay);
    f("maximize", o.maximize);
  }
  static Shape slot_shape(size_t slot, const Tensor& param);
  void check() const;
  void step(std::span<Update> updates) const;
};

}  // namespace sf::optim
