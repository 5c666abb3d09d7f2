#include "scaffolding/models/parts/context_cache.h"

#include <algorithm>

#include "scaffolding/autograd/mode.h"

namespace sf::models {

namespace {
thread_local ContextCache* in_force = nullptr;
}

ContextCache::Scope::Scope(ContextCache& cache) : before_(in_force) { in_force = &cache; }
ContextCache::Scope::~Scope() { in_force = before_; }

ContextCache* ContextCache::current() { return autograd::grad_enabled() ? nullptr : in_force; }

bool ContextCache::Seen::is(const Tensor& t) const {
  if (!t || !tensor) return !t && !tensor;
  return t.storage().get() == tensor.storage().get() && t.version() == version && t.data_ptr() == tensor.data_ptr() && t.dtype() == tensor.dtype() &&
         t.shape() == tensor.shape() && t.strides() == tensor.strides();
}

Tensor ContextCache::get(const nn::Linear& projection, const Tensor& context) {
  auto mine = [&](const Entry& e) { return e.projection == &projection; };
  for (const Entry& e : entries_)
    if (mine(e) && e.context.is(context) && e.weight.is(projection.weight) && e.bias.is(projection.bias)) return e.result;
  if (size_t(std::count_if(entries_.begin(), entries_.end(), mine)) >= kMostContexts) entries_.erase(std::find_if(entries_.begin(), entries_.end(), mine));
  Tensor result = projection.forward(context);
  ++computed_;
  entries_.push_back({&projection, Seen(context), Seen(projection.weight), Seen(projection.bias), result});
  return result;
}

void ContextCache::refresh() {
  for (Entry& e : entries_) {
    e.result.copy_(e.projection->forward(e.context.tensor));
    ++computed_;
    e.context = Seen(e.context.tensor), e.weight = Seen(e.projection->weight), e.bias = Seen(e.projection->bias);
  }
}

Tensor project_context(const nn::Linear& projection, const Tensor& context) {
  ContextCache* cache = ContextCache::current();
  nn::Extension* e = projection.extension();
  bool plain = projection.present() == &projection && !projection.has_hooks() && !(e && e->calls());
  return cache && plain ? cache->get(projection, context) : projection(context);
}

}  // namespace sf::models
