// Scheduler: the sampler of a diffusion model. It turns noise into a sample by steps,
// each from one output of the model.
// Classes, config fields, arguments and numbers are diffusers' (0.42). A scheduler has the state of one sampling run.
// Not locked: one thread at a time.
#pragma once
#include <limits>
#include <memory>
#include <string_view>
#include <variant>

#include "scaffolding/core/generator.h"
#include "scaffolding/diffusion/schedulers/beta_schedule.h"
#include "scaffolding/diffusion/schedulers/prediction.h"
#include "scaffolding/diffusion/schedulers/timestep_spacing.h"

namespace sf::diffusion {

// None: the device's default stream. One: for the whole batch. As many as the batch has samples: each draws its own
// sample, so that a sample does not depend on the batch it is made in.
using Generators = std::vector<Generator>;

// Noise of a normal distribution, the numbers of torch's generators.
// With CPU generators it is drawn there and moved to `device`.
Tensor randn_tensor(const Shape& shape, const Generators& generators = {}, std::optional<Device> device = {},
                    std::optional<DType> dtype = {});

struct TimestepOptions {
  std::optional<int64_t> num_inference_steps;
  Device device;                                         // of `timesteps`; sigmas stay on the host
  std::optional<std::vector<double>> timesteps, sigmas;  // a schedule of one's own
  std::optional<double> mu;                              // flow matching: how far the schedule is shifted
  std::optional<int64_t> original_inference_steps;       // LCM: the steps of its teacher
  double strength = 1;                                   // LCM: the share of the schedule that is run
};

struct StepOptions {
  double eta = 0;                         // DDIM: 0 adds no noise, 1 as much as DDPM
  bool use_clipped_model_output = false;  // DDIM: the noise that goes with the clipped prediction
  Generators generator;
  Tensor variance_noise;  // instead of drawing, like the sample
  // Karras et al. 2022, algorithm 2
  double s_churn = 0, s_tmin = 0, s_tmax = std::numeric_limits<double>::infinity(), s_noise = 1;
  Tensor per_token_timesteps;           // flow matching: [B, tokens], in training timesteps
  Tensor old_pred_original_sample;      // CogVideoXDPM: the previous step's prediction
  std::optional<double> timestep_back;  // CogVideoXDPM: the previous step's timestep
  int64_t order = 4;                    // LMS: how many steps' outputs count
  Tensor pred_original_sample;          // EDMEuler: instead of the one that model_output says
};

struct StepOutput {
  Tensor prev_sample;  // one step less noisy
  // the sample without noise as predicted from here; undefined where diffusers' class gives none
  Tensor pred_original_sample;
};

// What a class keeps between the steps of a run, by diffusers' name of it: samplers and pipelines that are made of this
// one read and set it. entries: how many tensors a list must have, or the most that a number may be; 0 for any.
struct RunState {
  const char* name;
  std::variant<Tensor*, Tensors*, int64_t*> place;
  size_t entries = 0;
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  Scheduler() = default;
  Scheduler(const Scheduler&) = delete;

  virtual const char* name() const = 0;        // diffusers' class name
  virtual Fields fields() = 0;                 // of the config
  virtual int64_t order() const { return 1; }  // calls of the model for each entry of a schedule without repetitions
  virtual double init_noise_sigma() const { return 1; }  // what unit noise is multiplied by before the first step
  // The arguments of diffusers' methods of the same name, in its order.
  virtual std::string_view timestep_parameters() const { return "num_inference_steps, device"; }
  virtual std::string_view step_parameters() const { return "model_output, timestep, sample, return_dict"; }
  virtual bool returns_dict() const { return true; }  // the default of return_dict

  // ---- a run. ValueError for no steps, for more than the training had, for an option that this class does not take.
  void set_timesteps(int64_t num_inference_steps, Device device = {});
  void set_timesteps(const TimestepOptions& options);
  // what the model is called with; int64, or float32 where fractions occur
  const Tensor& timesteps() const { return timesteps_; }
  const Tensor& sigmas() const { return sigmas_; }  // one more than timesteps; undefined where the class has none
  std::optional<int64_t> num_inference_steps() const { return num_inference_steps_; }
  std::optional<int64_t> step_index() const { return step_index_; }
  std::optional<int64_t> begin_index() const { return begin_index_; }
  void set_begin_index(int64_t index);  // where in the schedule a run begins (img2img)

  virtual Tensor scale_model_input(const Tensor& sample, double) { return sample; }
  // model_output and sample: one shape, [B, C, ...]. ValueError before set_timesteps, for a class that needs a run.
  StepOutput step(const Tensor& model_output, double timestep, const Tensor& sample, const StepOptions& options = {});
  // original_samples with the noise of their timesteps; timesteps: [B] or one for all.
  virtual Tensor add_noise(const Tensor& original_samples, const Tensor& noise, const Tensor& timesteps) = 0;
  virtual Tensor get_velocity(const Tensor& sample, const Tensor& noise, const Tensor& timesteps);
  // Between steps: only the samples at these places [n] of the batch go on.
  virtual void keep_samples(const Tensor& /*places*/) {}

  // ---- a run as a sampler of one's own steers it
  virtual std::vector<RunState> run_state() { return {}; }
  void take_timesteps(const Tensor& timesteps);  // [n], instead of the schedule's
  void take_sigmas(const Tensor& sigmas);
  void set_step_index(std::optional<int64_t> index);
  void reset_begin_index(std::optional<int64_t> index);
  void set_num_inference_steps(std::optional<int64_t> n) { num_inference_steps_ = n; }

  // ---- config
  io::Object config();        // every field, and what a config had besides
  io::Object saved_config();  // as scheduler_config.json: with _class_name
  const ConfigRest& config_rest() const { return rest_; }
  void set_config_rest(ConfigRest rest) { rest_ = std::move(rest); }
  int64_t num_train_timesteps() const { return num_train_timesteps_; }
  // Of each training timestep: the share of a sample's power that is signal. Empty for flow matching.
  const std::vector<double>& alphas_cumprod() const { return alphas_cumprod_; }
  const std::vector<float>& betas() const { return betas_; }  // empty where the class has none
  virtual std::vector<float> alphas() const;
  virtual std::optional<double> final_alpha() const { return {}; }

 protected:
  virtual void make_schedule(const TimestepOptions& options, int64_t num_inference_steps) = 0;
  virtual StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample,
                             const StepOptions& options) = 0;
  virtual bool learns_variance() const { return false; }  // the model's output may have more channels than the sample
  virtual bool needs_set_timesteps() const { return true; }

  void set_schedule(const std::vector<double>& timesteps, DType dtype, Device device = {});
  void set_sigmas(const std::vector<float>& sigmas);
  void start_index(double timestep);        // sets step_index() where it is not set
  int64_t index_of(double timestep) const;  // the first in the schedule
  virtual int64_t index_for_timestep(double timestep) const;
  void check_custom_timesteps(const std::vector<double>& timesteps) const;  // whole, descending, below the training's
  float sigma_at(int64_t index) const;
  // as add_noise picks sigmas: the run's place once it has one
  std::vector<int64_t> indices_for(const Tensor& timesteps) const;
  size_t place() const { return size_t(step_index_.value()); }
  int64_t training_timestep(double timestep) const;                      // as an index; ValueError for what is none
  Tensor alphas_for(const Tensor& timesteps, const Tensor& like) const;  // per_sample alphas_cumprod
  Tensor velocity(const Tensor& sample, const Tensor& noise, const Tensor& timesteps) const;
  void check_noise(const Tensor& samples, const Tensor& noise) const;

  int64_t num_train_timesteps_ = 0;
  std::vector<float> betas_;
  std::vector<double> alphas_cumprod_;
  std::optional<int64_t> num_inference_steps_, step_index_, begin_index_;
  std::vector<double> timestep_values_;
  std::vector<float> sigma_values_;
  bool set_up_ = false;  // set_timesteps was called

 private:
  Tensor timesteps_, sigmas_;
  ConfigRest rest_;
};

// A scheduler of the training timesteps' alphas_cumprod: the share of a sample's power that is signal.
class AlphaScheduler : public Scheduler {
 public:
  Tensor add_noise(const Tensor& original_samples, const Tensor& noise, const Tensor& timesteps) override;
  Tensor get_velocity(const Tensor& sample, const Tensor& noise, const Tensor& timesteps) override {
    return velocity(sample, noise, timesteps);
  }
  std::optional<double> final_alpha() const override { return final_alpha_; }

 protected:
  void set_betas(const char* who, const BetaConfig& config, bool rescale_zero_snr, bool set_alpha_to_one);
  void set_alphas(int64_t num_train_timesteps, std::vector<double> alphas_cumprod, bool set_alpha_to_one);
  // T: the dtype diffusers has the table in. Timesteps below 0 are the end of the run.
  template <class T> T alpha_at(int64_t timestep) const {
    return T(timestep >= 0 ? alphas_cumprod_.at(size_t(timestep)) : final_alpha_);
  }

  double final_alpha_ = 1;
};

// A scheduler of noise levels: sample = signal + sigma * noise.
class SigmaScheduler : public Scheduler {
 public:
  Tensor add_noise(const Tensor& original_samples, const Tensor& noise, const Tensor& timesteps) override;

 protected:
  // The whole training schedule, noisiest first, as timesteps and sigmas.
  void set_training_sigmas(const BetaConfig& config, bool rescale_zero_snr);
  // n of the training timesteps, descending, and their noise levels; with a curve that curve's levels between the ends,
  // and their timesteps, whole ones if `rounded`. Levels end before the last of a run, which has none.
  struct Spaced {
    std::vector<double> timesteps, levels;
  };
  Spaced spaced_levels(const std::string& timestep_spacing, int64_t n, int64_t offset, SigmaCurve curve,
                       bool rounded) const;
  double initial_sigma(const std::string& timestep_spacing) const;
  Tensor scaled_input(const Tensor& sample, double timestep);  // to unit variance

  std::vector<float> training_sigmas_;  // ascending
};

std::vector<double> float_rounded(std::vector<double> values);  // through float32

// The samples at places [n] of a tensor [B, ...], or nothing of none.
void keep_places(Tensor& samples, const Tensor& places);

// ValueError for ranges that cannot be.
void check_clipping(const char* who, double clip_sample_range, double dynamic_thresholding_ratio,
                    double sample_max_value);
void check_sigma_range(const char* who, std::optional<double> sigma_min, std::optional<double> sigma_max);
// ValueError naming those allowed.
void check_one_of(const char* who, const char* field, const std::string& value,
                  std::initializer_list<const char*> allowed);

// values[B] for a batch, shaped to broadcast over `like`, in its dtype and on its device.
Tensor per_sample(const char* who, const std::vector<double>& values, const Tensor& like);

// A scheduler by diffusers' class name. ValueError naming those there are for another.
std::unique_ptr<Scheduler> make_scheduler(const std::string& class_name, const io::Object& config);
std::vector<std::string> scheduler_names();
// Another one of the same class and config, without a run: for runs that take turns.
std::unique_ptr<Scheduler> fresh_scheduler(Scheduler& scheduler);
// From a folder with scheduler_config.json or that file itself; the class is the file's _class_name.
std::unique_ptr<Scheduler> load_scheduler(const std::string& path);
void save_scheduler(Scheduler& scheduler, const std::string& folder);

}  // namespace sf::diffusion
