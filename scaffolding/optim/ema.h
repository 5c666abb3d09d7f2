// Exponential moving averages of weights, as diffusers' EMAModel: shadow parameters that follow the trained ones.
// Holds copies; belongs to one thread at a time.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::optim {

// averages[i] += weight * (values[i] - averages[i]), all tensors in one pass. dtypes may differ, shapes may not.
void lerp_(const Tensors& averages, const Tensors& values, double weight);
void lerp_(const Tensors& averages, const Tensors& values, const Tensor& weight);  // float64 [] on their CUDA device

struct EmaOptions {
  double decay = 0.9999;
  double min_decay = 0;
  int64_t update_after_step = 0;  // before that the averages are the parameters
  bool use_ema_warmup = false;    // decay = 1 - (1 + step / inv_gamma)^-power instead of (1 + step) / (10 + step)
  double inv_gamma = 1, power = 2.0 / 3;
};
// The decay at a step counting from 1.
double ema_decay(const EmaOptions& options, int64_t optimization_step);

class EMAModel {
 public:
  explicit EMAModel(const Tensors& parameters, const EmaOptions& options = {});
  EMAModel(EMAModel&&) = default;
  // After an optimizer step. Parameters that require no gradient are copied. In a captured step every replay counts and
  // follows with the decay of its count; a step before the capture makes room for it (RuntimeError).
  void step(const Tensors& parameters);
  void copy_to(const Tensors& parameters) const;  // the averages become the weights
  void store(const Tensors& parameters);          // keeps the weights, to
  void restore(const Tensors& parameters);        // put them back, once
  void to(std::optional<Device> device, std::optional<DType> dtype = {});

  const Tensors& shadow_params() const { return shadow_; }
  int64_t optimization_step() const { return progress_->step; }
  double cur_decay_value() const { return progress_->decay; }
  const EmaOptions& options() const { return progress_->options; }
  // Resumes; shapes must agree. The tensors are copied.
  void load(const EmaOptions& options, int64_t optimization_step, const Tensors& shadow_params);

 private:
  void check(const char* op, const Tensors& parameters) const;
  struct Progress {  // graphs hold it too: their replays advance it
    EmaOptions options;
    int64_t step = 0;
    double decay = 0;
    Tensor weight_there;   // float64 []: 1 - decay where captured steps read it
    int64_t revision = 0;  // of shadow_'s tensors
  };
  void follow(const Tensors& parameters, const Tensor& weight_there);
  std::shared_ptr<Progress> progress_;
  Tensors shadow_, stored_;
};

}  // namespace sf::optim
