#include "scaffolding/models/names/name_rules.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "scaffolding/nn/state_dict.h"

namespace sf::models {

namespace {

std::vector<TensorList::Entry> entries_of(nn::Module& model) {
  auto tensors = nn::state_dict(model, "", true);
  std::vector<TensorList::Entry> out;
  out.reserve(tensors.size());
  for (auto& [name, t] : tensors) out.emplace_back(std::move(name), t.shape());
  return out;
}

std::map<std::string, std::map<std::string, NameRules>>& registry() {
  static std::map<std::string, std::map<std::string, NameRules>> layouts;  // of classes
  return layouts;
}

std::vector<std::string> one(std::string name) {  // a list in braces would copy it
  std::vector<std::string> out;
  out.push_back(std::move(name));
  return out;
}

const NameRules& own_names() {
  static const NameRules rules = NameRules().rename("", "");
  return rules;
}

}  // namespace

TensorList::TensorList(nn::Module& model) : TensorList(entries_of(model)) {}

TensorList::TensorList(std::vector<Entry> tensors) : tensors_(std::move(tensors)), sorted_(tensors_.size()) {
  std::iota(sorted_.begin(), sorted_.end(), size_t(0));
  std::sort(sorted_.begin(), sorted_.end(), [&](size_t a, size_t b) { return tensors_[a].first < tensors_[b].first; });
}

bool TensorList::has(const std::string& name) const {
  auto from = [&](const std::string& first) {
    return std::lower_bound(sorted_.begin(), sorted_.end(), first,
                            [&](size_t i, const std::string& n) { return tensors_[i].first < n; });
  };
  const std::string under = name + ".";
  if (auto at = from(under); at != sorted_.end() && tensors_[*at].first.starts_with(under)) return true;
  auto at = from(name);
  return at != sorted_.end() && tensors_[*at].first == name;
}

int64_t TensorList::count(const std::string& list) const {
  int64_t n = 0;
  while (has(list + "." + std::to_string(n))) ++n;
  return n;
}

NameRules& NameRules::add(NameRule rule) {
  rules_.push_back(std::move(rule));
  return *this;
}
NameRules& NameRules::rename(std::string ours, std::string theirs, NameChange change) {
  return add({.ours = one(std::move(ours)), .theirs = one(std::move(theirs)), .change = change});
}
NameRules& NameRules::same(std::initializer_list<const char*> names) {
  for (const char* name : names) rename(name, name);
  return *this;
}
NameRules& NameRules::join(std::vector<std::string> ours, std::string theirs, NameChange change) {
  return add({.kind = NameRule::Join, .ours = std::move(ours), .theirs = one(std::move(theirs)), .change = change});
}
NameRules& NameRules::split(std::string ours, std::vector<std::string> theirs, std::vector<int64_t> rows) {
  return add(
      {.kind = NameRule::Split, .ours = one(std::move(ours)), .theirs = std::move(theirs), .rows = std::move(rows)});
}
NameRules& NameRules::slice(std::string ours, std::string theirs, int64_t first_row) {
  return slices(std::move(ours), std::move(theirs), {first_row});
}
NameRules& NameRules::slices(std::string ours, std::string theirs, std::vector<int64_t> first_rows) {
  return add({.kind = NameRule::Slice,
              .ours = one(std::move(ours)),
              .theirs = one(std::move(theirs)),
              .rows = std::move(first_rows)});
}
NameRules& NameRules::swap_halves(std::string ours, std::string theirs) {
  return add({.kind = NameRule::SwapHalves, .ours = one(std::move(ours)), .theirs = one(std::move(theirs))});
}
NameRules& NameRules::reshape(std::string ours, std::string theirs, Shape theirs_shape) {
  return add({.kind = NameRule::Reshape,
              .ours = one(std::move(ours)),
              .theirs = one(std::move(theirs)),
              .shape = theirs_shape});
}

NameRules& NameRules::inside(const std::string& ours, const std::string& theirs, const NameRules& rules) {
  auto under = [](const std::string& part, std::string& name) {
    if (!part.empty() && !name.empty()) name.insert(0, 1, '.');
    name.insert(0, part);
  };
  for (NameRule rule : rules.rules_) {
    for (auto& name : rule.ours) under(ours, name);
    for (auto& name : rule.theirs) under(theirs, name);
    add(std::move(rule));
  }
  return *this;
}

NameRules& NameRules::with(void (*more)(const TensorList&, NameRules&)) {
  more_.push_back(more);
  return *this;
}

std::vector<NameRule> NameRules::of(const TensorList& model) const {
  NameRules all;
  all.rules_ = rules_;
  for (auto* more : more_) more(model, all);
  return std::move(all.rules_);
}

NameRules& detail::add_layout(const char* class_name, const char* layout) { return registry()[class_name][layout]; }

const NameRules* find_layout(const std::string& class_name, const std::string& layout) {
  if (layout == "own") return &own_names();
  auto found = registry().find(class_name);
  if (found == registry().end()) return nullptr;
  auto rules = found->second.find(layout);
  return rules == found->second.end() ? nullptr : &rules->second;
}

std::vector<std::string> layouts_of(const std::string& class_name) {
  std::vector<std::string> out;
  if (auto found = registry().find(class_name); found != registry().end())
    for (auto& [layout, rules] : found->second) out.push_back(layout);
  return out;
}

std::vector<std::string> classes_with_layouts() {
  std::vector<std::string> out;
  for (auto& [name, layouts] : registry()) out.push_back(name);
  return out;
}

}  // namespace sf::models
