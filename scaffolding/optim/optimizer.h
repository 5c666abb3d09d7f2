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
// (see adam.h).
template <class Rule> class RuleOptimizer final : public Optimizer {
 public:
  struct Group {
    Tensors params;
    Rule options;
  };
  explicit RuleOptimizer(Tensors params, const Rule& options = {}) { add_param_group({std::move(params), options}); }
  explicit RuleOptimizer(std::vector<Group> groups) {
    SF_CHECK(!groups.empty(), "optimizer got an empty parameter list");
    for (Group& g : groups) add_param_group(std::move(g));
  }
  using Optimizer::step;
  const char* name() const override { return Rule::kName; }

  void add_param_group(Group group) {
    group.options.check();
    size_t n = group.params.size();
    add_params(Rule::kName, std::move(group.params));
    options_.push_back(group.options);
    settings_.emplace_back();
    state_.push_back(std::vector<State>(n));
    keep_settings(params_.size() - 1);
    ++*revision_;
  }

  void step() override { run({}); }
  void step_unless(const Tensor& found_inf) override {
    for (const Rule& o : options_)
      SF_CHECK_AS(RuntimeError, is_capturable(o), Rule::kName, ".step_unless: needs groups with capturable=true");
    run(found_inf);
  }

  const Rule& options(size_t group = 0) const { return options_.at(group); }
  Value option(size_t group, const std::string& name) const override {
    Value found;
    bool known = false;
    Rule::fields(options_.at(group), [&](const char* field, const auto& v) {
      if (name == field) found = detail::to_option(v), known = true;
    });
    SF_CHECK(known, Rule::kName, ": has no option '", name, "'");
    return found;
  }
  void set_option(size_t group, const std::string& name, const Value& value) override {
    Rule changed = options_.at(group);
    bool known = false;
    Rule::fields(changed, [&](const char* field, auto& v) {
      if (name == field) detail::from_option(field, v, value), known = true;
    });
    SF_CHECK(known, Rule::kName, ": has no option '", name, "'");
    changed.check();
    if (is_frozen(name) || (name == "momentum" && (sf::detail::unbox<double>(option(group, name)) == 0) !=
                                                      (sf::detail::unbox<double>(value) == 0)))
      ++*revision_;
    Rule before = std::exchange(options_[group], changed);
    try {
      keep_settings(group);
    } catch (...) {
      options_[group] = std::move(before);
      throw;
    }
  }

  StateDict state_dict() const override {
    StateDict out;
    int64_t id = 0;
    for (size_t g = 0; g < params_.size(); ++g) {
      auto& group = out.param_groups.emplace_back();
      Rule::fields(options_[g], [&](const char* field, const auto& v) { group.options[field] = detail::to_option(v); });
      if (initial_lr_[g]) group.options["initial_lr"] = *initial_lr_[g];
      for (const State& s : state_[g]) {
        for (size_t i = 0; i < Rule::kSlots.size(); ++i)
          if (s[i]) out.state[id][Rule::kSlots[i]] = s[i];
        group.params.push_back(id++);
      }
    }
    return out;
  }
  void load_state_dict(const StateDict& saved) override {
    check_load(saved);
    auto options = options_;
    auto state = std::vector<std::vector<State>>(state_.size());
    for (size_t g = 0; g < params_.size(); ++g) {
      Rule::fields(options[g], [&](const char* field, auto& v) {
        if (std::string(field) == "capturable") return;  // how this one's steps run is none of the saved run's business
        if (auto it = saved.param_groups[g].options.find(field); it != saved.param_groups[g].options.end())
          detail::from_option(field, v, it->second);
      });
      options[g].check();
      for (size_t i = 0; i < params_[g].size(); ++i)
        state[g].push_back(loaded(params_[g][i], saved.param_groups[g].params[i], saved));
    }
    options_ = std::move(options);
    state_ = std::move(state);
    for (size_t g = 0; g < options_.size(); ++g) keep_settings(g);
    ++*revision_;
    load_initial_lr(saved);
  }

 private:
  void run(const Tensor& found_inf) {
    std::vector<Update> updates;
    std::vector<State*> owners;
    for (size_t g = 0; g < params_.size(); ++g) {
      updates.clear();
      owners.clear();
      for (size_t i = 0; i < params_[g].size(); ++i) {
        Tensor grad = params_[g][i].grad();
        if (!grad) continue;
        updates.push_back({params_[g][i], std::move(grad), state_[g][i]});
        owners.push_back(&state_[g][i]);
      }
      if constexpr (requires(Rule r) { r.found_inf; }) {
        if (options_[g].capturable) expect_revision(Rule::kName, revision_);
        if (found_inf) options_[g].found_inf = found_inf;
        options_[g].step(updates);
        options_[g].found_inf = {};
      } else {
        options_[g].step(updates);
      }
      for (size_t i = 0; i < owners.size(); ++i) *owners[i] = std::move(updates[i].slots);
    }
  }
  static bool is_capturable(const Rule& o) {
    if constexpr (requires { o.capturable; }) return o.capturable;
    else return false;
  }
  // Whether a captured step would go on with the option as it was: all but Settings.
  static bool is_frozen(const std::string& name) {
    for (const char* setting : {"lr", "betas", "momentum", "dampening", "eps", "weight_decay"})
      if (name == setting) return false;
    return true;
  }
  void keep_settings(size_t g) {
    if constexpr (requires(Rule r) { r.settings_there; })
      if (options_[g].capturable)
        options_[g].settings_there =
            settings_[g].write(Rule::kName, options_[g].settings(), capturable_device(Rule::kName, params_[g]));
  }
  using State = std::array<Tensor, kMaxSlots>;
  static State loaded(const Tensor& param, int64_t id, const StateDict& saved) {
    State s;
    auto found = saved.state.find(id);
    if (found == saved.state.end()) return s;
    for (auto& [name, tensor] : found->second) {
      size_t i = 0;
      while (i < Rule::kSlots.size() && name != Rule::kSlots[i]) ++i;
      SF_CHECK(i < Rule::kSlots.size(), Rule::kName, ": a param's state has no '", name, "'");
      check_defined(Rule::kName, name.c_str(), tensor);
      check_shape(Rule::kName, name.c_str(), tensor, Rule::slot_shape(i, param));
      s[i] = tensor.clone();
    }
    return s;
  }
  std::vector<Rule> options_;                                         // by group
  std::vector<DeviceSettings> settings_;                              // by group
  std::shared_ptr<int64_t> revision_ = std::make_shared<int64_t>(0);  // of what captured steps are built from
  std::vector<std::vector<State>> state_;                             // by group and param
};

}  // namespace sf::optim
