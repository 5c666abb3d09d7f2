#include "scaffolding/nn/streaming/cast_parts.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/autograd/set_data.h"
#include "scaffolding/nn/streaming/stream_groups.h"
#include "scaffolding/ops/copy/copy.h"

namespace sf::nn {

struct CastParts::Part final : Residence {
  std::vector<Module*> owners;  // within whose calls the weights are of the other dtype
  DType compute = kFloat32;
  Tensors tensors, stored;
  int inside = 0;

  void live_in(Module& m, ResidenceOrder order) {
    add_residence(m, this, order);
    owners.push_back(&m);
  }
  ~Part() override {
    for (Module* m : owners) remove_residence(*m, this);
  }
  bool may_move() const override { return inside == 0; }
  bool is_cast() const override { return true; }
  void enter() override {
    if (inside++ > 0) return;
    const autograd::NoGrad off;
    stored.clear();
    try {
      for (const Tensor& t : tensors) {
        stored.push_back(t.detach());
        autograd::set_data(t, to_dtype(stored.back(), compute));
      }
    } catch (...) {
      leave();
      throw;
    }
  }
  void leave() noexcept override {
    if (--inside > 0) return;
    for (size_t i = 0; i < stored.size(); ++i) autograd::set_data(tensors[i], stored[i]);
    stored.clear();
  }
};

CastParts::CastParts(Module& model, DType compute, ResidenceOrder order) : compute_(compute), order_(order) {
  // Whoever calls a part has its weights.
  for (auto& group : stream_groups(model, StreamLevel::Leaf).groups)
    for (const Tensor& t : group.tensors) leaf_of_[t.impl()] = group.owners[0];
  for (auto& each : named_modules(model)) {
    if (auto* reads = dynamic_cast<ReadsBelow*>(each.module))
      for (const Tensor& t : reads->read_below())
        if (t) uses_[t.impl()] = 2;
    for (auto& p : named_parameters(*each.module, "", false)) ++uses_[p.tensor.impl()];
    parents_[each.module] = each.parent;
  }
}

CastParts::~CastParts() = default;

bool CastParts::is_read_elsewhere(const Tensor& t) const {
  const auto uses = uses_.find(t.impl());
  return leaf_of_.count(t.impl()) == 0 && uses != uses_.end() && uses->second > 1;
}

Module* CastParts::caller_of(Module* m) const {  // lists are not called
  while (m && is_container(*m)) m = parents_.at(m);
  return m;
}

void CastParts::add(const NamedModule& layer, const Tensor& t) {
  const auto leaf = leaf_of_.find(t.impl());
  Module* owner = leaf == leaf_of_.end() ? layer.module : leaf->second;
  auto& part = parts_[owner];
  if (!part) {
    part = std::make_unique<Part>();
    part->compute = compute_;
    part->live_in(*owner, order_);
    places_.push_back({layer.name, owner, part.get()});
    // A layer of no part: whoever has it may read its weights instead of calling it.
    if (Module* outer = leaf == leaf_of_.end() ? caller_of(layer.parent) : nullptr) {
      part->live_in(*outer, order_);
      places_.push_back({layer.name, outer, part.get()});
    }
  }
  part->tensors.push_back(t);
}

int64_t CastParts::tensors() const {
  int64_t n = 0;
  for (auto& [owner, part] : parts_) n += int64_t(part->tensors.size());
  return n;
}

}  // namespace sf::nn
