// GradScaler: multiplies the loss so that small float16 gradients do not vanish, divides the gradients again before the
// step, skips steps whose gradients overflowed, and finds the largest factor that works. torch.amp.GradScaler's rules.
// Belongs to one thread at a time.
#pragma once
#include <map>

#include "scaffolding/optim/optimizer.h"

namespace sf::optim {

// grads *= factor, all in one pass. found_inf, a float32 element on their device,
// becomes 1 when one was infinite or NaN.
void unscale_(const Tensors& grads, double factor, const Tensor& found_inf);
// The same with a factor of 1 / scale, float32 [] on the gradients' CUDA device.
void unscale_there_(const Tensors& grads, const Tensor& scale, const Tensor& found_inf);

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;     // after growth_interval steps in a row without overflow
  double backoff_factor = 0.5;  // after one with
  int64_t growth_interval = 2000;
  bool enabled = true;  // otherwise scale() and unscale_() do nothing and step() steps
  // The scale and its count are in device memory and nothing waits for the device, so that a step can be part of a CUDA
  // graph; for optimizers with capturable=true.
  bool capturable = false;
};

struct ScaleState {
  double scale = 65536;
  int64_t growth_tracker = 0;  // steps without overflow
};
ScaleState next_scale(const ScaleState& now, bool found_inf, const GradScalerOptions& options);
// The same for a scale and a count in CUDA memory, float32 [] each, as found_inf.
void update_scale_there(const Tensor& scale, const Tensor& tracker, const Tensor& found_inf,
                        const GradScalerOptions& options);

class GradScaler {
 public:
  explicit GradScaler(const GradScalerOptions& options = {});
  Tensor scale(const Tensor& loss);
  void unscale_(Optimizer& optimizer);  // before clipping; step() does it otherwise. RuntimeError the second time
  // with capturable, after unscale_(): step() changes nothing either where flag is not 0
  void also_skip(Optimizer& optimizer, const Tensor& flag);
  bool step(
      Optimizer&
          optimizer);  // false when the step was skipped; with capturable always true, since only the device knows
  void update(std::optional<double> new_scale = {});  // after every step()
  // With capturable these wait for the device.
  double get_scale() const { return options_.enabled ? state().scale : 1; }
  int64_t growth_tracker() const { return state().growth_tracker; }
  const GradScalerOptions& options() const { return options_; }
  ScaleState state() const;
  void load_state(const ScaleState& state);

 private:
  const Tensor& scale_there(Device device);
  struct Stage {
    Tensor found_inf;
    bool stepped = false;
  };
  GradScalerOptions options_;
  ScaleState state_;                          // on the host, until `there` holds it
  Tensor scale_there_, tracker_there_;        // with capturable: float32 [], on the device of what is scaled first
  std::map<const Optimizer*, Stage> stages_;  // since the last update()
};

}  // namespace sf::optim
