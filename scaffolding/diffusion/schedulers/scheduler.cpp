#include "scaffolding/diffusion/schedulers/scheduler.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/schedulers/factor.h"
#include "scaffolding/ops/copy/pinned.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

bool names(std::string_view parameters, std::string_view name) {
  for (size_t at = parameters.find(name); at != parameters.npos; at = parameters.find(name, at + 1)) {
    bool begins = at == 0 || parameters[at - 1] == ' ';
    size_t end = at + name.size();
    if (begins && (end == parameters.size() || parameters[end] == ',')) return true;
  }
  return false;
}

std::vector<double> timesteps_of(const char* who, const Tensor& timesteps) {
  SF_CHECK(timesteps && timesteps.ndim() <= 1 && timesteps.numel() > 0, who,
           ": timesteps must be a tensor of one timestep for each sample");
  return timesteps.to_vector();
}

}  // namespace

Tensor randn_tensor(const Shape& shape, const Generators& generators, std::optional<Device> device,
                    std::optional<DType> dtype) {
  Device target = device.value_or(Device());
  for (auto& g : generators)
    SF_CHECK(!g || g->device.type == target.type || g->device.type == DeviceType::CPU,
             "randn_tensor: cannot make a tensor on ", target, " with a generator on ", g->device);
  auto draw = [&](const Shape& size, const Generator& g) {
    Tensor noise = randn(size, g, dtype, g ? g->device : target);
    // From pinned memory the copy is only queued; any other would wait for what the GPU does.
    return noise.device().is_cpu() && target.is_cuda() ? to_device(pin_memory(noise), target, true) : noise.to(target);
  };
  if (generators.size() < 2) return draw(shape, generators.empty() ? Generator() : generators[0]);
  SF_CHECK(shape.size() > 0 && shape[0] == int64_t(generators.size()),
           "randn_tensor: a list of generators must have one for each sample, got ", generators.size(), " for ", shape);
  Shape one = shape;
  one[0] = 1;
  Tensors parts;
  for (auto& g : generators) parts.push_back(draw(one, g));
  return cat(parts, 0);
}

void check_one_of(const char* who, const char* field, const std::string& value,
                  std::initializer_list<const char*> allowed) {
  std::string list;
  for (auto* a : allowed) {
    if (value == a) return;
    list += (list.empty() ? "" : ", ") + std::string(a);
  }
  fail(who, ": ", field, " must be one of ", list, ", got '", value, "'");
}

Tensor per_sample(const char* who, const std::vector<double>& values, const Tensor& like) {
  SF_CHECK(like.ndim() > 0 && (values.size() == 1 || int64_t(values.size()) == like.size(0)), who,
           ": timesteps must be one for each sample, got ", values.size(), " for ", like.shape());
  Shape shape;
  for (int64_t i = 0; i < like.ndim(); ++i) shape.push_back(i ? 1 : int64_t(values.size()));
  // an argument of a kernel, which no copy waits for
  if (values.size() == 1) return full(shape, values[0], like.dtype(), like.device());
  return tensor(values, shape, kFloat64).to(like.dtype()).to(like.device());
}

std::vector<double> float_rounded(std::vector<double> values) {
  for (double& v : values) v = double(float(v));
  return values;
}

void check_clipping(const char* who, double clip_sample_range, double dynamic_thresholding_ratio,
                    double sample_max_value) {
  SF_CHECK(clip_sample_range > 0, who, ": clip_sample_range must be positive, got ", clip_sample_range);
  SF_CHECK(dynamic_thresholding_ratio >= 0 && dynamic_thresholding_ratio <= 1, who,
           ": dynamic_thresholding_ratio must be from 0 to 1, got ", dynamic_thresholding_ratio);
  SF_CHECK(sample_max_value > 0, who, ": sample_max_value must be positive, got ", sample_max_value);
}

void check_sigma_range(const char* who, std::optional<double> sigma_min, std::optional<double> sigma_max) {
  for (auto [name, v] : {std::pair{"sigma_min", sigma_min}, {"sigma_max", sigma_max}})
    SF_CHECK(!v || (*v > 0 && std::isfinite(*v)), who, ": ", name, " must be positive, got ", v.value_or(0));
}

// ---- Scheduler

void Scheduler::set_timesteps(int64_t num_inference_steps, Device device) {
  TimestepOptions options;
  options.num_inference_steps = num_inference_steps;
  options.device = device;
  set_timesteps(options);
}

void Scheduler::set_timesteps(const TimestepOptions& o) {
  auto takes = [&](const char* parameter, bool given) {
    if (given && !names(timestep_parameters(), parameter))
      fail(name(), ": set_timesteps takes no ", parameter, ", only ", timestep_parameters());
  };
  takes("timesteps", o.timesteps.has_value());
  takes("sigmas", o.sigmas.has_value());
  takes("mu", o.mu.has_value());
  takes("original_inference_steps", o.original_inference_steps.has_value());
  takes("strength", o.strength != 1);
  SF_CHECK(o.num_inference_steps || o.timesteps || o.sigmas, name(),
           ": set_timesteps needs num_inference_steps, or a schedule of one's own");
  for (auto* list : {&o.timesteps, &o.sigmas}) {
    if (!*list) continue;
    SF_CHECK(!(*list)->empty(), name(), ": timesteps and sigmas must not be empty");
    for (double v : **list)
      SF_CHECK(std::isfinite(v) && v >= 0, name(), ": timesteps and sigmas must be finite and not below 0, got ", v);
  }
  int64_t n = 0;
  if (o.num_inference_steps) {
    n = *o.num_inference_steps;
    SF_CHECK(n >= 1 && n <= num_train_timesteps_, name(),
             ": num_inference_steps must be from 1 to num_train_timesteps=", num_train_timesteps_, ", got ", n);
  }
  make_schedule(o, n);
  set_up_ = true;
  step_index_.reset();
  begin_index_.reset();
}

void Scheduler::set_step_index(std::optional<int64_t> index) {
  SF_CHECK(!index || (*index >= 0 && *index <= int64_t(timestep_values_.size())), name(),
           ": step_index must be in the schedule of ", timestep_values_.size(), " timesteps, got ", index.value_or(0));
  step_index_ = index;
}

void Scheduler::reset_begin_index(std::optional<int64_t> index) {
  begin_index_.reset();
  if (index) set_begin_index(*index);
}

void Scheduler::set_begin_index(int64_t index) {
  SF_CHECK(index >= 0 && index <= int64_t(timestep_values_.size()), name(), ": begin_index must be in the schedule of ",
           timestep_values_.size(), " timesteps, got ", index);
  begin_index_ = index;
}

StepOutput Scheduler::step(const Tensor& model_output, double timestep, const Tensor& sample,
                           const StepOptions& options) {
  check_defined(name(), "model_output", model_output);
  check_defined(name(), "sample", sample);
  check_floating(name(), "model_output", model_output);
  check_floating(name(), "sample", sample);
  check_same_device(name(), model_output, sample);
  SF_CHECK(set_up_ || !needs_set_timesteps(), name(), ": step needs set_timesteps first");
  Shape wanted = sample.shape();
  if (learns_variance() && sample.ndim() > 1 && model_output.ndim() == sample.ndim())
    wanted[1] = std::max(wanted[1], model_output.size(1));
  SF_CHECK(sample.ndim() > 0 && model_output.shape() == wanted, name(), ": model_output must have the shape of sample ",
           sample.shape(), ", got ", model_output.shape());
  SF_CHECK(std::isfinite(timestep), name(), ": timestep must be finite, got ", timestep);
  SF_CHECK(!(options.variance_noise && !options.generator.empty()), name(),
           ": takes a generator or variance_noise, not both");
  if (options.variance_noise) check_shape(name(), "variance_noise", options.variance_noise, sample.shape());
  return advance(model_output, timestep, sample, options);
}

Tensor Scheduler::get_velocity(const Tensor&, const Tensor&, const Tensor&) {
  fail<NotSupported>(name(), ": has no get_velocity, as in diffusers");
}

void Scheduler::set_schedule(const std::vector<double>& timesteps, DType dtype, Device device) {
  Tensor t = tensor(timesteps, {int64_t(timesteps.size())}, kFloat64).to(dtype);
  timestep_values_ = t.to_vector();
  timesteps_ = t.to(device);
}

std::vector<float> Scheduler::alphas() const {
  std::vector<float> out;
  for (float beta : betas_) out.push_back(1 - beta);
  return out;
}

void Scheduler::take_timesteps(const Tensor& timesteps) {
  check_defined(name(), "timesteps", timesteps);
  SF_CHECK(timesteps.ndim() == 1 && timesteps.numel() > 0, name(), ": timesteps must be [n], got ", timesteps.shape());
  timestep_values_ = timesteps.to_vector();
  timesteps_ = timesteps;
}

void Scheduler::take_sigmas(const Tensor& sigmas) {
  check_defined(name(), "sigmas", sigmas);
  SF_CHECK(sigmas.ndim() == 1 && sigmas.numel() > 0, name(), ": sigmas must be [n], got ", sigmas.shape());
  auto values = sigmas.to_vector();
  set_sigmas({values.begin(), values.end()});
}

void Scheduler::set_sigmas(const std::vector<float>& sigmas) {
  sigma_values_ = sigmas;
  sigmas_ = tensor(sigmas, {int64_t(sigmas.size())}, kFloat32);
}

int64_t Scheduler::index_of(double timestep) const {
  auto at = std::find(timestep_values_.begin(), timestep_values_.end(), timestep);
  SF_CHECK(at != timestep_values_.end(), name(), ": timestep must be one of scheduler.timesteps, got ", timestep);
  return at - timestep_values_.begin();
}

void Scheduler::check_custom_timesteps(const std::vector<double>& timesteps) const {
  for (size_t i = 0; i < timesteps.size(); ++i) {
    SF_CHECK(timesteps[i] == std::trunc(timesteps[i]), name(), ": timesteps must be integers, got ", timesteps[i]);
    SF_CHECK(i == 0 || timesteps[i] < timesteps[i - 1], name(), ": timesteps must descend, got ", timesteps[i],
             " after ", timesteps[i ? i - 1 : 0]);
  }
  SF_CHECK(timesteps.front() < double(num_train_timesteps_), name(),
           ": timesteps must be below num_train_timesteps=", num_train_timesteps_, ", got ", timesteps.front());
}

int64_t Scheduler::index_for_timestep(double timestep) const {
  auto first = timestep_values_.begin() + index_of(timestep);
  // Where a timestep occurs twice the second one begins a run: the first would be a step of no length.
  auto second = std::find(first + 1, timestep_values_.end(), timestep);
  return (second != timestep_values_.end() ? second : first) - timestep_values_.begin();
}

void Scheduler::start_index(double timestep) {
  if (!step_index_) step_index_ = begin_index_ ? *begin_index_ : index_for_timestep(timestep);
  SF_CHECK_AS(RuntimeError, *step_index_ < int64_t(timestep_values_.size()), name(), ": the run of ",
              timestep_values_.size(), " timesteps is over; call set_timesteps for another");
  SF_CHECK(sigma_values_.empty() || *step_index_ + 1 < int64_t(sigma_values_.size()), name(), ": the ",
           sigma_values_.size(), " sigmas that were set are too few for ", timestep_values_.size(), " timesteps");
}

float Scheduler::sigma_at(int64_t index) const {
  SF_CHECK_AS(IndexError, index >= 0 && index < int64_t(sigma_values_.size()), name(), ": no sigma ", index,
              " in a schedule of ", sigma_values_.size());
  return sigma_values_[size_t(index)];
}

std::vector<int64_t> Scheduler::indices_for(const Tensor& timesteps) const {
  std::vector<int64_t> out;
  for (double t : timesteps_of(name(), timesteps))
    out.push_back(!begin_index_ ? index_for_timestep(t) : step_index_ ? *step_index_ : *begin_index_);
  return out;
}

int64_t Scheduler::training_timestep(double timestep) const {
  const int64_t known = alphas_cumprod_.empty() ? num_train_timesteps_ : int64_t(alphas_cumprod_.size());
  SF_CHECK(timestep >= 0 && timestep < double(known) && timestep == std::trunc(timestep), name(),
           ": timestep must be an integer from 0 to ",
           known == num_train_timesteps_ ? "num_train_timesteps - 1 = " : "the last of trained_betas, ", known - 1,
           ", got ", timestep);
  return int64_t(timestep);
}

Tensor Scheduler::alphas_for(const Tensor& timesteps, const Tensor& like) const {
  std::vector<double> values;
  for (double t : timesteps_of(name(), timesteps)) values.push_back(alphas_cumprod_[size_t(training_timestep(t))]);
  return per_sample(name(), values, like);
}

void Scheduler::check_noise(const Tensor& samples, const Tensor& noise) const {
  check_defined(name(), "sample", samples);
  check_defined(name(), "noise", noise);
  check_floating(name(), "sample", samples);
  check_shape(name(), "noise", noise, samples.shape());
}

Tensor Scheduler::velocity(const Tensor& sample, const Tensor& noise, const Tensor& timesteps) const {
  check_noise(sample, noise);
  Tensor alpha = alphas_for(timesteps, sample);
  return sqrt(alpha) * noise - sqrt(1 - alpha) * sample;
}

io::Object Scheduler::config() { return io::whole_config(fields(), rest_); }
io::Object Scheduler::saved_config() { return io::saved_config(name(), config()); }

// ---- AlphaScheduler

void AlphaScheduler::set_betas(const char* who, const BetaConfig& config, bool rescale_zero_snr,
                               bool set_alpha_to_one) {
  betas_ = betas_of(who, config, rescale_zero_snr);
  auto alphas = alphas_cumprod_of(betas_);
  set_alphas(config.num_train_timesteps, {alphas.begin(), alphas.end()}, set_alpha_to_one);
}

void AlphaScheduler::set_alphas(int64_t num_train_timesteps, std::vector<double> alphas_cumprod,
                                bool set_alpha_to_one) {
  alphas_cumprod_ = std::move(alphas_cumprod);
  final_alpha_ = set_alpha_to_one ? 1 : alphas_cumprod_.front();
  num_train_timesteps_ = num_train_timesteps;
  std::vector<double> all;
  for (int64_t t = num_train_timesteps_; t-- > 0;) all.push_back(double(t));
  set_schedule(all, kInt64);
}

Tensor AlphaScheduler::add_noise(const Tensor& original_samples, const Tensor& noise, const Tensor& timesteps) {
  check_noise(original_samples, noise);
  Tensor alpha = alphas_for(timesteps, original_samples);
  return sqrt(alpha) * original_samples + sqrt(1 - alpha) * noise;
}

// ---- SigmaScheduler

void SigmaScheduler::set_training_sigmas(const BetaConfig& config, bool rescale_zero_snr) {
  betas_ = betas_of(name(), config, rescale_zero_snr);
  auto alphas = alphas_cumprod_of(betas_);
  if (rescale_zero_snr) alphas.back() = 0x1p-24f;  // so that no noise level is infinite
  num_train_timesteps_ = config.num_train_timesteps;
  alphas_cumprod_.assign(alphas.begin(), alphas.end());
  training_sigmas_ = sigmas_of(alphas);
  std::vector<double> timesteps;
  std::vector<float> sigmas;
  for (auto t = size_t(num_train_timesteps_); t-- > 0;) {
    timesteps.push_back(double(t));
    sigmas.push_back(training_sigmas_[std::min(t, alphas.size() - 1)]);  // trained_betas may be fewer
  }
  sigmas.push_back(0);
  set_schedule(timesteps, kFloat32);
  set_sigmas(sigmas);
}

void keep_places(Tensor& samples, const Tensor& places) {
  if (samples && samples.ndim() > 0) samples = index_select(samples, 0, places.to(samples.device()));
}

SigmaScheduler::Spaced SigmaScheduler::spaced_levels(const std::string& timestep_spacing, int64_t n, int64_t offset,
                                                     SigmaCurve curve, bool rounded) const {
  Spaced out;
  out.timesteps = float_rounded(spaced_timesteps({name(), timestep_spacing, num_train_timesteps_, n, offset, false}));
  out.levels = interpolate(out.timesteps, training_sigmas_);
  if (curve == SigmaCurve::None) return out;
  const auto logs = log_of(training_sigmas_);
  out.levels = curve_sigmas(curve, out.levels.back(), out.levels.front(), int64_t(out.levels.size()));
  out.timesteps.clear();
  for (double s : out.levels) {
    const double t = sigma_to_timestep(s, logs);
    out.timesteps.push_back(rounded ? std::nearbyint(t) : t);
  }
  return out;
}

double SigmaScheduler::initial_sigma(const std::string& timestep_spacing) const {
  float most = *std::max_element(sigma_values_.begin(), sigma_values_.end());
  return double(timestep_spacing == "leading" ? std::sqrt(most * most + 1) : most);
}

Tensor SigmaScheduler::scaled_input(const Tensor& sample, double timestep) {
  check_floating(name(), "sample", sample);
  start_index(timestep);
  float sigma = sigma_values_[place()];
  return sample / std::sqrt(sigma * sigma + 1);
}

Tensor SigmaScheduler::add_noise(const Tensor& original_samples, const Tensor& noise, const Tensor& timesteps) {
  check_noise(original_samples, noise);
  std::vector<double> values;
  for (int64_t i : indices_for(timesteps)) values.push_back(double(sigma_at(i)));
  return original_samples + noise * per_sample(name(), values, original_samples);
}

}  // namespace sf::diffusion
