#include "scaffolding/optim/lr_scheduler.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/optim/schedule.h"

namespace sf::optim {

LRScheduler::LRScheduler(Optimizer& optimizer, int64_t last_epoch) : optimizer_(optimizer), last_epoch_(last_epoch) {
  SF_CHECK(last_epoch >= -1, "LRScheduler: last_epoch must be -1 or an epoch, got ", last_epoch);
  for (size_t g = 0; g < optimizer.num_groups(); ++g) {
    auto& initial = optimizer.initial_lr(g);
    SF_CHECK(last_epoch == -1 || initial, "param 'initial_lr' is not specified in param_groups[", g,
             "] when resuming scheduler with last_epoch >= 0; load the optimizer's state first");
    if (!initial) initial = optimizer.lr(g);
    base_lrs_.push_back(*initial);
  }
}

std::optional<double> LRScheduler::closed(size_t) const { return {}; }

void LRScheduler::start() {
  ++last_epoch_;
  apply(true, false);
}

void LRScheduler::step() {
  ++last_epoch_;
  apply(false, false);
}

void LRScheduler::step(int64_t epoch) {
  SF_CHECK(epoch >= 0, "Expected non-negative epoch, but got ", epoch);
  last_epoch_ = epoch;
  apply(false, true);
}

void LRScheduler::apply(bool initial, bool jump) {
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) {
    std::optional<double> lr;
    if (jump) lr = closed(g);
    optimizer_.set_lr(lr ? *lr : chained(g, optimizer_.lr(g), initial), g);
  }
  note_rates();
}

void LRScheduler::note_rates() {
  last_lr_.clear();
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) last_lr_.push_back(optimizer_.lr(g));
}

std::map<std::string, Value> LRScheduler::state_dict() const {
  return {{"last_epoch", last_epoch_}, {"base_lrs", Floats(base_lrs_)}, {"_last_lr", Floats(last_lr_)}};
}

static const Value& require(const std::map<std::string, Value>& saved, const std::string& name) {
  auto it = saved.find(name);
  SF_CHECK(it != saved.end(), "LRScheduler: the state has no '", name, "'");
  return it->second;
}

void LRScheduler::load_state_dict(const std::map<std::string, Value>& saved) {
  auto base = sf::detail::unbox<Floats>(require(saved, "base_lrs")),
       last = sf::detail::unbox<Floats>(require(saved, "_last_lr"));
  SF_CHECK(base.size() == base_lrs_.size(), "LRScheduler: the state is of ", base.size(), " groups, the optimizer has ",
           base_lrs_.size());
  last_epoch_ = sf::detail::unbox<int64_t>(require(saved, "last_epoch"));
  base_lrs_ = std::move(base);
  last_lr_ = std::move(last);
}

// ---- LambdaLR, MultiplicativeLR

LambdaLR::LambdaLR(Optimizer& optimizer, Factor factor, int64_t last_epoch)
    : LambdaLR(optimizer, std::vector<Factor>(optimizer.num_groups(), std::move(factor)), last_epoch) {}
LambdaLR::LambdaLR(Optimizer& optimizer, std::vector<Factor> factors, int64_t last_epoch)
    : LRScheduler(optimizer, last_epoch), factors_(std::move(factors)) {
  SF_CHECK(factors_.size() == optimizer.num_groups(), "Expected ", optimizer.num_groups(), " lr_lambdas, but got ",
           factors_.size());
  start();
}
double LambdaLR::chained(size_t group, double, bool) const { return base_lr(group) * factors_[group](last_epoch_); }

MultiplicativeLR::MultiplicativeLR(Optimizer& optimizer, LambdaLR::Factor factor, int64_t last_epoch)
    : LRScheduler(optimizer, last_epoch), factor_(std::move(factor)) {
  start();
}
double MultiplicativeLR::chained(size_t, double lr, bool initial) const {
  return initial ? lr : lr * factor_(last_epoch_);
}

// ---- formulas

void StepOptions::check() const { SF_CHECK(step_size > 0, "StepLR: step_size must be positive, got ", step_size); }
double StepOptions::chained(double lr, double, int64_t epoch, bool) const {
  return schedule::step(lr, epoch, step_size, gamma);
}
double StepOptions::closed(double base, int64_t epoch) const {
  return schedule::step_closed(base, epoch, step_size, gamma);
}

// Nothing can begin before epoch 0.
static bool ascend_from_0(const std::vector<int64_t>& milestones) {
  return std::is_sorted(milestones.begin(), milestones.end()) && (milestones.empty() || milestones[0] >= 0);
}
void MultiStepOptions::check() const {
  SF_CHECK(ascend_from_0(milestones), "MultiStepLR: milestones must ascend from 0 on");
}
double MultiStepOptions::chained(double lr, double, int64_t epoch, bool) const {
  return schedule::multi_step(lr, epoch, milestones, gamma);
}
double MultiStepOptions::closed(double base, int64_t epoch) const {
  return schedule::multi_step_closed(base, epoch, milestones, gamma);
}

void ConstantOptions::check() const {
  SF_CHECK(factor >= 0 && factor <= 1, "Constant multiplicative factor expected to be between 0 and 1.");
  SF_CHECK(total_iters >= 0, "ConstantLR: total_iters must not be negative, got ", total_iters);
}
double ConstantOptions::chained(double lr, double, int64_t epoch, bool) const {
  return schedule::constant(lr, epoch, factor, total_iters);
}
double ConstantOptions::closed(double base, int64_t epoch) const {
  return schedule::constant_closed(base, epoch, factor, total_iters);
}

void LinearOptions::check() const {
  SF_CHECK(start_factor > 0 && start_factor <= 1,
           "Starting multiplicative factor expected to be greater than 0 and less or equal to 1.");
  SF_CHECK(end_factor >= 0 && end_factor <= 1, "Ending multiplicative factor expected to be between 0 and 1.");
  SF_CHECK(total_iters > 0, "LinearLR: total_iters must be positive, got ", total_iters);
}
double LinearOptions::chained(double lr, double, int64_t epoch, bool initial) const {
  return initial && epoch > 0 ? lr : schedule::linear(lr, epoch, start_factor, end_factor, total_iters);
}
double LinearOptions::closed(double base, int64_t epoch) const {
  return schedule::linear_closed(base, epoch, start_factor, end_factor, total_iters);
}

double ExponentialOptions::chained(double lr, double, int64_t, bool initial) const { return initial ? lr : lr * gamma; }
double ExponentialOptions::closed(double base, int64_t epoch) const { return base * std::pow(gamma, double(epoch)); }

void PolynomialOptions::check() const {
  SF_CHECK(total_iters > 0, "PolynomialLR: total_iters must be positive, got ", total_iters);
}
double PolynomialOptions::chained(double lr, double, int64_t epoch, bool initial) const {
  return initial ? lr : schedule::polynomial(lr, epoch, total_iters, power);
}
double PolynomialOptions::closed(double base, int64_t epoch) const {
  return schedule::polynomial_closed(base, epoch, total_iters, power);
}

void CosineAnnealingOptions::check() const {
  SF_CHECK(T_max > 0, "CosineAnnealingLR: T_max must be positive, got ", T_max);
}
double CosineAnnealingOptions::chained(double lr, double base, int64_t epoch, bool initial) const {
  return initial ? lr : schedule::cosine_annealing(lr, base, epoch, double(T_max), eta_min);
}
double CosineAnnealingOptions::closed(double base, int64_t epoch) const {
  return schedule::cosine_annealing_closed(base, double(epoch), double(T_max), eta_min);
}

void WarmRestartsOptions::check() const {
  SF_CHECK(T_0 > 0, "Expected positive integer T_0, but got ", T_0);
  SF_CHECK(T_mult >= 1, "Expected integer T_mult >= 1, but got ", T_mult);
}
double WarmRestartsOptions::chained(double, double base, int64_t epoch, bool) const { return closed(base, epoch); }
double WarmRestartsOptions::closed(double base, int64_t epoch) const {
  auto [T_cur, T_i] = schedule::restart_at(double(epoch), T_0, T_mult);
  return schedule::cosine_annealing_closed(base, T_cur, T_i, eta_min);
}

// ---- OneCycleLR

OneCycleLR::OneCycleLR(Optimizer& optimizer, const OneCycleOptions& options, int64_t last_epoch)
    : LRScheduler(optimizer, last_epoch), o_(options) {
  SF_CHECK(o_.total_steps > 0, "Expected positive integer total_steps, but got ", o_.total_steps);
  SF_CHECK(o_.pct_start >= 0 && o_.pct_start <= 1, "Expected float between 0 and 1 pct_start, but got ",
           python_number(o_.pct_start));
  if (last_epoch == -1)
    for (size_t g = 0; g < optimizer.num_groups(); ++g)
      optimizer.initial_lr(g) = base_lrs_[g] = o_.max_lr / o_.div_factor;
  start();
}

double OneCycleLR::chained(size_t group, double, bool) const {
  SF_CHECK(last_epoch_ <= o_.total_steps, "Tried to step ", last_epoch_,
           " times. The specified number of total steps is ", o_.total_steps);
  auto [phase, fraction] = schedule::one_cycle(last_epoch_, o_.total_steps, o_.pct_start, o_.three_phase);
  double low = base_lr(group), lowest = low / o_.final_div_factor;
  double rates[] = {low, o_.max_lr, o_.three_phase ? low : lowest, lowest};
  double momenta[] = {o_.max_momentum, o_.base_momentum, o_.max_momentum, o_.max_momentum};
  if (o_.cycle_momentum) {
    double momentum = schedule::anneal(momenta[phase], momenta[phase + 1], fraction, o_.cosine);
    if (std::string_view(optimizer_.name()) == "SGD") {
      optimizer_.set_option(group, "momentum", momentum);
    } else {
      auto betas = sf::detail::unbox<Floats>(optimizer_.option(group, "betas"));
      optimizer_.set_option(group, "betas", Floats{momentum, betas[1]});
    }
  }
  // A loop that steps after every optimizer step ends one epoch past the last: the line may have gone below zero there.
  return std::max(0.0, schedule::anneal(rates[phase], rates[phase + 1], fraction, o_.cosine));
}

// ---- SequentialLR

SequentialLR::SequentialLR(Optimizer& optimizer, std::vector<std::unique_ptr<LRScheduler>> schedulers,
                           std::vector<int64_t> milestones)
    : LRScheduler(optimizer), parts_(std::move(schedulers)), milestones_(std::move(milestones)) {
  SF_CHECK(!parts_.empty(), "SequentialLR expects at least one scheduler, but got no scheduler.");
  SF_CHECK(milestones_.size() + 1 == parts_.size(),
           "Sequential Schedulers expects number of schedulers provided to be one more than the number of milestone "
           "points, but got number of schedulers ",
           parts_.size(), " and the number of milestones to be equal to ", milestones_.size());
  SF_CHECK(ascend_from_0(milestones_), "SequentialLR: milestones must ascend from 0 on");
  for (auto& p : parts_)
    SF_CHECK(p && &p->optimizer() == &optimizer, "SequentialLR expects all schedulers to belong to the same optimizer");
  for (size_t g = 0; g < optimizer.num_groups(); ++g) optimizer.set_lr(*optimizer.initial_lr(g), g);
  last_epoch_ = 0;
  for (auto& p : parts_) p->rewind();
  parts_[part_at(0)]->begin();
  note_rates();
}

size_t SequentialLR::part_at(int64_t epoch) const {
  return size_t(std::upper_bound(milestones_.begin(), milestones_.end(), epoch) - milestones_.begin());
}

void SequentialLR::step() {
  size_t i = part_at(++last_epoch_);
  if (i > 0 && milestones_[i - 1] == last_epoch_) parts_[i]->step(0);
  else parts_[i]->step();
  note_rates();
}

void SequentialLR::step(int64_t) { fail<NotSupported>("SequentialLR: cannot jump to an epoch; step() through them"); }

void SequentialLR::rewind() {
  for (auto& p : parts_) p->rewind();
}
void SequentialLR::begin() {
  last_epoch_ = 0;
  parts_[part_at(0)]->begin();
  note_rates();
}
double SequentialLR::chained(size_t, double lr, bool) const { return lr; }

static void add_parts(std::map<std::string, Value>& all, const std::vector<std::unique_ptr<LRScheduler>>& parts) {
  for (size_t i = 0; i < parts.size(); ++i)
    for (auto& [name, value] : parts[i]->state_dict()) all[std::to_string(i) + "." + name] = value;
}
static void load_parts(const std::map<std::string, Value>& all,
                       const std::vector<std::unique_ptr<LRScheduler>>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    std::string prefix = std::to_string(i) + ".";
    std::map<std::string, Value> part;
    for (auto& [name, value] : all)
      if (name.starts_with(prefix)) part[name.substr(prefix.size())] = value;
    parts[i]->load_state_dict(part);
  }
}

std::map<std::string, Value> SequentialLR::state_dict() const {
  auto all = LRScheduler::state_dict();
  add_parts(all, parts_);
  return all;
}
void SequentialLR::load_state_dict(const std::map<std::string, Value>& saved) {
  load_parts(saved, parts_);
  LRScheduler::load_state_dict(saved);
}

// ---- ChainedScheduler

static Optimizer& common_optimizer(const std::vector<std::unique_ptr<LRScheduler>>& parts) {
  SF_CHECK(!parts.empty(), "ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.");
  for (auto& p : parts)
    SF_CHECK(p && &p->optimizer() == &parts[0]->optimizer(),
             "ChainedScheduler expects all schedulers to belong to the same optimizer");
  return parts[0]->optimizer();
}

ChainedScheduler::ChainedScheduler(std::vector<std::unique_ptr<LRScheduler>> schedulers)
    : LRScheduler(common_optimizer(schedulers)), parts_(std::move(schedulers)) {
  last_epoch_ = 0;
  note_rates();
}
void ChainedScheduler::step() {
  ++last_epoch_;
  for (auto& p : parts_) p->step();
  note_rates();
}
void ChainedScheduler::step(int64_t) {
  fail<NotSupported>("ChainedScheduler: cannot jump to an epoch; step() through them");
}
void ChainedScheduler::rewind() {
  for (auto& p : parts_) p->rewind();
}
void ChainedScheduler::begin() {
  last_epoch_ = 0;
  for (auto& p : parts_) p->begin();
  note_rates();
}
double ChainedScheduler::chained(size_t, double lr, bool) const { return lr; }
std::map<std::string, Value> ChainedScheduler::state_dict() const {
  auto all = LRScheduler::state_dict();
  add_parts(all, parts_);
  return all;
}
void ChainedScheduler::load_state_dict(const std::map<std::string, Value>& saved) {
  load_parts(saved, parts_);
  LRScheduler::load_state_dict(saved);
}

// ---- get_scheduler

LambdaLR::Factor warmup_factor(const std::string& name, double base_lr, const GetSchedulerOptions& o) {
  if (name == "constant") return [](int64_t) { return 1.0; };
  if (name == "piecewise_constant")
    return [pieces = schedule::Pieces(o.step_rules)](int64_t step) { return pieces.factor(step); };
  bool known = name == "constant_with_warmup" || name == "linear" || name == "cosine" ||
               name == "cosine_with_restarts" || name == "polynomial";
  SF_CHECK(known, "get_scheduler: there is no schedule '", name,
           "'; there are constant, constant_with_warmup, piecewise_constant, linear, cosine, cosine_with_restarts and "
           "polynomial");
  SF_CHECK(o.num_warmup_steps, name, " requires `num_warmup_steps`, please provide that argument.");
  int64_t warmup = *o.num_warmup_steps;
  SF_CHECK(warmup >= 0, name, ": num_warmup_steps must not be negative, got ", warmup);
  if (name == "constant_with_warmup") return [=](int64_t step) { return schedule::constant_with_warmup(step, warmup); };
  SF_CHECK(o.num_training_steps, name, " requires `num_training_steps`, please provide that argument.");
  int64_t total = *o.num_training_steps;
  SF_CHECK(total > 0, name, ": num_training_steps must be a positive number of steps, got ", total);
  SF_CHECK(o.num_cycles > 0, name, ": num_cycles must be positive, got ", python_number(o.num_cycles));
  if (name == "linear") return [=](int64_t step) { return schedule::linear_with_warmup(step, warmup, total); };
  if (name == "cosine") return [=](int64_t step) { return schedule::cosine_with_warmup(step, warmup, total); };
  if (name == "cosine_with_restarts")
    return [=, n = o.num_cycles](int64_t step) { return schedule::cosine_with_restarts(step, warmup, total, n); };
  constexpr double kEnd = 1e-7;
  SF_CHECK(base_lr > kEnd, "lr_end (1e-07) must be smaller than initial lr (", python_number(base_lr), ")");
  return [=, power = o.power](int64_t step) {
    return schedule::polynomial_with_warmup(step, warmup, total, base_lr, kEnd, power);
  };
}

std::unique_ptr<LambdaLR> get_scheduler(const std::string& name, Optimizer& optimizer,
                                        const GetSchedulerOptions& options) {
  return std::make_unique<LambdaLR>(optimizer, warmup_factor(name, optimizer.lr(), options), options.last_epoch);
}

}  // namespace sf::optim
