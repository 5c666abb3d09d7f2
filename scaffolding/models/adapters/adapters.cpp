#include "scaffolding/models/adapters/adapters.h"

#include <algorithm>
#include <set>

#include "scaffolding/autograd/set_data.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/models/adapters/fuse_lora.h"
#include "scaffolding/models/parts/trained_lora.h"
#include "scaffolding/nn/quantized.h"

namespace sf::models {

namespace {
bool among(const std::vector<std::string>& all, const std::string& name) {
  return std::find(all.begin(), all.end(), name) != all.end();
}
}  // namespace

Adapters::Adapters(Model& model) : model_(model) {}
Adapters::~Adapters() = default;

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

std::vector<nn::Module*> Adapters::modules_of(const Adapter& adapter) const {
  std::unordered_map<std::string, nn::Module*> modules;
  for (auto& m : nn::named_modules(model_)) modules.emplace(m.name, m.module);
  std::vector<nn::Module*> of;
  for (const LoraLayer& layer : adapter.layers) {
    auto m = modules.find(layer.module);
    SF_CHECK(m != modules.end(), "adapters: ", model_.type(), " has no module '", layer.module, "'");
    of.push_back(m->second);
  }
  return of;
}

void Adapters::make_terms(Adapter& adapter, const std::string* path) const {
  adapter.dtype = model_.dtype(), adapter.device = model_.device();
  if (adapter.trained) {
    adapter.terms.clear();
    for (const LoraLayer& layer : adapter.layers) {
      for (const Tensor* t : {&layer.down, &layer.up})
        if (t->device() != adapter.device) autograd::set_data(*t, t->detach().to(adapter.device));
      adapter.terms[layer.module].push_back({layer.down, layer.up, {}, 0, layer.scale, true, adapter.dropout});
    }
    return;
  }
  const std::vector<nn::Module*> of = modules_of(adapter);
  std::vector<LoraTerm> terms(adapter.layers.size());
  auto make = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (path) check_lora_values(adapter.layers[size_t(i)], *path);
      terms[size_t(i)] =
          LoraPath::ready(*of[size_t(i)], term_of(adapter.layers[size_t(i)]), adapter.dtype, adapter.device);
    }
  };
  // Values are read and written once: a core's cache holds a layer's between the two.
  const int64_t layers = int64_t(terms.size());
  if (adapter.device.is_cpu()) parallel_for(layers, 8, make);
  else make(0, layers);
  adapter.terms.clear();
  for (size_t i = 0; i < terms.size(); ++i) adapter.terms[adapter.layers[i].module].push_back(std::move(terms[i]));
}

void Adapters::add(const std::string& name, std::vector<LoraLayer> layers, const std::string& path) {
  SF_CHECK(!name.empty(), "adapters: a name must not be empty");
  SF_CHECK(!layers.empty(), "adapters: '", name, "' has no layer of ", model_.type());
  SF_CHECK(!find(name), "adapters: there is an adapter '", name,
           "' already; delete it, give the new one another name, or swap it (hotswap=True)");
  Adapter made;
  made.name = name, made.layers = std::move(layers);
  make_terms(made, &path);
  adapters_.push_back(std::move(made));
}

void Adapters::create(const std::string& name, const NewLora& config, const Generator& generator) {
  SF_CHECK(!name.empty(), "add_adapter: a name must not be empty");
  SF_CHECK(!find(name), "add_adapter: there is an adapter '", name, "' already; give the new one another name");
  Adapter made;
  made.name = name, made.trained = true, made.dropout = config.lora_dropout;
  made.layers = new_lora_layers(model_, config, generator);
  make_terms(made);
  adapters_.push_back(std::move(made));
  set({{name}});
}

void Adapters::train(const std::string& name, bool on) {
  at(name);
  Adapter& a = *find(name);
  if (a.trained == on) return;
  SF_CHECK(!a.fused, "adapters: '", name, "' is fused into the weights; unfuse it before it is trained");
  if (on) {
    std::vector<LoraLayer> layers = a.layers;
    const std::vector<nn::Module*> of = modules_of(a);
    SF_CHECK_AS(NotSupported, std::set(of.begin(), of.end()).size() == of.size(), "adapters: '", name,
                "' has several factors beside one layer; save it, which joins them, and train the saved one");
    for (size_t i = 0; i < layers.size(); ++i) {
      const LoraTerm term = LoraPath::ready(*of[i], term_of(layers[i]), kFloat32, model_.device());
      layers[i].down = term.down.detach().clone().requires_grad_();
      layers[i].up = term.up.detach().clone().requires_grad_();
      layers[i].mid = {}, layers[i].row = 0, layers[i].rows = term.up.size(0);
    }
    a.layers = std::move(layers);
  } else {
    for (LoraLayer& layer : a.layers) layer.down.requires_grad_(false), layer.up.requires_grad_(false);
  }
  a.trained = on;
  make_terms(a);
  refresh();
}

std::vector<std::pair<std::string, Tensor>> Adapters::parameters() const {
  std::vector<std::pair<std::string, Tensor>> out;
  for (const Adapter& a : adapters_) {
    if (!a.trained) continue;
    for (const LoraLayer& layer : a.layers) {
      out.emplace_back(layer.module + ".lora_A." + a.name + ".weight", layer.down);
      out.emplace_back(layer.module + ".lora_B." + a.name + ".weight", layer.up);
    }
  }
  return out;
}

void Adapters::rename(const std::string& name, const std::string& to) {
  at(name);
  SF_CHECK(!find(to) || !find(to)->fused, "adapters: '", to, "' is fused; unfuse it before another takes its place");
  std::erase_if(adapters_, [&](auto& a) { return a.name == to; });
  find(name)->name = to;
  if (among(active(), name) || among(active(), to)) refresh();
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

Adapters::ByModule Adapters::what_is_on(
    const std::vector<std::string>* names,
    const std::function<std::vector<LoraTerm>(const Adapter&, const std::string&)>& terms_of) const {
  ByModule out;
  for (auto& on : on_) {
    const Adapter& a = at(on.name);
    if (a.fused || (names && !among(*names, on.name))) continue;
    for (auto& [module, ready] : a.terms) {
      const double weight = on.of(module);
      if (weight == 0) continue;
      std::vector<LoraTerm>& all = out[module];
      for (LoraTerm term : terms_of(a, module)) {
        term.scale *= weight;
        all.push_back(std::move(term));
      }
    }
  }
  return out;
}

std::shared_ptr<const nn::Adapter> Adapters::path_of(const std::string& name, const nn::Module& layer,
                                                     const std::vector<LoraTerm>& terms, bool any_is_on, DType dtype,
                                                     Device device) {
  if (std::any_of(terms.begin(), terms.end(), [](auto& t) { return t.trained; })) {
    slots_.erase(name);
    return std::make_shared<TrainedLora>(layer, terms);
  }
  if (!LoraPath::are_slots(device))
    return terms.empty() ? nullptr : std::make_shared<LoraPath>(layer, terms, dtype, device);
  const int64_t used = rank_of(terms);
  auto found = slots_.find(name);
  const bool fits = found != slots_.end() && &found->second->layer() == &layer && found->second->rank() >= used &&
                    found->second->rank() >= reserved_ && found->second->down.dtype() == dtype &&
                    found->second->down.device() == device;
  if (!fits) {
    const bool reserves = reserved_ > 0 && LoraPath::goes_beside(layer);
    if (found != slots_.end()) slots_.erase(found);
    if (terms.empty() && !reserves) return nullptr;
    const int64_t least = std::max(used, reserves ? reserved_ : 0),
                  rank = (least + kSlotRanks - 1) / kSlotRanks * kSlotRanks;
    found = slots_.emplace(name, std::make_shared<LoraPath>(layer, rank, dtype, device)).first;
  }
  found->second->fill(terms);
  return any_is_on || reserved_ > 0 ? found->second : nullptr;
}

void Adapters::refresh() {
  const DType dtype = model_.dtype();
  const Device device = model_.device();
  for (Adapter& a : adapters_)
    if (a.dtype != dtype || a.device != device) make_terms(a);
  if (!LoraPath::are_slots(device) || (adapters_.empty() && reserved_ == 0)) slots_.clear();
  ByModule on;
  if (enabled_ && factor_ != 0)
    on = what_is_on(nullptr, [](const Adapter& a, const std::string& module) { return a.terms.at(module); });
  std::unordered_set<std::string> adapted;
  for (auto& m : nn::named_modules(model_)) {
    auto found = on.find(m.name);
    const bool has_slot = slots_.contains(m.name) || (reserved_ > 0 && LoraPath::goes_beside(*m.module));
    std::shared_ptr<const nn::Adapter> path;
    if (found != on.end() || (LoraPath::are_slots(device) && has_slot)) {
      std::vector<LoraTerm> terms = found == on.end() ? std::vector<LoraTerm>() : std::move(found->second);
      for (LoraTerm& t : terms) t.scale *= factor_;
      path = path_of(m.name, *m.module, terms, !on.empty(), dtype, device);
    }
    if (path) adapted.insert(m.name);
    if (path || adapted_.contains(m.name)) m.module->adapt(std::move(path));
  }
  adapted_ = std::move(adapted);
}

void Adapters::reserve(int64_t rank) {
  SF_CHECK(rank >= 0 && rank <= kMostLoraRank, "adapters: a rank to reserve must be from 0 to ", kMostLoraRank,
           ", got ", rank);
  reserved_ = rank;
  refresh();
}

const AdapterStems& Adapters::stems(const std::string& component) {
  auto found = stems_.find(component);
  if (found == stems_.end())
    found = stems_.emplace(component, adapter_stems(model_.type(), model_.config(), component)).first;
  return found->second;
}

void Adapters::fuse(double scale, bool safe, const std::optional<std::vector<std::string>>& names) {
  if (names)
    for (auto& name : *names) at(name);
  // From the file's own numbers: what is beside the layers was rounded to their dtype.
  const ByModule on = what_is_on(names ? &*names : nullptr, [](const Adapter& a, const std::string& module) {
    std::vector<LoraTerm> terms;
    for (auto& layer : a.layers)
      if (layer.module == module) terms.push_back(term_of(layer));
    return terms;
  });
  std::vector<WeightUpdate> updates;
  for (auto& m : nn::named_modules(model_)) {
    auto found = on.find(m.name);
    if (found == on.end()) continue;
    const Tensor weight = fused_weight(*m.module);
    if (!weight)
      fail<NotSupported>("fuse_lora: ", m.name, " is quantised (", m.module->type(), "); leave the adapter beside it");
    updates.push_back({m.name, m.module, weight, found->second});
  }
  std::map<std::string, Tensor> old = fuse_lora(updates, scale, safe);
  old_weights_.merge(old);  // keeps what was there before an earlier fuse()
  for (auto& on : on_) {
    if (names && !among(*names, on.name)) continue;
    find(on.name)->fused = true;
    if (!among(fused_, on.name)) fused_.push_back(on.name);
  }
  refresh();
}

void Adapters::unfuse() {
  std::vector<std::pair<Tensor, Tensor>> changes;
  for (auto& m : nn::named_modules(model_))
    if (auto old = old_weights_.find(m.name); old != old_weights_.end())
      changes.emplace_back(fused_weight(*m.module), old->second);
  put_back(changes);
  old_weights_.clear();
  fused_.clear();
  for (Adapter& a : adapters_) a.fused = false;
  refresh();
}

}  // namespace sf::models
