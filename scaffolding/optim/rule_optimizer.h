// The code of optimizers for rules, for the files that compile one: SF_OPTIMIZER(Rule); in namespace sf::optim.
#pragma once
#include "scaffolding/optim/optimizer.h"

namespace sf::optim {

template <class Rule>
RuleOptimizer<Rule>::RuleOptimizer(Tensors params, const Rule& options) : revision_(std::make_shared<int64_t>(0)) {
  add_param_group({std::move(params), options});
}
template <class Rule>
RuleOptimizer<Rule>::RuleOptimizer(std::vector<Group> groups) : revision_(std::make_shared<int64_t>(0)) {
  SF_CHECK(!groups.empty(), "optimizer got an empty parameter list");
  for (Group& g : groups) add_param_group(std::move(g));
}
template <class Rule> RuleOptimizer<Rule>::~RuleOptimizer() = default;

template <class Rule> const char* RuleOptimizer<Rule>::name() const { return Rule::kName; }

template <class Rule> void RuleOptimizer<Rule>::add_param_group(Group group) {
  group.options.check();
  size_t n = group.params.size();
  add_params(Rule::kName, std::move(group.params));
  options_.push_back(group.options);
  settings_.emplace_back();
  state_.push_back(std::vector<State>(n));
  keep_settings(params_.size() - 1);
  ++*revision_;
}

template <class Rule> void RuleOptimizer<Rule>::step() { run({}); }

template <class Rule> void RuleOptimizer<Rule>::step_unless(const Tensor& found_inf) {
  for (const Rule& o : options_)
    SF_CHECK_AS(RuntimeError, is_capturable(o), Rule::kName, ".step_unless: needs groups with capturable=true");
  run(found_inf);
}

template <class Rule> const Rule& RuleOptimizer<Rule>::options(size_t group) const { return options_.at(group); }

template <class Rule> Value RuleOptimizer<Rule>::option(size_t group, const std::string& name) const {
  Value found;
  bool known = false;
  Rule::fields(options_.at(group), [&](const char* field, const auto& v) {
    if (name == field) found = detail::to_option(v), known = true;
  });
  SF_CHECK(known, Rule::kName, ": has no option '", name, "'");
  return found;
}

template <class Rule> void RuleOptimizer<Rule>::set_option(size_t group, const std::string& name, const Value& value) {
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

template <class Rule> StateDict RuleOptimizer<Rule>::state_dict() const {
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

template <class Rule> void RuleOptimizer<Rule>::load_state_dict(const StateDict& saved) {
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

template <class Rule> void RuleOptimizer<Rule>::run(const Tensor& found_inf) {
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

template <class Rule> bool RuleOptimizer<Rule>::is_capturable(const Rule& o) {
  if constexpr (requires { o.capturable; }) return o.capturable;
  else return false;
}

// Whether a captured step would go on with the option as it was: all but Settings.
template <class Rule> bool RuleOptimizer<Rule>::is_frozen(const std::string& name) {
  for (const char* setting : {"lr", "betas", "momentum", "dampening", "eps", "weight_decay"})
    if (name == setting) return false;
  return true;
}

template <class Rule> void RuleOptimizer<Rule>::keep_settings(size_t g) {
  if constexpr (requires(Rule r) { r.settings_there; })
    if (options_[g].capturable)
      options_[g].settings_there =
          settings_[g].write(Rule::kName, options_[g].settings(), capturable_device(Rule::kName, params_[g]));
}

template <class Rule>
typename RuleOptimizer<Rule>::State RuleOptimizer<Rule>::loaded(const Tensor& param, int64_t id,
                                                                const StateDict& saved) {
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

#define SF_OPTIMIZER(Rule) template class RuleOptimizer<Rule>

}  // namespace sf::optim
