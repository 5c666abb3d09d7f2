// Schedules of learning rates, as torch.optim.lr_scheduler's: made on an optimizer, whose rates they set at once and at
// every step(). They keep a reference to it. Formulas are in schedule.h.
//   optim::CosineAnnealingLR schedule(opt, {.T_max = 1000});
//   for (...) { opt.step(); schedule.step(); }
#pragma once
#include <functional>
#include <memory>

#include "scaffolding/optim/optimizer.h"

namespace sf::optim {

class LRScheduler {
 public:
  virtual ~LRScheduler() = default;
  LRScheduler(const LRScheduler&) = delete;
  virtual void step();               // the next epoch
  virtual void step(int64_t epoch);  // jumps there: by the closed form where there is one
  const std::vector<double>& get_last_lr() const { return last_lr_; }  // by group
  int64_t last_epoch() const { return last_epoch_; }
  Optimizer& optimizer() const { return optimizer_; }
  // "last_epoch", "_last_lr" and what the schedule counts besides; options are the constructor's.
  virtual std::map<std::string, Value> state_dict() const;
  virtual void load_state_dict(const std::map<std::string, Value>& saved);

 protected:
  explicit LRScheduler(Optimizer& optimizer, int64_t last_epoch = -1);  // -1 begins; else goes on after that epoch
  // The rate of a group at last_epoch_, from the present one. `initial`: the call from the constructor.
  virtual double chained(size_t group, double lr, bool initial) const = 0;
  virtual std::optional<double> closed(size_t group) const;
  void start();  // to be called at the end of a constructor
  double base_lr(size_t group) const { return base_lrs_.at(group); }
  void note_rates();
  void apply(bool initial, bool jump);
  Optimizer& optimizer_;
  int64_t last_epoch_;
  std::vector<double> base_lrs_;  // by group

 private:
  friend class SequentialLR;
  friend class ChainedScheduler;
  virtual void rewind() { --last_epoch_; }  // SequentialLR takes back the constructors' steps of its parts
  virtual void begin() { start(); }
  std::vector<double> last_lr_;
};

class LambdaLR : public LRScheduler {  // base * factor(epoch), one factor for all groups or one for each
 public:
  using Factor = std::function<double(int64_t epoch)>;
  LambdaLR(Optimizer& optimizer, Factor factor, int64_t last_epoch = -1);
  LambdaLR(Optimizer& optimizer, std::vector<Factor> factors, int64_t last_epoch = -1);

 protected:
  double chained(size_t group, double lr, bool initial) const override;

 private:
  std::vector<Factor> factors_;
};

class MultiplicativeLR : public LRScheduler {  // lr * factor(epoch)
 public:
  MultiplicativeLR(Optimizer& optimizer, LambdaLR::Factor factor, int64_t last_epoch = -1);

 protected:
  double chained(size_t group, double lr, bool initial) const override;

 private:
  LambdaLR::Factor factor_;
};

// A schedule given by a struct of options with chained() and closed(), listed below.
template <class Formula> class FormulaLR : public LRScheduler {
 public:
  FormulaLR(Optimizer& optimizer, const Formula& formula, int64_t last_epoch = -1)
      : LRScheduler(optimizer, last_epoch), formula_(formula) {
    formula_.check();
    start();
  }

 protected:
  double chained(size_t group, double lr, bool initial) const override {
    return formula_.chained(lr, base_lr(group), last_epoch_, initial);
  }
  std::optional<double> closed(size_t group) const override { return formula_.closed(base_lr(group), last_epoch_); }

 private:
  Formula formula_;
};

struct StepOptions {
  int64_t step_size = 1;
  double gamma = 0.1;
  void check() const;
  double chained(double lr, double base, int64_t epoch, bool initial) const;
  double closed(double base, int64_t epoch) const;
};
struct MultiStepOptions {
  std::vector<int64_t> milestones;  // ascending
  double gamma = 0.1;
  void check() const;
  double chained(double lr, double base, int64_t epoch, bool initial) const;
  double closed(double base, int64_t epoch) const;
};
struct ConstantOptions {
  double factor = 1.0 / 3;
  int64_t total_iters = 5;
  void check() const;
  double chained(double lr, double base, int64_t epoch, bool initial) const;
  double closed(double base, int64_t epoch) const;
};
struct LinearOptions {
  double start_factor = 1.0 / 3, end_factor = 1;
  int64_t total_iters = 5;
  void check() const;
  double chained(double lr, double base, int64_t epoch, bool initial) const;
  double closed(double base, int64_t epoch) const;
};
struct ExponentialOptions {
  double gamma = 0.99;
  void check() const {}
  double chained(double lr, double base, int64_t epoch, bool initial) const;
  double closed(double base, int64_t epoch) const;
};
struct PolynomialOptions {
  int64_t total_iters = 5;
  double power = 1;
  void check() const;
  double chained(double lr, double base, int64_t epoch, bool initial) const;
  double closed(double base, int64_t epoch) const;
};
struct CosineAnnealingOptions {
  int64_t T_max = 1;
  double eta_min = 0;
  void check() const;
  double chained(double lr, double base, int64_t epoch, bool initial) const;
  double closed(double base, int64_t epoch) const;
};
using StepLR = FormulaLR<StepOptions>;
using MultiStepLR = FormulaLR<MultiStepOptions>;
using ConstantLR = FormulaLR<ConstantOptions>;
using LinearLR = FormulaLR<LinearOptions>;
using ExponentialLR = FormulaLR<ExponentialOptions>;
using PolynomialLR = FormulaLR<PolynomialOptions>;
using CosineAnnealingLR = FormulaLR<CosineAnnealingOptions>;

// Cosine annealing whose period grows by T_mult at every restart (SGDR, Loshchilov and Hutter 2017).
struct WarmRestartsOptions {
  int64_t T_0 = 1, T_mult = 1;
  double eta_min = 0;
  void check() const;
  double chained(double lr, double base, int64_t epoch, bool initial) const;
  double closed(double base, int64_t epoch) const;
};
using CosineAnnealingWarmRestarts = FormulaLR<WarmRestartsOptions>;

struct OneCycleOptions {
  double max_lr = 0.1;
  int64_t total_steps = 1;
  double pct_start = 0.3;
  bool cosine = true;  // else linear
  bool cycle_momentum = true;
  double base_momentum = 0.85, max_momentum = 0.95, div_factor = 25, final_div_factor = 1e4;
  bool three_phase = false;
};
class OneCycleLR : public LRScheduler {  // also moves momentum, or the first beta, the other way
 public:
  OneCycleLR(Optimizer& optimizer, const OneCycleOptions& options, int64_t last_epoch = -1);

 protected:
  double chained(size_t group, double lr, bool initial) const override;

 private:
  OneCycleOptions o_;
};

// One schedule after the other: the i-th begins at epoch milestones[i - 1], counting from 0 again.
class SequentialLR : public LRScheduler {
 public:
  SequentialLR(Optimizer& optimizer, std::vector<std::unique_ptr<LRScheduler>> schedulers,
               std::vector<int64_t> milestones);
  void step() override;
  void step(int64_t epoch) override;
  std::map<std::string, Value> state_dict() const override;  // the parts' under "0.", "1.", ...
  void load_state_dict(const std::map<std::string, Value>& saved) override;

 protected:
  double chained(size_t group, double lr, bool initial) const override;

 private:
  size_t part_at(int64_t epoch) const;
  void rewind() override;
  void begin() override;
  std::vector<std::unique_ptr<LRScheduler>> parts_;
  std::vector<int64_t> milestones_;
};

// Several schedules at once: each changes what the one before left.
class ChainedScheduler : public LRScheduler {
 public:
  explicit ChainedScheduler(std::vector<std::unique_ptr<LRScheduler>> schedulers);
  void step() override;
  void step(int64_t epoch) override;
  std::map<std::string, Value> state_dict() const override;  // as SequentialLR's
  void load_state_dict(const std::map<std::string, Value>& saved) override;

 protected:
  double chained(size_t group, double lr, bool initial) const override;

 private:
  void rewind() override;
  void begin() override;
  std::vector<std::unique_ptr<LRScheduler>> parts_;
};

// diffusers' schedules by name: constant, constant_with_warmup, piecewise_constant, linear, cosine,
// cosine_with_restarts, polynomial. ValueError for another name and for counts that a schedule needs and did not get,
// or that cannot be: negative warm-up steps, training steps or cycles that are not positive.
struct GetSchedulerOptions {
  std::string step_rules;  // of piecewise_constant: "1:10,0.1:20,0.005"
  std::optional<int64_t> num_warmup_steps, num_training_steps;
  double num_cycles = 1, power = 1;
  int64_t last_epoch = -1;
};
LambdaLR::Factor warmup_factor(const std::string& name, double base_lr, const GetSchedulerOptions& options);
std::unique_ptr<LambdaLR> get_scheduler(const std::string& name, Optimizer& optimizer,
                                        const GetSchedulerOptions& options = {});

}  // namespace sf::optim
