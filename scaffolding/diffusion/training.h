// The training objective of diffusion models: clean latents become what the model sees and what it should answer, and
// its answer a loss. Numbers and the order of draws are those of diffusers' training scripts (examples/text_to_image,
// examples/dreambooth for flow matching). Functions only; a scheduler is read, not changed.
#pragma once
#include <functional>

#include "scaffolding/diffusion/schedulers/scheduler.h"

namespace sf::diffusion {

struct TrainingOptions {
  // What the model answers: epsilon (the noise), v_prediction, sample (the clean latents), flow_prediction (noise minus
  // latents, of FlowMatchEulerDiscreteScheduler and no other). Absent: as the scheduler's config says.
  std::optional<std::string> prediction_type;
  // Min-SNR weights: losses of timesteps whose signal-to-noise ratio is above this count less (Hang et al. 2023, arXiv
  // 2303.09556, which takes 5).
  std::optional<double> snr_gamma;
  double noise_offset =
      0;  // noise that all pixels of a channel share, for very dark and very bright pictures; 0.05 to 0.1
  // further noise that the model sees and is not asked for (Ning et al. 2023, arXiv 2301.11706); 0.1
  double input_perturbation = 0;
  double condition_dropout =
      0;  // the share of samples that are trained without their condition, for classifier-free guidance
  // Flow matching (Esser et al. 2024, arXiv 2403.03206, section 3.1): how timesteps are drawn (logit_normal, mode) or
  // losses are weighted (sigma_sqrt, cosmap); "none": neither.
  std::string weighting_scheme = "none";
  double logit_mean = 0, logit_std = 1, mode_scale = 1.29;
  // Which timesteps are drawn more often, `multiplier` times as often as the others (diffusers'
  // train_text_to_image_sdxl.py): "earlier" and "later" are the `portion` of the schedule with the least and the most
  // noise, "range" is from begin (inclusive) to end (exclusive). Not of flow matching.
  std::string timestep_bias_strategy = "none";
  double timestep_bias_multiplier = 1, timestep_bias_portion = 0.25;
  int64_t timestep_bias_begin = 0, timestep_bias_end = 1000;
  Fields fields();
};

// What is given instead of drawn, and where the rest is drawn from.
struct TrainingDraws {
  Tensor noise;      // like the latents; noise_offset is added to it all the same
  Tensor timesteps;  // [B], of the scheduler's training timesteps
  Generator generator;
};

struct TrainingBatch {
  Tensor noisy_latents;  // like the latents
  Tensor timesteps;      // [B]
  Tensor target;         // like the latents
  Tensor weights;        // [B], float32; absent: all 1
  Tensor dropped;        // [B], bool: samples to be trained without their condition; absent: none
};

// latents[B, C, ...], as the model takes them (times the autoencoder's scaling_factor). ValueError for options that do
// not go with the scheduler, TypeError for one whose noise levels have no training timesteps (EulerDiscrete:
// take DDPM with its config).
TrainingBatch training_batch(Scheduler& scheduler, const Tensor& latents, const TrainingOptions& options = {},
                             const TrainingDraws& draws = {});

// The weighted mean squared difference of prediction[B, C, ...] and target: a float32 number.
Tensor training_loss(const Tensor& prediction, const TrainingBatch& batch);

// condition[B, ...] with null_condition (of one sample, or [B, ...]; absent: zeros) where dropped[B]. An absent
// `dropped` changes nothing.
Tensor drop_condition(const Tensor& condition, const Tensor& dropped, const Tensor& null_condition = {});

using TrainedModel =
    std::function<Tensor(const Tensor& noisy_latents, const Tensor& timesteps, const Tensor& condition)>;
// All of it: the loss of the model at one batch. condition may be absent.
Tensor diffusion_loss(const TrainedModel& model, Scheduler& scheduler, const Tensor& latents, const Tensor& condition,
                      const TrainingOptions& options = {}, const TrainingDraws& draws = {},
                      const Tensor& null_condition = {});

// Signal-to-noise ratio alphas_cumprod / (1 - alphas_cumprod) at timesteps[...], float32 of the same shape.
Tensor compute_snr(const Scheduler& noise_scheduler, const Tensor& timesteps);

}  // namespace sf::diffusion
