// The improved PNDM of crowsonkb's v-diffusion: linear multistep of rising order up to the fourth, on a schedule of
// angles.
#pragma once
#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::diffusion {

struct IPNDMConfig {
  int64_t num_train_timesteps = 1000;
  std::optional<std::vector<double>> trained_betas;  // noise levels of the whole run, instead of its sines

  Fields fields() { return {{"num_train_timesteps", &num_train_timesteps}, {"trained_betas", &trained_betas}}; }
};

class IPNDMScheduler final : public Scheduler {
 public:
  using Config = IPNDMConfig;
  static constexpr const char* kName = "IPNDMScheduler";
  explicit IPNDMScheduler(IPNDMConfig config = {});
  const char* name() const override { return kName; }
  Fields fields() override { return config_.fields(); }
  std::vector<float> alphas() const override { return alphas_; }
  Tensor add_noise(const Tensor& original_samples, const Tensor& noise, const Tensor& timesteps) override;
  void keep_samples(const Tensor& places) override {
    for (Tensor& t : ets_) keep_places(t, places);
  }
  std::vector<RunState> run_state() override;

 protected:
  void make_schedule(const TimestepOptions& options, int64_t num_inference_steps) override;
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                     const StepOptions& options) override;
  bool needs_set_timesteps() const override { return false; }

 private:
  IPNDMConfig config_;
  std::vector<float> alphas_;  // of signal, as betas_ of noise; one more than timesteps
  Tensors ets_;                // oldest first, at most four
};

}  // namespace sf::diffusion
