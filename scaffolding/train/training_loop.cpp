#include "scaffolding/train/training_loop.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <tuple>

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/nn/clip_grad.h"
#include "scaffolding/ops/ops.h"

namespace sf::train {

TrainingLoop::TrainingLoop(Parts parts, LoopOptions options)
    : parts_(std::move(parts)),
      o_(std::move(options)),
      parameters_(nn::named_parameters(parts_.model->module())),
      trained_(parts_.optimizer->params()),
      device_(parameters_.empty() ? Device() : parameters_[0].tensor.device()),
      host_decides_(parts_.scaler && (parts_.scheduler || parts_.ema)),
      loss_(std::numeric_limits<double>::quiet_NaN()) {
  o_.run.check(parts_.data->size());
  SF_CHECK(bool(o_.evaluate) == o_.run.eval_steps.has_value(),
           "Trainer: evaluate and eval_steps must be given together");
  SF_CHECK(o_.resume.empty() || !o_.run.output_dir.empty(), "Trainer: resume needs an output_dir");
  for (const Tensor& p : trained_) {
    bool known =
        std::any_of(parameters_.begin(), parameters_.end(), [&](auto& named) { return named.tensor.is_same(p); });
    SF_CHECK(known, "Trainer: the optimizer has a parameter of shape ", p.shape(),
             " that the model does not have; a checkpoint would miss it");
  }
  SF_CHECK(!parts_.ema || parts_.ema->size() == parameters_.size(), "Trainer: ema must be made from the model's ",
           parameters_.size(), " parameters, it has ", parts_.ema ? parts_.ema->size() : 0);
  if (o_.cuda_graph) {
    SF_CHECK(device_.is_cuda(), "Trainer: cuda_graph=True needs a model on CUDA, got one on ", device_);
    parts_.optimizer->make_capturable();
    bad_ = zeros({}, kFloat32, device_);
  }
  SF_CHECK(!parts_.peers || !o_.cuda_graph, "Trainer: cuda_graph=True trains in one process; leave it out");
  epochs_before_ = parts_.data->epoch();
  if (o_.run.output_dir.empty()) return;
  if (parts_.peers) {
    begin_with_peers();
    return;
  }
  checkpoints_.emplace(o_.run.output_dir, o_.run.checkpoints_total_limit);
  auto found = checkpoints_->find(o_.resume);
  checkpoints_->clean();
  if (!found) return;
  damaged_ = found->damaged;
  for (auto& reason : damaged_) parts_.host->warn("Trainer: passed over a damaged checkpoint: " + reason);
  load(found->path);
  checkpoints_->keep_to_limit(state_.step);
}

// ---- checkpoints

std::vector<std::pair<std::string, Part*>> TrainingLoop::files() const {
  std::vector<std::pair<std::string, Part*>> out;
  auto add = [&](const char* name, Part* part) {
    if (part) out.emplace_back(name, part);
  };
  add("model.safetensors", parts_.model.get());
  add("optimizer.pt", parts_.optimizer.get());
  add("scheduler.pt", parts_.scheduler.get());
  add("scaler.pt", parts_.scaler.get());
  add("ema.safetensors", parts_.ema.get());
  for (auto& [name, part] : parts_.stateful) add((name + ".pt").c_str(), part.get());
  add("dataloader.pt", parts_.data.get());
  add("random_states.pt", parts_.random.get());
  return out;
}

// All read what all have written (PeersPart), and one alone looks after the folders.
void TrainingLoop::begin_with_peers() {
  checkpoints_.emplace(o_.run.output_dir, o_.run.checkpoints_total_limit);
  PeersPart::Found found = parts_.peers->load(o_.run.output_dir, checkpoints_->steps(), o_.resume);
  damaged_ = found.damaged;
  if (parts_.peers->leads())
    for (auto& reason : damaged_) parts_.host->warn("Trainer: passed over a damaged checkpoint: " + reason);
  if (found.path.empty()) return;
  go_on(parse_run_state(found.text, found.path), found.path);
  if (parts_.peers->leads()) checkpoints_->keep_to_limit(state_.step);
}

void TrainingLoop::save_with_peers() {
  std::string folder = checkpoints_->path(state_.step);
  try {
    if (log_) log_->sync();
    parts_.peers->save(folder, run_state_text(state_, o_.run));
  } catch (const Error& e) {
    fail<RuntimeError>(checkpoints_->failure(state_.step, e.what()));
  }
  newest_ = folder;
  if (parts_.peers->leads()) checkpoints_->keep_to_limit(state_.step);
}

static constexpr char kState[] = "trainer_state.json";

std::string TrainingLoop::save() {
  SF_CHECK(checkpoints_, "Trainer: save needs an output_dir");
  settle();
  if (saved_step_ == state_.step) return newest_;
  state_.ema_step = parts_.ema ? parts_.ema->optimization_step() : 0;
  if (parts_.peers) save_with_peers();
  else save_alone();
  saved_step_ = state_.step;
  if (o_.on_checkpoint) o_.on_checkpoint(newest_);
  return newest_;
}

void TrainingLoop::save_alone() {
  try {
    if (log_) log_->sync();
    std::string folder = checkpoints_->begin(state_.step) + "/";
    for (auto& [name, part] : files()) part->save(folder + name);
    save_run_state(state_, o_.run, folder + kState);
    newest_ = checkpoints_->commit(state_.step);
  } catch (const Error& e) {
    checkpoints_->abandon(state_.step);
    fail<RuntimeError>(checkpoints_->failure(state_.step, e.what()));
  } catch (...) {
    checkpoints_->abandon(state_.step);
    throw;
  }
}

void TrainingLoop::save_if(bool due) {
  if (!checkpoints_ || !due) return;
  if (o_.save) o_.save();
  else save();
}

void TrainingLoop::load(const std::string& folder) {
  auto path = [&](const std::string& name) { return folder + "/" + name; };
  for (auto& [name, part] : files())
    SF_CHECK(std::filesystem::exists(path(name)), "Trainer: ", path(name),
             " is missing: the checkpoint is of a run with other parts");
  RunState state = load_run_state(path(kState));
  for (auto& [name, part] : files()) part->load(path(name), state);
  go_on(std::move(state), folder);
}

// What was loaded is where the run stands.
void TrainingLoop::go_on(RunState state, const std::string& folder) {
  state_ = std::move(state);
  epochs_before_ = parts_.data->epoch() - state_.epoch;
  newest_ = folder;
  saved_step_ = state_.step;
}

// ---- the loop

bool TrainingLoop::finished() const {
  return (o_.run.max_steps && state_.step >= *o_.run.max_steps) ||
         (o_.run.max_epochs && epochs() >= *o_.run.max_epochs);
}

void TrainingLoop::begin() {
  stop_ = false;
  if (!parts_.random->restore() && o_.seed && !begun_ && state_.step == 0) manual_seed(*o_.seed);
  if (parts_.peers) parts_.peers->begin();
  begun_ = true;
  barren_ = 0;
  RunOptions logged = o_.run;
  bool logs = !parts_.peers || parts_.peers->leads();
  if (!logs) logged.output_dir.clear();
  log_.emplace(logged, state_, o_.run.total_steps(parts_.data->size()),
               logs ? parts_.host->progress() : Progress::Quiet);
}

FitResult TrainingLoop::fit() {
  begin();
  bool stopped = false;
  try {
    run(stopped);
  } catch (...) {
    try {
      end();
    } catch (...) {  // the first error is the one to hear of
    }
    throw;
  }
  end();
  save_if(state_.step > 0);
  log_.reset();
  return {stopped, state_.step, state_.epoch, loss(), newest_};
}

void TrainingLoop::run(bool& stopped) {
  while (!stopped && !finished() && (o_.cuda_graph ? captured_step() : plain_step())) {
    if (o_.on_step_end) o_.on_step_end();
    save_if(o_.run.checkpointing_steps && state_.step % *o_.run.checkpointing_steps == 0);
    stopped = parts_.peers ? others_stop_ : parts_.host->interrupted() || stop_;
  }
  settle();
  parts_.optimizer->zero_grad();
}

void TrainingLoop::end() {
  parts_.data->pause();
  parts_.host->show(log_->finish());
}

bool TrainingLoop::next_batch() {
  while (true) {
    SF_CHECK_AS(RuntimeError, barren_ < 2, "Trainer: the loader gives no batches");
    if (o_.run.max_epochs && epochs() >= *o_.run.max_epochs) {
      state_.epoch = epochs();
      return false;
    }
    if (parts_.data->next()) {
      barren_ = 0;
      return true;
    }
    ++barren_;
  }
}

static double number(const Value& v) {
  if (auto* t = std::get_if<Tensor>(&v)) return t->item();
  return std::get<double>(v);
}

bool TrainingLoop::plain_step() {
  parts_.optimizer->zero_grad();
  StepRecord record;
  for (int64_t i = 0; i < o_.run.gradient_accumulation_steps; ++i) {
    if (!next_batch()) {
      if (parts_.peers && i > 0) parts_.peers->after(false);
      return false;
    }
    if (parts_.peers) parts_.peers->before(i, o_.run.gradient_accumulation_steps);
    record.samples += parts_.data->samples();
    record.loss += micro_step();
  }
  if (parts_.peers) {
    parts_.peers->after(true);
    // Asked here and heard at the end of the step: all end after the same one.
    std::tie(record.loss, others_stop_) = parts_.peers->agree(record.loss, stop_ || parts_.host->interrupted());
  }
  record.lr = number(parts_.optimizer->lr());
  record.grad_norm = update();
  loss_ = record.loss;
  ++state_.step;
  state_.epoch = epochs();
  if (evaluating()) record.evaluation = evaluate();
  parts_.host->show(log_->record(record, state_));
  return true;
}

// What the step gives, under autocast where mixed_precision asks for it.
Tensor TrainingLoop::loss_of(const std::function<Tensor()>& step) const {
  Tensor loss;
  {
    std::optional<autocast::Autocast> on;
    if (o_.run.mixed_precision != "no")
      on.emplace(device_, autocast::Options{.dtype = o_.run.mixed_precision == "fp16" ? kFloat16 : kBFloat16,
                                            .cache_enabled = autocast::state().cache});
    loss = step();
  }
  SF_CHECK_AS(
      TypeError, loss && loss.numel() == 1 && loss.requires_grad(),
      "Trainer: step must return the loss, a tensor of one element that requires a gradient, got ",
      loss ? "a tensor of shape " + str(loss.shape()) + (loss.requires_grad() ? "" : " without gradient") : "nothing");
  return loss;
}

Tensor TrainingLoop::scaled(Tensor loss) const {
  bool divides = !parts_.peers || !parts_.peers->means_gradients();
  if (divides && o_.run.gradient_accumulation_steps > 1) loss = loss / double(o_.run.gradient_accumulation_steps);
  return parts_.scaler ? parts_.scaler->scale(loss) : loss;
}

// The batch's share of the loss, whose gradient is added.
double TrainingLoop::micro_step() {
  Tensor loss = loss_of([&] { return parts_.data->loss(); });
  Tensor root = scaled(loss);
  Aside aside(*parts_.host);
  double value = loss.item();
  check_loss(value, state_.step + 1, parameters_);
  root.backward();
  return value / double(o_.run.gradient_accumulation_steps);
}

Tensors TrainingLoop::gradients() const {
  Tensors grads;
  for (const Tensor& p : trained_)
    if (Tensor g = p.grad()) grads.push_back(g);
  SF_CHECK_AS(RuntimeError, !grads.empty(),
              "Trainer: no parameter of the optimizer got a gradient; the loss does not depend on them");
  return grads;
}

// The optimizer's step; returns the norm of the gradients.
double TrainingLoop::update() {
  if (parts_.scaler) parts_.scaler->unscale_();
  double value = 0;
  {
    Aside aside(*parts_.host);
    Tensor norm = nn::get_total_norm(gradients());
    value = norm.item();
    if (o_.run.max_grad_norm && std::isfinite(value)) nn::clip_grads_with_norm_(trained_, *o_.run.max_grad_norm, norm);
  }
  const bool finite = std::isfinite(value);
  // A scaled loss may overflow: the scaler skips the step and lowers the scale. Where it is below 1 already,
  // that is not why.
  if (!finite && (!parts_.scaler || parts_.scaler->get_scale() < 1))
    check_gradients(value, state_.step + 1, parameters_);
  if (parts_.scaler) {
    parts_.scaler->step();
    parts_.scaler->update();
  } else {
    parts_.optimizer->step();
  }
  if (finite) follow(true);
  return value;
}

// What comes after a step that was not skipped.
void TrainingLoop::follow(bool averages) {
  if (parts_.scheduler) parts_.scheduler->step();
  if (averages && parts_.ema) parts_.ema->step();
}

// ---- captured steps

// The losses of inputs, the batches one after the other, and the norm: float64 [batches + 1].
// Everything up to the averages.
Tensors TrainingLoop::step_to_capture(const Tensors& inputs, const Forms& forms) {
  parts_.optimizer->zero_grad();
  Tensors numbers;
  auto at = inputs.begin();
  for (auto [form, count] : forms) {
    DataPart::Inputs batch{Tensors(at, at + long(count)), form};
    at += long(count);
    Tensor loss = loss_of([&] { return parts_.data->loss(batch); });
    numbers.push_back(to_dtype(loss.detach().reshape({}), kFloat64));
    Tensor root = scaled(loss);
    Aside aside(*parts_.host);
    root.backward();
  }
  if (parts_.scaler) parts_.scaler->unscale_();
  Tensor norm = nn::get_total_norm(gradients());
  numbers.push_back(to_dtype(norm, kFloat64));
  Tensor results = stack(numbers);
  // From the first number on that is not finite, no step changes anything: the host hears of it later.
  note_not_finite(parts_.scaler ? results.narrow(0, 0, int64_t(forms.size())) : results, bad_);
  if (o_.run.max_grad_norm) nn::clip_grads_with_norm_(trained_, *o_.run.max_grad_norm, norm);
  if (parts_.scaler) {
    parts_.scaler->also_skip(bad_);
    parts_.scaler->step();
    parts_.scaler->update();
  } else {
    parts_.optimizer->step_unless(bad_);
  }
  if (parts_.ema && !host_decides_) parts_.ema->step();
  return {results};
}

bool TrainingLoop::captured_step() {
  Pending now{};
  Tensors inputs;
  Forms forms;
  for (int64_t i = 0; i < o_.run.gradient_accumulation_steps; ++i) {
    if (!next_batch()) return false;
    now.samples += parts_.data->samples();
    DataPart::Inputs batch = parts_.data->inputs();
    inputs.insert(inputs.end(), batch.tensors.begin(), batch.tensors.end());
    forms.emplace_back(batch.form, batch.tensors.size());
  }
  now.lr = parts_.optimizer->lr();
  auto& graphed = graphs_[forms];
  if (!graphed)
    graphed =
        std::make_unique<optim::GraphedStep>([this, forms](const Tensors& in) { return step_to_capture(in, forms); });
  now.results = (*graphed)(inputs)[0];
  bool stepped = true;
  if (host_decides_) {
    Aside aside(*parts_.host);
    stepped = std::isfinite(now.results.select(0, int64_t(forms.size())).item());
  }
  if (stepped) follow(host_decides_);
  now.step = ++state_.step;
  now.epoch = state_.epoch = epochs();
  pending_.push_back(std::move(now));
  if (evaluating() || state_.step % o_.run.logging_steps == 0) settle(evaluating());
  return true;
}

// Logs the steps that the host has not heard of, the last one with the evaluation: where the host waits.
void TrainingLoop::settle(bool evaluation_due) {
  if (pending_.empty()) return;
  auto pending = std::exchange(pending_, {});
  Tensors results;
  for (Pending& p : pending) results.push_back(p.results);
  std::vector<double> values;
  {
    Aside aside(*parts_.host);
    values = stack(results).cpu().to_vector();
  }
  const auto n = size_t(o_.run.gradient_accumulation_steps);
  const int64_t step = state_.step, epoch = state_.epoch;
  for (size_t k = 0; k < pending.size(); ++k) {
    Pending& p = pending[k];
    const double* losses = values.data() + k * (n + 1);
    StepRecord record{.lr = number(p.lr), .grad_norm = losses[n], .samples = p.samples, .evaluation = {}};
    for (size_t i = 0; i < n; ++i) {
      check_loss(losses[i], p.step, parameters_);
      record.loss += losses[i] / double(n);
    }
    if (!std::isfinite(record.grad_norm) && (!parts_.scaler || parts_.scaler->get_scale() < 1))
      check_gradients(record.grad_norm, p.step, parameters_);
    loss_ = record.loss;
    state_.step = p.step, state_.epoch = p.epoch;
    if (evaluation_due && k + 1 == pending.size()) record.evaluation = evaluate();
    parts_.host->show(log_->record(record, state_));
  }
  state_.step = step, state_.epoch = epoch;
}

double TrainingLoop::loss() {
  settle();
  return loss_;
}

std::vector<optim::GraphedStep::Statistics> TrainingLoop::graphs() const {
  std::vector<optim::GraphedStep::Statistics> out;
  for (auto& [forms, graphed] : graphs_) out.push_back(graphed->statistics());
  return out;
}

std::map<std::string, double> TrainingLoop::evaluate() {
  autograd::NoGrad off;
  nn::Module& model = parts_.model->module();
  std::map<nn::Module*, bool> modes;
  for (auto& m : nn::named_modules(model)) modes[m.module] = m.module->training;
  if (parts_.ema) {
    parts_.ema->store();
    parts_.ema->copy_to();
  }
  auto leave = [&] {
    for (auto& m : nn::named_modules(model))  // those that evaluate() made stay as they are
      if (auto mode = modes.find(m.module); mode != modes.end()) m.module->training = mode->second;
    if (parts_.ema) parts_.ema->restore();
  };
  std::map<std::string, double> numbers;
  try {
    model.eval();
    numbers = o_.evaluate();
  } catch (...) {
    leave();
    throw;
  }
  leave();
  return numbers;
}

}  // namespace sf::train
