#include "scaffolding/models/adapters/adapters.h"

#include <algorithm>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

// The weight that fuse() may write; absent for layers that are quantised.
Tensor weight_of(nn::Module& layer) {
  if (auto* linear = dynamic_cast<nn::Linear*>(&layer)) return linear->weight;
  if (auto* conv = dynamic_cast<nn::Conv2d*>(&layer)) return conv->weight;
  return {};
}

// What a path adds to the layer's weight, float32, of the weight's shape.
Tensor update_of(const LoraPath& path, const Shape& shape) {
  const Tensor up = path.up.flatten(1), down = path.down.flatten(1);
  return (matmul(up, down) * path.scale).reshape(shape);
}

}  // namespace

nn::Module& Adapters::module(const std::string& name) const {
  for (auto& m : nn::named_modules(model_))
    if (m.name == name) return *m.module;
  fail("adapters: ", model_.type(), " has no module '", name, "'");
}

Adapters::Adapter* Adapters::find(const std::string& name) {
  auto a = std::find_if(adapters_.begin(), adapters_.end(), [&](auto& adapter) { return adapter.name == name; });
  return a == adapters_.end() ? nullptr : &*a;
}
const Adapters::Adapter* Adapters::find(const std::string& name) const {
  return const_cast<Adapters*>(this)->find(name);
}
const Adapters::Adapter& Adapters::at(const std::string& name) const {
  const Adapter* a = find(name);
  if (a) return *a;
  std::string known;
  for (auto& n : names()) known += (known.empty() ? "" : ", ") + n;
  fail("adapters: ", model_.type(), " has no adapter '", name, "'; there ",
       known.empty() ? "are none" : "are " + known);
}

std::vector<std::string> Adapters::names() const {
  std::vector<std::string> out;
  for (auto& a : adapters_) out.push_back(a.name);
  return out;
}
std::vector<std::string> Adapters::active() const {
  std::vector<std::string> out;
  for (auto& on : on_) out.push_back(on.name);
  return out;
}

Adapters::Adapter Adapters::made(const std::string& name, std::vector<LoraLayer> layers,
                                 const std::string& path) const {
  SF_CHECK(!name.empty(), "adapters: a name must not be empty");
  SF_CHECK(!layers.empty(), "adapters: '", name, "' has no layer of ", model_.type());
  std::map<std::string, nn::Module*> modules;
  for (auto& m : nn::named_modules(model_)) modules.emplace(m.name, m.module);
  Adapter out{name, std::move(layers), {}};
  for (const LoraLayer& layer : out.layers) {
    auto m = modules.find(layer.module);
    SF_CHECK(m != modules.end(), "adapters: ", model_.type(), " has no module '", layer.module, "'");
    check_lora_values(layer, path);
    const LoraTerm term{layer.down, layer.up, layer.mid, layer.row, layer.scale};
    const LoraPath ready(*m->second, {term}, model_.dtype(), model_.device());
    out.terms[layer.module].push_back({ready.down, ready.up, {}, 0, layer.scale});
  }
  return out;
}

void Adapters::add(const std::string& name, std::vector<LoraLayer> layers, const std::string& path) {
  SF_CHECK(!find(name), "adapters: there is an adapter '", name,
           "' already; delete it, give the new one another name, or swap it (hotswap=True)");
  adapters_.push_back(made(name, std::move(layers), path));
}

void Adapters::rename(const std::string& name, const std::string& to) {
  at(name);
  SF_CHECK(!find(to) || !find(to)->fused, "adapters: '", to, "' is fused; unfuse it before another takes its place");
  std::erase_if(adapters_, [&](auto& a) { return a.name == to; });
  find(name)->name = to;
  refresh();
}

void Adapters::remove(const std::string& name) {
  at(name);
  std::erase_if(on_, [&](auto& on) { return on.name == name; });
  std::erase_if(adapters_, [&](auto& a) { return a.name == name; });
  refresh();
}

void Adapters::set(std::vector<AdapterWeight> on) {
  for (auto& a : on) at(a.name);
  on_ = std::move(on);
  refresh();
}
void Adapters::turn_on(AdapterWeight weight) {
  at(weight.name);
  on_.push_back(std::move(weight));
  refresh();
}
void Adapters::enable(bool on) {
  enabled_ = on;
  refresh();
}
void Adapters::scale(double factor) {
  if (factor == factor_) return;
  factor_ = factor;
  refresh();
}

std::vector<LoraTerm> Adapters::terms_of(const std::string& module, const std::vector<std::string>* names) const {
  std::vector<LoraTerm> out;
  auto among = [](const std::vector<std::string>& all, const std::string& name) {
    return std::find(all.begin(), all.end(), name) != all.end();
  };
  for (auto& on : on_) {
    const Adapter& a = at(on.name);
    auto found = a.terms.find(module);
    const double weight = on.of(module);
    if (found == a.terms.end() || weight == 0 || a.fused || (names && !among(*names, on.name))) continue;
    for (LoraTerm term : found->second) {
      term.scale *= weight;
      out.push_back(std::move(term));
    }
  }
  return out;
}

void Adapters::refresh() {
  std::vector<std::string> adapted;
  for (auto& m : nn::named_modules(model_)) {
    const bool was = std::find(adapted_.begin(), adapted_.end(), m.name) != adapted_.end();
    std::vector<LoraTerm> terms = enabled_ && factor_ != 0 ? terms_of(m.name) : std::vector<LoraTerm>();
    for (LoraTerm& t : terms) t.scale *= factor_;
    if (!terms.empty()) {
      m.module->adapt(std::make_shared<LoraPath>(*m.module, terms, model_.dtype(), model_.device()));
      adapted.push_back(m.name);
    } else if (was) {
      m.module->adapt(nullptr);
    }
  }
  adapted_ = std::move(adapted);
}

void Adapters::fuse(double scale, bool safe, const std::optional<std::vector<std::string>>& names) {
  if (names)
    for (auto& name : *names) at(name);
  struct Change {
    std::string name;
    Tensor weight, sum;
  };
  std::vector<Change> changes;
  autograd::NoGrad off;
  for (auto& m : nn::named_modules(model_)) {
    const std::vector<LoraTerm> terms = terms_of(m.name, names ? &*names : nullptr);
    if (terms.empty()) continue;
    const Tensor weight = weight_of(*m.module);
    if (!weight)
      fail<NotSupported>("fuse_lora: ", m.name, " is quantised (", m.module->type(), "); leave the adapter beside it");
    const LoraPath path(*m.module, terms, kFloat32, weight.device());
    Tensor sum = weight.to(kFloat32) + update_of(path, weight.shape()) * scale;
    SF_CHECK(!safe || all_finite(sum), "fuse_lora: the sum of ", m.name, " is NaN or infinite; the adapter is broken");
    changes.push_back({m.name, weight, sum.to(weight.dtype())});
  }
  for (Change& c : changes) {
    old_weights_.emplace(c.name, c.weight.detach().clone().to(Device()));
    c.weight.copy_(c.sum);
  }
  for (auto& on : on_) {
    if (names && std::find(names->begin(), names->end(), on.name) == names->end()) continue;
    find(on.name)->fused = true;
    if (std::find(fused_.begin(), fused_.end(), on.name) == fused_.end()) fused_.push_back(on.name);
  }
  refresh();
}

void Adapters::unfuse() {
  autograd::NoGrad off;
  for (auto& [name, weight] : old_weights_) weight_of(module(name)).copy_(weight);
  old_weights_.clear();
  fused_.clear();
  for (Adapter& a : adapters_) a.fused = false;
  refresh();
}

}  // namespace sf::models
