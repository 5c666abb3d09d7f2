// GradScaler: multiplies the loss so that small float16 gradients do not vanish, divides the gradients again before the
// step, skips steps whose gradients overflowed, and finds the largest factor that works. torch.amp.GradScaler's rules.
// Belongs to one thread at a time.
#pragma once
#include <map>

#include "scaffolding/optim/optimizer.h"

namespace sf::optim {

// grads *= factor, all in one pass. found_inf, a float32 element on their device, becomes 1 when one was infinite or NaN.
void unscale_(const Tensors& grads, double factor, const Tensor& found_inf);

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;     // after growth_interval steps in a row without overflow
  double backoff_factor = 0.5;  // after one with
  int64_t growth_interval = 2000;
  bool enabled = true;  // otherwise scale() and unscale_() do nothing and step() steps
};

struct ScaleState {
  double scale = 65536;
  int64_t growth_tracker = 0;  // steps without overflow
};
ScaleState next_scale(const ScaleState& now, bool found_inf, const GradScalerOptions& options);

class GradScaler {
 public:
  explicit GradScaler(const GradScalerOptions& options = {});
  Tensor scale(const Tensor& loss) const;
  void unscale_(Optimizer& optimizer);                // before clipping; step() does it otherwise. RuntimeError the second time
  bool step(Optimizer& optimizer);                    // false when the step was skipped
  void update(std::optional<double> new_scale = {});  // after every step()
  double get_scale() const { return options_.enabled ? state_.scale : 1; }
  int64_t growth_tracker() const { return state_.growth_tracker; }
  const GradScalerOptions& options() const { return options_; }
  ScaleState state() const { return state_; }
  void load_state(const ScaleState& state);

 private:
  struct Stage {
    Tensor found_inf;
    bool stepped = false;
  };
  GradScalerOptions options_;
  ScaleState state_;
  std::map<const Optimizer*, Stage> stages_;  // since the last update()
};

}  // namespace sf::optim
