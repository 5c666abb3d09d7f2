#include "scaffolding/nn/streaming/stream_groups.h"

#include <algorithm>
#include <unordered_map>

#include "scaffolding/nn/streaming/residence.h"

namespace sf::nn {

bool is_container(const Module& m) {
  const std::string_view type = m.type();
  return m.is_list() || type == "ModuleList" || type == "ModuleDict";
}

namespace {

// Each once, in the order of the tree.
Tensors tensors_of(Module& m) {
  Tensors out;
  for (auto& p : named_parameters(m)) out.push_back(p.tensor);
  for (auto& b : named_buffers(m)) out.push_back(b.tensor);
  return out;
}

bool is_layer(Module& m) {  // has weights of its own
  return !named_parameters(m, "", false).empty() || !named_buffers(m, "", false).empty();
}

bool is_number(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

struct Search {
  StreamLevel level;
  int64_t per_group;
  std::vector<StreamGroup>& out;
  std::unordered_map<Module*, bool> seen;

  // Whether m or what is below has become a group.
  bool into(Module& m, const std::string& name, bool may_be) {
    Descent down(m);
    if (auto known = seen.find(&m); known != seen.end()) return known->second;
    seen[&m] = false;
    bool below = false;
    const std::string prefix = name.empty() ? name : name + ".";
    StreamGroup* open = nullptr;  // neighbours join it
    const StreamGroup* last = nullptr;
    for (auto& child : named_children(m)) {
      const size_t before = out.size();
      const bool numbered = is_number(child.name);
      const bool found = into(*child.module, prefix + child.name, numbered || level == StreamLevel::Leaf);
      below = below || found;
      const bool is_one = out.size() == before + 1 && out.back().owners.back() == child.module;
      if (is_one && numbered && before > 0 && last == &out[before - 1] && open &&
          int64_t(open->owners.size()) < per_group) {
        out[before - 1].owners.push_back(child.module);
        out.pop_back();
        last = open = &out.back();
      } else {
        last = open = is_one && numbered ? &out.back() : nullptr;
      }
    }
    if (below || !may_be || is_container(m)) return seen[&m] = below;
    int64_t layers = 0;
    for (auto& each : named_modules(m)) layers += is_layer(*each.module);
    if (layers < 2) return false;
    out.push_back({name, {&m}, {}, 0});
    return seen[&m] = true;
  }
};

}  // namespace

StreamGroups stream_groups(Module& m, StreamLevel level, int64_t blocks_per_group,
                           const std::vector<std::string>& only) {
  SF_CHECK(blocks_per_group >= 1, "stream: num_blocks_per_group must be at least 1, got ", blocks_per_group);
  StreamGroups found;
  found.groups.reserve(named_modules(m).size());  // the search points into it
  Search search{level, blocks_per_group, found.groups, {}};
  if (only.empty()) search.into(m, "", false);
  for (auto& name : only) {
    Module& part = get_submodule(m, name);
    if (search.into(part, name, true)) continue;
    SF_CHECK(is_layer(part), "stream: '", name, "' of ", m.type(), " has no weights");
    found.groups.push_back({name, {&part}, {}, 0});
    search.seen[&part] = true;
  }

  std::unordered_map<TensorImpl*, int64_t> uses;  // by groups; what is outside of all counts as many
  auto never = [&](const Tensor& t) {
    if (t) uses[t.impl()] = 2;
  };
  for (auto& g : found.groups)
    for (Module* owner : g.owners)
      for (auto& t : tensors_of(*owner)) {
        ++uses[t.impl()];
        g.tensors.push_back(t);
      }
  std::unordered_map<Module*, bool> inside;
  for (auto& g : found.groups)
    for (Module* owner : g.owners)
      for (auto& below : named_modules(*owner)) inside[below.module] = true;
  for (auto& each : named_modules(m)) {
    if (auto* reads = dynamic_cast<ReadsBelow*>(each.module))
      for (auto& t : reads->read_below()) never(t);
    if (inside.count(each.module)) continue;
    for (auto& p : named_parameters(*each.module, "", false)) never(p.tensor);
    for (auto& b : named_buffers(*each.module, "", false)) never(b.tensor);
  }

  for (auto& g : found.groups) {
    std::erase_if(g.tensors, [&](const Tensor& t) { return uses[t.impl()] != 1; });
    for (auto& t : g.tensors) g.bytes += int64_t(t.nbytes());
    found.group_bytes += g.bytes;
    found.largest = std::max(found.largest, g.bytes);
  }
  std::erase_if(found.groups, [](const StreamGroup& g) { return g.tensors.empty(); });
  for (auto& t : tensors_of(m))
    if (uses[t.impl()] != 1) {
      found.kept.push_back(t);
      found.kept_bytes += int64_t(t.nbytes());
    }
  return found;
}

}  // namespace sf::nn
