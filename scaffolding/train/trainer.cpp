#include "scaffolding/train/trainer.h"

#include <unistd.h>

#include <cmath>
#include <iostream>

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/io/safetensors.h"
#include "scaffolding/io/torch_file.h"
#include "scaffolding/nn/clip_grad.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/copy/pinned.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/train/interrupt.h"
#include "scaffolding/train/training_files.h"

namespace sf::train {

static Device device_of(const Named& parameters) { return parameters.empty() ? Device() : parameters[0].tensor.device(); }

static Tensors tensors_of(const Named& parameters) {
  Tensors out;
  for (auto& p : parameters) out.push_back(p.tensor);
  return out;
}

Trainer::Trainer(nn::Module& model, optim::Optimizer& optimizer, data::DataLoader& loader, Step step, TrainerOptions options)
    : model_(model), optimizer_(optimizer), loader_(loader), step_(std::move(step)), o_(std::move(options)), parameters_(nn::named_parameters(model)) {
  o_.run.check(loader.size());
  SF_CHECK(step_, "Trainer: needs a step function that gives the loss of a batch");
  SF_CHECK(!o_.scheduler || &o_.scheduler->optimizer() == &optimizer, "Trainer: the scheduler must be one of this optimizer");
  SF_CHECK(bool(o_.evaluate) == o_.run.eval_steps.has_value(), "Trainer: evaluate and eval_steps must be given together");
  SF_CHECK(o_.resume.empty() || !o_.run.output_dir.empty(), "Trainer: resume needs an output_dir");
  SF_CHECK(!o_.ema || o_.ema->shadow_params().size() == parameters_.size(), "Trainer: ema must be made from the model's ", parameters_.size(),
           " parameters, it has ", o_.ema ? o_.ema->shadow_params().size() : 0);
  for (size_t g = 0; g < optimizer.num_groups(); ++g)
    for (const Tensor& p : optimizer.params(g)) {
      bool known = std::any_of(parameters_.begin(), parameters_.end(), [&](auto& named) { return named.tensor.is_same(p); });
      SF_CHECK(known, "Trainer: the optimizer has a parameter of shape ", p.shape(), " that the model does not have; a checkpoint would miss it");
      trained_.push_back(p);
    }
  if (o_.run.mixed_precision == "fp16") scaler_.emplace(optim::GradScalerOptions{.capturable = o_.cuda_graph});
  if (o_.cuda_graph) make_capturable();
  last_step_ = o_.run.total_steps(loader.size());
  epochs_before_ = loader.epoch();
  if (o_.run.output_dir.empty()) return;
  checkpoints_.emplace(o_.run.output_dir, o_.run.checkpoints_total_limit);
  auto found = checkpoints_->find(o_.resume);
  checkpoints_->clean();
  if (!found) return;
  damaged_ = found->damaged;
  load(found->path);
}

static Tensors there(const Tensors& inputs, Device device) {
  Tensors out;
  for (const Tensor& t : inputs) {
    check_defined("Trainer", "what prepare made of a batch", t);
    bool uploads = device.is_cuda() && t.device().is_cpu();
    out.push_back(uploads ? to_device(pin_memory(t), device, true) : to_device(t, device));  // a copy from pinned memory waits for nothing
  }
  return out;
}

static Trainer::Step both(Trainer::Prepare prepare, Trainer::PreparedStep step, Device device) {
  SF_CHECK(prepare && step, "Trainer: needs a function that prepares a batch and one that gives the loss of what was prepared");
  return [=](data::Batch& batch) { return step(there(prepare(batch), device)); };
}

Trainer::Trainer(nn::Module& model, optim::Optimizer& optimizer, data::DataLoader& loader, Prepare prepare, PreparedStep step, TrainerOptions options)
    : Trainer(model, optimizer, loader, both(prepare, step, device_of(nn::named_parameters(model))), std::move(options)) {
  prepare_ = std::move(prepare);
  prepared_ = std::move(step);
}

void Trainer::make_capturable() {
  Device device = device_of(parameters_);
  SF_CHECK(device.is_cuda(), "Trainer: cuda_graph needs a model on CUDA, got one on ", device);
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) {
    try {
      optimizer_.set_option(g, "capturable", true);
    } catch (const ValueError& e) {
      fail(std::string("Trainer: cuda_graph needs an optimizer that can be captured (Adam, AdamW, AdamW8bit, SGD): ") + e.what());
    }
  }
  bad_ = zeros({}, kFloat32, device);
}

// ---- checkpoints

static std::map<std::string, Tensor> by_name(const Named& names, const Tensors& tensors) {
  std::map<std::string, Tensor> out;
  for (size_t i = 0; i < names.size(); ++i) out[names[i].name] = tensors[i];
  return out;
}

void Trainer::write_checkpoint(const std::string& folder) {
  std::map<std::string, Tensor> weights;
  for (auto& [name, t] : nn::state_dict(model_)) weights[name] = t;
  write_safetensors(weights, folder + "/model.safetensors");
  write_torch(to_object(optimizer_.state_dict()), folder + "/optimizer.pt");
  if (o_.scheduler) write_torch(to_object(o_.scheduler->state_dict()), folder + "/scheduler.pt");
  if (scaler_) write_torch(to_object(scaler_->state(), scaler_->options()), folder + "/scaler.pt");
  if (o_.ema) write_safetensors(by_name(parameters_, o_.ema->shadow_params()), folder + "/ema.safetensors");
  write_torch(to_object(loader_.state()), folder + "/dataloader.pt");
  write_torch(random_states(device_of(parameters_)), folder + "/random_states.pt");
  state_.ema_step = o_.ema ? o_.ema->optimization_step() : 0;
  save_run_state(state_, o_.run, folder + "/trainer_state.json");
}

std::string Trainer::save() {
  SF_CHECK(checkpoints_, "Trainer: save needs an output_dir");
  settle();
  if (saved_step_ == state_.step) return newest_;
  try {
    if (log_) log_->sync();
    write_checkpoint(checkpoints_->begin(state_.step));
    newest_ = checkpoints_->commit(state_.step);
  } catch (const Error& e) {
    checkpoints_->abandon(state_.step);
    fail<RuntimeError>(checkpoints_->failure(state_.step, e.what()));
  }
  saved_step_ = state_.step;
  if (o_.on_checkpoint) o_.on_checkpoint(*this, newest_);
  return newest_;
}

void Trainer::load(const std::string& folder) {
  auto tree = [&](const char* name) { return io::load_torch(folder + "/" + name); };
  RunState state = load_run_state(folder + "/trainer_state.json");
  nn::load_state_dict(model_, io::load_safetensors(folder + "/model.safetensors"));
  optimizer_.load_state_dict(optimizer_state(tree("optimizer.pt")));
  if (o_.scheduler) o_.scheduler->load_state_dict(scheduler_state(tree("scheduler.pt")));
  if (scaler_) scaler_->load_state(scaler_state(tree("scaler.pt")));
  if (o_.ema) {
    io::SafetensorsFile file(folder + "/ema.safetensors");
    Tensors shadow;
    for (size_t i = 0; i < parameters_.size(); ++i) shadow.push_back(to_device(file.get(parameters_[i].name), o_.ema->shadow_params()[i].device()));
    o_.ema->load(o_.ema->options(), state.ema_step, shadow);
  }
  loader_.load_state(loader_state(tree("dataloader.pt")));
  random_states_ = tree("random_states.pt");
  state_ = std::move(state);
  epochs_before_ = loader_.epoch() - state_.epoch;
  newest_ = folder;
  saved_step_ = state_.step;
}

// ---- the loop

bool Trainer::finished() const { return (o_.run.max_steps && state_.step >= *o_.run.max_steps) || (o_.run.max_epochs && epochs() >= *o_.run.max_epochs); }

void Trainer::show(const std::string& text) const {
  if (!text.empty()) (o_.progress ? *o_.progress : std::cerr) << text << std::flush;
}

void Trainer::begin() {
  SF_CHECK(!o_.cuda_graph || prepared_,
           "Trainer: cuda_graph needs a step in two parts, of which `prepare` is what the host does; give both to the constructor");
  if (random_states_) set_random_states(*std::exchange(random_states_, {}), device_of(parameters_));
  else if (o_.seed && !begun_ && state_.step == 0) manual_seed(*o_.seed);
  begun_ = true;
  stop_ = false;
  bool terminal = !o_.progress && isatty(STDERR_FILENO);
  log_.emplace(o_.run, state_, last_step_, o_.quiet ? Progress::Quiet : terminal ? Progress::Terminal : Progress::Lines);
  if (!o_.quiet)
    for (auto& reason : damaged_) show("Trainer: passed over a damaged checkpoint: " + reason + "\n");
}

FitResult Trainer::fit() {
  StopOnInterrupt interrupt(o_.stop_on_interrupt);
  begin();
  bool stopped = false;
  while (!stopped && !finished()) {
    StepRecord record;
    if (!(o_.cuda_graph ? captured_step() : train_step(record))) break;
    const bool evaluating = o_.run.eval_steps && state_.step % *o_.run.eval_steps == 0;
    if (o_.cuda_graph) {
      if (evaluating || state_.step % o_.run.logging_steps == 0) settle(evaluating);
    } else {
      if (evaluating) record.evaluation = evaluate();
      show(log_->record(record, state_));
    }
    if (o_.on_step_end) o_.on_step_end(*this);
    if (checkpoints_ && o_.run.checkpointing_steps && state_.step % *o_.run.checkpointing_steps == 0) save();
    stopped = stop_ || interrupt.asked();
  }
  settle();
  optimizer_.zero_grad();
  show(log_->finish());
  if (checkpoints_ && state_.step > 0) save();
  log_.reset();
  return {stopped, state_.step, state_.epoch, loss_, newest_};
}

std::optional<data::Batch> Trainer::next_batch() {
  while (true) {
    if (o_.run.max_epochs && epochs() >= *o_.run.max_epochs) {
      state_.epoch = epochs();
      return {};
    }
    if (std::optional<data::Batch> batch = loader_.next()) return batch;
  }
}

bool Trainer::train_step(StepRecord& record) {
  optimizer_.zero_grad();
  for (int64_t i = 0; i < o_.run.gradient_accumulation_steps; ++i) {
    std::optional<data::Batch> batch = next_batch();
    if (!batch) return false;
    record.loss += micro_step(*batch);
    record.samples += batch->size();
  }
  record.lr = optimizer_.lr();
  record.grad_norm = update();
  loss_ = record.loss;
  ++state_.step;
  state_.epoch = epochs();
  return true;
}

// What the step gives, under autocast where mixed_precision asks for it.
Tensor Trainer::loss_of(const std::function<Tensor()>& step) const {
  Tensor loss;
  {
    std::optional<autocast::Autocast> on;
    if (o_.run.mixed_precision != "no") on.emplace(device_of(parameters_), autocast::Options{.dtype = o_.run.mixed_precision == "fp16" ? kFloat16 : kBFloat16});
    loss = step();
  }
  SF_CHECK(loss && loss.numel() == 1 && loss.requires_grad(), "Trainer: step must return the loss, one element that requires a gradient, got ",
           loss ? "shape " + str(loss.shape()) + (loss.requires_grad() ? "" : " without gradient") : "nothing");
  return loss;
}

void Trainer::backward(Tensor loss) {
  if (o_.run.gradient_accumulation_steps > 1) loss = loss / double(o_.run.gradient_accumulation_steps);
  (scaler_ ? scaler_->scale(loss) : loss).backward();
}

Tensors Trainer::gradients() const {
  Tensors grads;
  for (const Tensor& p : trained_)
    if (Tensor g = p.grad()) grads.push_back(g);
  SF_CHECK_AS(RuntimeError, !grads.empty(), "Trainer: no parameter of the optimizer got a gradient; the loss does not depend on them");
  return grads;
}

// The batch's share of the loss, whose gradient is added.
double Trainer::micro_step(data::Batch& batch) {
  Tensor loss = loss_of([&] { return step_(batch); });
  double value = loss.item();
  check_loss(value, state_.step + 1, parameters_);
  backward(loss);
  return value / double(o_.run.gradient_accumulation_steps);
}

// The optimizer's step; returns the norm of the gradients.
double Trainer::update() {
  if (scaler_) scaler_->unscale_(optimizer_);
  Tensor norm = nn::get_total_norm(gradients());
  double value = norm.item();
  // A scaled loss may overflow: the scaler skips the step and lowers the scale. Where it is below 1 already, that is not why.
  if (!scaler_ || scaler_->get_scale() < 1) check_gradients(value, state_.step + 1, parameters_);
  if (o_.run.max_grad_norm && std::isfinite(value)) nn::clip_grads_with_norm_(trained_, *o_.run.max_grad_norm, norm);
  bool stepped = true;
  if (scaler_) {
    stepped = scaler_->step(optimizer_);
    scaler_->update();
  } else {
    optimizer_.step();
  }
  if (!stepped) return value;
  if (o_.scheduler) o_.scheduler->step();
  if (o_.ema) o_.ema->step(tensors_of(parameters_));
  return value;
}

// ---- captured steps

// The losses of inputs, n batches one after the other, and the norm: float64 [n + 1]. Everything up to the averages.
Tensors Trainer::step_to_capture(const Tensors& inputs) {
  const size_t n = size_t(o_.run.gradient_accumulation_steps), each = inputs.size() / n;
  optimizer_.zero_grad();
  Tensors numbers;
  for (size_t i = 0; i < n; ++i) {
    Tensor loss = loss_of([&] { return prepared_(Tensors(inputs.begin() + long(i * each), inputs.begin() + long((i + 1) * each))); });
    numbers.push_back(to_dtype(loss.detach().reshape({}), kFloat64));
    backward(loss);
  }
  if (scaler_) scaler_->unscale_(optimizer_);
  Tensor norm = nn::get_total_norm(gradients());
  numbers.push_back(to_dtype(norm, kFloat64));
  Tensor results = stack(numbers);
  // From the first number on that is not finite, no step changes anything: the host hears of it later.
  note_not_finite(scaler_ ? results.narrow(0, 0, int64_t(n)) : results, bad_);
  if (o_.run.max_grad_norm) nn::clip_grads_with_norm_(trained_, *o_.run.max_grad_norm, norm);
  if (scaler_) {
    scaler_->also_skip(optimizer_, bad_);
    scaler_->step(optimizer_);
    scaler_->update();
  } else {
    optimizer_.step_unless(bad_);
    if (o_.ema) o_.ema->step(tensors_of(parameters_));
  }
  return {results};
}

bool Trainer::captured_step() {
  Pending now;
  Tensors inputs;
  for (int64_t i = 0; i < o_.run.gradient_accumulation_steps; ++i) {
    std::optional<data::Batch> batch = next_batch();
    if (!batch) return false;
    Tensors some = there(prepare_(*batch), device_of(parameters_));
    SF_CHECK(!some.empty() && inputs.size() == some.size() * size_t(i), "Trainer: prepare must give as many tensors for each batch, got ", some.size());
    inputs.insert(inputs.end(), some.begin(), some.end());
    now.record.samples += batch->size();
  }
  now.record.lr = optimizer_.lr();
  if (!graphed_) graphed_ = std::make_unique<optim::GraphedStep>([this](const Tensors& in) { return step_to_capture(in); });
  now.results = (*graphed_)(inputs)[0];
  // With a scale only the device knows whether a step was skipped, and a schedule and averages have to.
  bool stepped = true;
  if (scaler_ && (o_.scheduler || o_.ema)) stepped = std::isfinite(now.results.select(0, o_.run.gradient_accumulation_steps).item());
  if (stepped && o_.scheduler) o_.scheduler->step();
  if (stepped && scaler_ && o_.ema) o_.ema->step(tensors_of(parameters_));
  now.step = ++state_.step;
  now.epoch = state_.epoch = epochs();
  pending_.push_back(std::move(now));
  return true;
}

// Logs the steps that the host has not heard of, the last one with the evaluation: where the host waits.
void Trainer::settle(bool evaluating) {
  if (pending_.empty()) return;
  auto pending = std::exchange(pending_, {});
  Tensors results;
  for (Pending& p : pending) results.push_back(p.results);
  const std::vector<double> values = stack(results).cpu().to_vector();
  const auto n = size_t(o_.run.gradient_accumulation_steps);
  const int64_t step = state_.step, epoch = state_.epoch;
  for (size_t k = 0; k < pending.size(); ++k) {
    Pending& p = pending[k];
    const double* losses = values.data() + k * (n + 1);
    for (size_t i = 0; i < n; ++i) {
      check_loss(losses[i], p.step, parameters_);
      p.record.loss += losses[i] / double(n);
    }
    p.record.grad_norm = losses[n];
    if (!scaler_ || scaler_->get_scale() < 1) check_gradients(losses[n], p.step, parameters_);
    loss_ = p.record.loss;
    state_.step = p.step, state_.epoch = p.epoch;
    if (evaluating && k + 1 == pending.size()) p.record.evaluation = evaluate();
    show(log_->record(p.record, state_));
  }
  state_.step = step, state_.epoch = epoch;
}

double Trainer::loss() {
  settle();
  return loss_;
}

optim::GraphedStep::Statistics Trainer::graphs() const { return graphed_ ? graphed_->statistics() : optim::GraphedStep::Statistics{}; }

std::map<std::string, double> Trainer::evaluate() {
  struct Restore {
    Trainer& t;
    std::vector<std::pair<nn::Module*, bool>> modes;
    ~Restore() {
      for (auto& [m, training] : modes) m->training = training;
      if (t.o_.ema) t.o_.ema->restore(tensors_of(t.parameters_));
    }
  };
  std::vector<std::pair<nn::Module*, bool>> modes;
  for (auto& m : nn::named_modules(model_)) modes.emplace_back(m.module, m.module->training);
  Tensors parameters = tensors_of(parameters_);
  if (o_.ema) o_.ema->store(parameters);
  Restore restore{*this, std::move(modes)};
  if (o_.ema) o_.ema->copy_to(parameters);
  model_.eval();
  autograd::NoGrad off;
  return o_.evaluate();
}

}  // namespace sf::train
