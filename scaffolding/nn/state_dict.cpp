#include "scaffolding/nn/state_dict.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/autograd/set_data.h"
#include "scaffolding/nn/closest.h"
#include "scaffolding/ops/copy/copy.h"

namespace sf::nn {

namespace {

// A module's own parameters, then its persistent buffers, then what is below: torch's order.
void collect(Module& m, const std::string& prefix, StateDict& out) {
  Descent down(m);
  struct Own : Visitor {
    const std::string& prefix;
    StateDict& out;
    std::vector<std::pair<std::string, Tensor>> buffers;
    std::vector<std::pair<std::string, Module*>> modules;
    Own(const std::string& p, StateDict& o) : prefix(p), out(o) {}
    void add(std::string_view name, const Tensor& t) {
      std::string key;
      key.reserve(prefix.size() + name.size());
      key.append(prefix).append(name);
      out.emplace_back(std::move(key), t);
    }
    void parameter(std::string_view name, const Tensor& t) override {
      if (t) t.impl()->is_parameter = true, add(name, t);
    }
    void buffer(std::string_view name, const Tensor& t, bool persistent) override {
      if (t && persistent) buffers.emplace_back(name, t);
    }
    void module(std::string_view name, Module* child) override {
      if (child) modules.emplace_back(name, child);
    }
  } own(prefix, out);
  m.visit_all(own);
  for (auto& [name, t] : own.buffers) own.add(name, t);
  for (auto& [name, child] : own.modules) collect(*child, prefix + name + ".", out);
}

constexpr size_t kListed = 40;  // keys per sentence
constexpr size_t kHints = 8;

std::string listed(const std::vector<std::string>& keys, const std::vector<std::string>& known) {
  std::string out;
  for (size_t i = 0; i < keys.size() && i < kListed; ++i) {
    out += (i ? ", \"" : "\"") + keys[i] + "\"";
    if (i < kHints) out += closest_hint(keys[i], known);
  }
  if (keys.size() > kListed) out += ", and " + std::to_string(keys.size() - kListed) + " more";
  return out + ". ";
}

// One line for missing and one for unexpected keys, each with what it may have been meant for.
std::string key_errors(const StateDict& own, const LoadReport& report) {
  std::vector<std::string> names;
  for (auto& [name, t] : own) names.push_back(name);
  std::string out;
  if (!report.missing_keys.empty())
    out += "\n\tMissing key(s) in state_dict: " + listed(report.missing_keys, report.unexpected_keys);
  if (!report.unexpected_keys.empty())
    out += "\n\tUnexpected key(s) in state_dict: " +
           listed(report.unexpected_keys, report.missing_keys.empty() ? names : report.missing_keys);
  return out;
}

std::string error_title(Module& m) {
  return "Error(s) in loading state_dict for " + std::string(m.extension() ? m.extension()->type() : m.type()) + ":";
}

}  // namespace

std::string state_dict_errors(Module& m, const LoadReport& report) {
  return error_title(m) + key_errors(state_dict(m, "", true), report);
}

StateDict state_dict(Module& m, const std::string& prefix, bool keep_vars) {
  StateDict out;
  collect(m, prefix, out);
  if (!keep_vars)
    for (auto& [name, t] : out) t = t.detach();
  return out;
}

LoadReport load_state_dict(Module& m, const std::map<std::string, Tensor>& state, const LoadOptions& options) {
  StateDict own = state_dict(m, "", true);
  LoadReport report;
  std::map<std::string, Tensor> unseen = state;
  std::string errors;
  for (auto& [name, t] : own) {
    auto it = state.find(name);
    if (it == state.end()) {
      report.missing_keys.push_back(name);
      continue;
    }
    unseen.erase(name);
    const Tensor& given = it->second;
    SF_CHECK_AS(TypeError, given, "load_state_dict: '", name, "' is not a tensor");
    bool one_element = t.ndim() == 0 && given.numel() == 1 && given.ndim() == 1;  // torch's old scalars
    if (given.shape() != t.shape() && !one_element)
      errors += "\n\tsize mismatch for " + name + ": copying a param with shape " + str(given.shape()) +
                " from checkpoint, the shape in current model is " + str(t.shape()) + ".";
    else if (!options.assign && t.device().is_meta())
      errors += "\n\t" + name + " is on the meta device and has no memory to copy into; pass assign=True.";
  }
  for (auto& [name, t] : unseen) report.unexpected_keys.push_back(name);
  if (options.strict) errors = key_errors(own, report) + errors;
  if (!errors.empty()) fail<RuntimeError>(error_title(m), errors);

  autograd::NoGrad no_grad;
  for (auto& [name, t] : own) {
    auto it = state.find(name);
    if (it == state.end()) continue;
    if (options.assign) {
      autograd::set_data(t, it->second.detach());
    } else {
      Tensor target = t.detach();
      target.copy_(t.ndim() == 0 ? it->second.reshape({}) : it->second);
    }
  }
  return report;
}

}  // namespace sf::nn
