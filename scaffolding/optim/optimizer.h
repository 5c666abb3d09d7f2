// Optimizer: parameters in groups with options of their own, the state that a rule keeps for each, and its step.
//   optim::AdamW opt(model.parameters(), {.lr = 1e-3});
//   loss.backward();  opt.step();  opt.zero_grad();
// Holds handles of the parameters, which stay the model's. Belongs to one thread at a time.
#pragma once
#include <functional>
#include <map>

#include "scaffolding/core/value.h"
#include "scaffolding/optim/capturable.h"
#include "scaffolding/optim/update.h"

namespace sf::optim {

// What torch's state_dict() holds. Parameters are numbered through all groups; their state is named as torch's
// ("exp_avg", "step"), groups' options too.
struct StateDict {
  struct Group {
    std::map<std::string, Value> options;
    std::vector<int64_t> params;
  };
  std::map<int64_t, std::map<std::string, Tensor>> state;
  std::vector<Group> param_groups;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  virtual const char* name() const = 0;
  virtual void step() = 0;  // params without a gradient stay as they are
  // A step that changes nothing where found_inf, float32 [] on the params' device, is not 0: without asking the device,
  // for groups with capturable=true.
  virtual void step_unless(const Tensor& found_inf);
  // closure computes the loss and its gradients, with recording on
  Tensor step(const std::function<Tensor()>& closure);
  void zero_grad(bool set_to_none = true);

  size_t num_groups() const { return params_.size(); }
  const Tensors& params(size_t group = 0) const { return params_.at(group); }
  // Options by name: a double, a bool or, for betas and eps, Floats.
  // ValueError for an unknown name or a value out of range.
  virtual Value option(size_t group, const std::string& name) const = 0;
  virtual void set_option(size_t group, const std::string& name, const Value& value) = 0;
  double lr(size_t group = 0) const { return std::get<double>(option(group, "lr")); }
  void set_lr(double lr, size_t group) { set_option(group, "lr", lr); }
  void set_lr(double lr);  // of every group
  // The rate that a group began with; set by the first schedule made on the optimizer, saved with the group.
  std::optional<double>& initial_lr(size_t group) { return initial_lr_.at(group); }

  // The tensors are shared with the optimizer: clone them to keep them. load_state_dict copies; it refuses another
  // number of groups or params, state of unknown names and of other shapes, before anything changes.
  virtual StateDict state_dict() const = 0;
  virtual void load_state_dict(const StateDict& saved) = 0;

 protected:
  Optimizer() = default;
  void add_params(const char* name, Tensors params);  // refuses repeats, non-leaves and what is not a floating tensor
  void check_load(const StateDict& saved) const;
  void load_initial_lr(const StateDict& saved);
  std::vector<Tensors> params_;
  std::vector<std::optional<double>> initial_lr_;  // by group
};

namespace detail {
Value to_option(double v);
Value to_option(bool v);
Value to_option(const std::array<double, 2>& v);
Value to_option(int64_t v);
Value to_option(const std::array<std::optional<double>, 2>& v);  // NaN stands for None
void from_option(const char* name, double& to, const Value& v);
void from_option(const char* name, bool& to, const Value& v);
void from_option(const char* name, std::array<double, 2>& to, const Value& v);
void from_option(const char* name, int64_t& to, const Value& v);
void from_option(const char* name, std::array<std::optional<double>, 2>& to, const Value& v);
}  // namespace detail

// An Optimizer for a rule: a struct of options with kName, kSlots, slot_shape(), fields(), check() and step()
// (see adam.h). Those of optim.h are compiled in the library; one for a rule of your own needs rule_optimizer.h.
template <class Rule> class RuleOptimizer final : public Optimizer {
 public:
  struct Group {
    Tensors params;
    Rule options;
  };
  explicit RuleOptimizer(Tensors params, const Rule& options = {});
  explicit RuleOptimizer(std::vector<Group> groups);
  ~RuleOptimizer() override;
  using Optimizer::step;
  const char* name() const override;

  void add_param_group(Group group);

  void step() override;
  void step_unless(const Tensor& found_inf) override;

  const Rule& options(size_t group = 0) const;
  Value option(size_t group, const std::string& name) const override;
  void set_option(size_t group, const std::string& name, const Value& value) override;

  StateDict state_dict() const override;
  void load_state_dict(const StateDict& saved) override;

 private:
  using State = std::array<Tensor, kMaxSlots>;
  void run(const Tensor& found_inf);
  static bool is_capturable(const Rule& o);
  static bool is_frozen(const std::string& name);
  void keep_settings(size_t g);
  static State loaded(const Tensor& param, int64_t id, const StateDict& saved);
  std::vector<Rule> options_;              // by group
  std::vector<DeviceSettings> settings_;   // by group
  std::shared_ptr<int64_t> revision_;      // of what captured steps are built from
  std::vector<std::vector<State>> state_;  // by group and param
};

}  // namespace sf::optim
