#include "scaffolding/optim/optimizer.h"

#include <cmath>
#include <set>

#include "scaffolding/autograd/mode.h"

namespace sf::optim {

Tensor Optimizer::step(const std::function<Tensor()>& closure) {
  Tensor loss;
  {
    autograd::EnableGrad on;
    loss = closure();
  }
  step();
  return loss;
}

void Optimizer::step_unless(const Tensor&) {
  fail<NotSupported>(std::string(name()) + ".step_unless: its steps cannot be skipped on the device");
}

void Optimizer::zero_grad(bool set_to_none) {
  for (const Tensors& group : params_)
    for (const Tensor& p : group) {
      Tensor grad = p.grad();
      if (!grad) continue;
      if (set_to_none) p.set_grad({});
      else p.set_grad(zeros_like(grad));
    }
}

void Optimizer::set_lr(double lr) {
  for (size_t g = 0; g < num_groups(); ++g) set_lr(lr, g);
}

void Optimizer::add_params(const char* name, Tensors params) {
  SF_CHECK(!params.empty(), "optimizer got an empty parameter list");
  std::set<const TensorImpl*> known;
  for (const Tensors& group : params_)
    for (const Tensor& p : group) known.insert(p.impl());
  size_t before = known.size();
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor& p = params[i];
    check_defined(name, "param", p);
    check_floating(name, "param", p);
    SF_CHECK(p.is_leaf(), "can't optimize a non-leaf Tensor");
    SF_CHECK(
        known.insert(p.impl()).second,
        before > 0 ? "some parameters appear in more than one parameter group" : "optimizer: a parameter appears twice",
        ", number ", i, " of the group");
  }
  params_.push_back(std::move(params));
  initial_lr_.emplace_back();
}

void Optimizer::load_initial_lr(const StateDict& saved) {
  for (size_t g = 0; g < params_.size(); ++g)
    if (auto it = saved.param_groups[g].options.find("initial_lr"); it != saved.param_groups[g].options.end())
      initial_lr_[g] = sf::detail::unbox<double>(it->second);
}

void Optimizer::check_load(const StateDict& saved) const {
  SF_CHECK(saved.param_groups.size() == params_.size(),
           "loaded state dict has a different number of parameter groups, ", saved.param_groups.size(), " for ",
           params_.size());
  for (size_t g = 0; g < params_.size(); ++g)
    SF_CHECK(saved.param_groups[g].params.size() == params_[g].size(),
             "loaded state dict contains a parameter group that doesn't match the size of optimizer's group: ",
             saved.param_groups[g].params.size(), " params for ", params_[g].size());
}

namespace detail {

Value to_option(double v) { return v; }
Value to_option(bool v) { return v; }
Value to_option(int64_t v) { return v; }
Value to_option(const std::array<double, 2>& v) { return Floats{v[0], v[1]}; }
Value to_option(const std::array<std::optional<double>, 2>& v) {
  return Floats{v[0].value_or(NAN), v[1].value_or(NAN)};
}

void from_option(const char*, double& to, const Value& v) { to = sf::detail::unbox<double>(v); }
void from_option(const char*, int64_t& to, const Value& v) { to = sf::detail::unbox<int64_t>(v); }
void from_option(const char*, bool& to, const Value& v) { to = sf::detail::unbox<bool>(v); }
static Floats two_numbers(const char* name, const Value& v) {
  Floats f = sf::detail::unbox<Floats>(v);
  SF_CHECK(f.size() == 2, name, ": must be two numbers, got ", f.size());
  return f;
}
void from_option(const char* name, std::array<double, 2>& to, const Value& v) {
  Floats f = two_numbers(name, v);
  to = {f[0], f[1]};
}
void from_option(const char* name, std::array<std::optional<double>, 2>& to, const Value& v) {
  Floats f = two_numbers(name, v);
  for (size_t i = 0; i < 2; ++i) to[i] = std::isnan(f[i]) ? std::optional<double>() : f[i];
}

}  // namespace detail

}  // namespace sf::optim
