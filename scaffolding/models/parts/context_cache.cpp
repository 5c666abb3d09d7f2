#include "scaffolding/models/parts/context_cache.h"

#include <algorithm>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/nn/adapter.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

thread_local ContextCache* in_force = nullptr;

// f(t) for each tensor, absent ones too, of what stands where the layers are, and of adapters there.
template <class F> void each_tensor(const std::vector<const nn::Linear*>& layers, const F& f) {
  struct Walk : nn::Visitor {
    const F& f;
    explicit Walk(const F& function) : f(function) {}
    void parameter(std::string_view, const Tensor& t) override { f(t); }
    void buffer(std::string_view, const Tensor& t, bool) override { f(t); }
  } walk(f);
  for (const nn::Linear* layer : layers) {
    layer->present()->visit(walk);
    if (auto adapter = layer->present()->adapter()) adapter->each_tensor(f);
  }
}

}  // namespace

ContextCache::Scope::Scope(ContextCache& cache) : before_(in_force) { in_force = &cache; }
ContextCache::Scope::~Scope() { in_force = before_; }

ContextCache* ContextCache::current() { return autograd::grad_enabled() ? nullptr : in_force; }

bool ContextCache::Seen::is(const Tensor& t) const {
  if (!t || !tensor) return !t && !tensor;
  return t.storage().get() == tensor.storage().get() && t.version() == version && t.data_ptr() == tensor.data_ptr() &&
         t.dtype() == tensor.dtype() && t.shape() == tensor.shape() && t.strides() == tensor.strides();
}

std::vector<ContextCache::Seen> ContextCache::weights_of(const std::vector<const nn::Linear*>& layers) {
  std::vector<Seen> weights;
  each_tensor(layers, [&](const Tensor& t) { weights.emplace_back(t); });
  return weights;
}

bool ContextCache::are_weights_of(const Entry& e) {
  size_t at = 0;
  bool same = true;
  each_tensor(e.layers, [&](const Tensor& t) { same = same && at < e.weights.size() && e.weights[at].is(t), ++at; });
  return same && at == e.weights.size();
}

Tensor ContextCache::get(const std::vector<const nn::Linear*>& layers, const Tensor& context, const Compute& compute) {
  auto mine = [&](const Entry& e) { return e.layers == layers; };
  for (const Entry& e : entries_)
    if (mine(e) && e.context.is(context) && are_weights_of(e)) return e.result;
  if (const Parts* parts = parts_of(context)) return of_parts(layers, context, *parts, compute);
  if (size_t(std::count_if(entries_.begin(), entries_.end(), mine)) >= kMostContexts)
    entries_.erase(std::find_if(entries_.begin(), entries_.end(), mine));
  Tensor result = compute(context);
  ++computed_;
  entries_.push_back({layers, compute, Seen(context), weights_of(layers), result});
  return result;
}

void ContextCache::joins(const Tensor& whole, const std::vector<Tensor>& parts) {
  Parts now;
  for (auto& p : parts) {
    auto before = std::find_if(parts_.begin(), parts_.end(), [&](auto& b) { return b.samples.is(p); });
    now.push_back({before == parts_.end() ? ++numbers_ : before->number, Seen(p)});
  }
  whole_ = Seen(whole), parts_ = std::move(now);
}

const ContextCache::Parts* ContextCache::parts_of(const Tensor& context) const {
  if (!parts_.empty() && whole_.is(context)) return &parts_;
  for (const Entry& e : entries_)
    if (!e.parts.empty() && Seen(e.result).is(context)) return &e.parts;
  return nullptr;
}

Tensor ContextCache::of_parts(const std::vector<const nn::Linear*>& layers, const Tensor& context, const Parts& parts,
                              const Compute& compute) {
  auto old = std::find_if(entries_.begin(), entries_.end(),
                          [&](const Entry& e) { return e.layers == layers && !e.parts.empty(); });
  const bool is_kept = old != entries_.end() && are_weights_of(*old);
  Parts made_parts;
  Tensors results;
  for (auto& p : parts) {
    const Part* before = nullptr;
    if (is_kept)
      for (auto& b : old->parts)
        if (b.made_of == p.number) before = &b;
    if (!before) ++computed_;
    results.push_back(before ? before->samples.tensor : compute(p.samples.tensor));
    made_parts.push_back({before ? before->number : ++numbers_, Seen(Tensor()), p.number});
  }
  Entry made{layers, compute, Seen(context), weights_of(layers), cat(results, 0), std::move(made_parts)};
  int64_t at = 0;  // the parts lie in the whole: what they were copied from goes
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t n = results[i].size(0);
    made.parts[i].samples = Seen(made.result.narrow(0, at, n));
    at += n;
  }
  const Tensor result = made.result;
  if (old == entries_.end()) entries_.push_back(std::move(made));
  else *old = std::move(made);
  return result;
}

void ContextCache::refresh() {
  for (Entry& e : entries_) {
    e.parts.clear();
    e.result.copy_(e.compute(e.context.tensor));
    ++computed_;
    e.context = Seen(e.context.tensor), e.weights = weights_of(e.layers);
  }
}

}  // namespace sf::models
