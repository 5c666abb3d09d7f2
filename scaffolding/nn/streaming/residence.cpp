#include "scaffolding/nn/streaming/residence.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace sf::nn {

namespace {
struct Entry {
  Residence* residence;
  uint64_t hook;
};
struct All {
  std::mutex lock;
  std::unordered_map<const Module*, Entry> of;
  std::atomic<size_t> count{0};  // so that asking costs nothing where nothing is streamed
};
All& all() {
  static auto* const a = new All;
  return *a;
}
}  // namespace

void set_residence(Module& m, Residence* residence) {
  std::lock_guard guard(all().lock);
  auto at = all().of.find(&m);
  if (!residence) {
    if (at == all().of.end()) return;
    m.remove_hook(at->second.hook);
    all().of.erase(at);
  } else {
    SF_CHECK(at == all().of.end(), m.type(), ": its weights are streamed already");
    all().of[&m] = {residence, m.register_forward_pre_hook(detail::ResidenceHook{residence})};
  }
  all().count = all().of.size();
}

Residence* residence_of(const Module& m) {
  if (all().count == 0) return nullptr;
  std::lock_guard guard(all().lock);
  auto at = all().of.find(&m);
  return at == all().of.end() ? nullptr : at->second.residence;
}

}  // namespace sf::nn
