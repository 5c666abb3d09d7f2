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
  if (o_.run.mixed_precision == "fp16") scaler_.emplace();
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
    for (auto& p : parameters_) shadow.push_back(file.get(p.name));
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
    if (!train_step(record)) break;
    if (o_.run.eval_steps && state_.step % *o_.run.eval_steps == 0) record.evaluation = evaluate();
    show(log_->record(record, state_));
    if (o_.on_step_end) o_.on_step_end(*this);
    if (checkpoints_ && o_.run.checkpointing_steps && state_.step % *o_.run.checkpointing_steps == 0) save();
    stopped = stop_ || interrupt.asked();
  }
  optimizer_.zero_grad();
  show(log_->finish());
  if (checkpoints_ && state_.step > 0) save();
  log_.reset();
  return {stopped, state_.step, state_.epoch, loss_, newest_};
}

bool Trainer::train_step(StepRecord& record) {
  optimizer_.zero_grad();
  for (int64_t i = 0; i < o_.run.gradient_accumulation_steps; ++i) {
    std::optional<data::Batch> batch;
    while (!batch) {
      if (o_.run.max_epochs && epochs() >= *o_.run.max_epochs) {
        state_.epoch = epochs();
        return false;
      }
      batch = loader_.next();
    }
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

// The batch's share of the loss, whose gradient is added.
double Trainer::micro_step(data::Batch& batch) {
  Tensor loss;
  {
    std::optional<autocast::Autocast> on;
    if (o_.run.mixed_precision != "no") on.emplace(device_of(parameters_), autocast::Options{.dtype = o_.run.mixed_precision == "fp16" ? kFloat16 : kBFloat16});
    loss = step_(batch);
  }
  SF_CHECK(loss && loss.numel() == 1 && loss.requires_grad(), "Trainer: step must return the loss, one element that requires a gradient, got ",
           loss ? "shape " + str(loss.shape()) + (loss.requires_grad() ? "" : " without gradient") : "nothing");
  auto n = double(o_.run.gradient_accumulation_steps);
  double value = loss.item();
  check_loss(value, state_.step + 1, parameters_);
  if (n > 1) loss = loss / n;
  (scaler_ ? scaler_->scale(loss) : loss).backward();
  return value / n;
}

// The optimizer's step; returns the norm of the gradients.
double Trainer::update() {
  if (scaler_) scaler_->unscale_(optimizer_);
  Tensors grads;
  for (const Tensor& p : trained_)
    if (Tensor g = p.grad()) grads.push_back(g);
  SF_CHECK_AS(RuntimeError, !grads.empty(), "Trainer: no parameter of the optimizer got a gradient; the loss does not depend on them");
  Tensor norm = nn::get_total_norm(grads);
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
