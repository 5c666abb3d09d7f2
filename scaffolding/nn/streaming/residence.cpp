#include "scaffolding/nn/streaming/residence.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

namespace sf::nn {

namespace {
struct Entry final : Residence {
  std::vector<Residence*> all;  // the one that enters first at the end
  uint64_t hook = 0;

  void enter() override {
    size_t i = all.size();
    try {
      for (; i > 0; --i) all[i - 1]->enter();
    } catch (...) {
      for (; i < all.size(); ++i) all[i]->leave();
      throw;
    }
  }
  void leave() noexcept override {
    for (Residence* each : all) each->leave();
  }
  bool is_cast() const override {
    return std::any_of(all.begin(), all.end(), [](Residence* each) { return each->is_cast(); });
  }
  bool may_move() const override {
    return std::all_of(all.begin(), all.end(), [](Residence* each) { return each->may_move(); });
  }
};
struct All {
  std::mutex lock;
  std::unordered_map<const Module*, std::unique_ptr<Entry>> of;
  std::unordered_set<const Module*> held;
  std::unordered_map<const Module*, DType> cast;
  std::atomic<size_t> count{0};  // of both, so that asking costs nothing where nothing is streamed
};
All& all() {
  static auto* const a = new All;
  return *a;
}
}  // namespace

void add_residence(Module& m, Residence* residence, ResidenceOrder order) {
  std::lock_guard guard(all().lock);
  auto& entry = all().of[&m];
  if (!entry) {
    entry = std::make_unique<Entry>();
    entry->hook = m.register_forward_pre_hook(detail::ResidenceHook{entry.get()});
  }
  entry->all.insert(order == ResidenceOrder::First ? entry->all.end() : entry->all.begin(), residence);
  all().count = all().of.size() + all().held.size();
}

void remove_residence(Module& m, Residence* residence) {
  std::lock_guard guard(all().lock);
  auto at = all().of.find(&m);
  if (at == all().of.end()) return;
  std::erase(at->second->all, residence);
  if (at->second->all.empty()) {
    m.remove_hook(at->second->hook);
    all().of.erase(at);
  }
  all().count = all().of.size() + all().held.size();
}

void set_held(const Module& m, bool held) {
  std::lock_guard guard(all().lock);
  if (held) all().held.insert(&m);
  else all().held.erase(&m);
  all().count = all().of.size() + all().held.size();
}

Residence* residence_of(const Module& m) {
  if (all().count == 0) return nullptr;
  std::lock_guard guard(all().lock);
  auto at = all().of.find(&m);
  return at == all().of.end() ? nullptr : at->second.get();
}

void set_cast(const Module& m, std::optional<DType> compute) {
  std::lock_guard guard(all().lock);
  if (compute) all().cast[&m] = *compute;
  else all().cast.erase(&m);
}

std::optional<DType> cast_dtype(const Module& m) {
  if (all().count == 0) return {};
  std::lock_guard guard(all().lock);
  const auto at = all().cast.find(&m);
  return at == all().cast.end() ? std::nullopt : std::optional(at->second);
}

bool has_cast_weights(Module& m) {
  if (all().count == 0) return false;
  const auto modules = named_modules(m);
  std::lock_guard guard(all().lock);
  return std::any_of(modules.begin(), modules.end(), [](auto& each) {
    const auto at = all().of.find(each.module);
    return at != all().of.end() && at->second->is_cast();
  });
}

void refuse_streamed(Module& m, const char* op, bool converts) {
  if (all().count == 0) return;
  auto is_held = [&](const Module* each) {
    std::lock_guard guard(all().lock);
    const auto at = all().of.find(each);
    return all().held.count(each) > 0 || (at != all().of.end() && (converts || !at->second->may_move()));
  };
  for (auto& each : named_modules(m))
    SF_CHECK_AS(RuntimeError, !is_held(each.module), op, ": the weights of ", m.type(),
                " come and go with its calls, and cannot be moved or converted; take the offloading off first "
                "(remove_all_hooks)");
}

}  // namespace sf::nn
