#include "scaffolding/models/names/rule_tree.h"

#include <algorithm>

namespace sf::models {

namespace {

std::vector<std::string_view> segments(std::string_view name) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at < name.size();) {
    size_t dot = std::min(name.find('.', at), name.size());
    out.push_back(name.substr(at, dot - at));
    at = dot + 1;
  }
  return out;
}

bool is_placeholder(std::string_view s) { return s.size() > 2 && s.front() == '{' && s.back() == '}'; }
bool is_number(std::string_view s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::vector<std::string_view> placeholders(std::string_view pattern) {
  std::vector<std::string_view> out;
  for (auto s : segments(pattern))
    if (is_placeholder(s)) out.push_back(s);
  return out;
}

// The pattern with numbers in place of its placeholders.
std::string filled(std::string text, const std::vector<std::string_view>& holders, const std::vector<std::string>& numbers) {
  for (size_t i = 0; i < holders.size(); ++i)
    for (size_t at = 0; (at = text.find(holders[i], at)) != std::string::npos; at += numbers[i].size()) text.replace(at, holders[i].size(), numbers[i]);
  return text;
}

}  // namespace

RuleTree::RuleTree(const std::vector<NameRule>& rules, const std::string& who) {
  for (auto& rule : rules)
    for (size_t part = 0; part < rule.ours.size(); ++part) {
      const std::string& ours = rule.ours[part];
      Node* node = &root_;
      for (auto s : segments(ours)) {
        if (!is_placeholder(s)) node = &node->named.try_emplace(std::string(s)).first->second;
        else node = (node->number ? node->number : node->number = std::make_unique<Node>()).get();
      }
      SF_CHECK(!node->rule, who, ": two rules name '", ours, "': as '", node->rule ? node->rule->theirs[0] : "", "' and as '", rule.theirs[0], "'");
      node->rule = &rule;
      node->part = part;
      const auto known = placeholders(ours);
      const std::vector<std::string> any(known.size(), "0");
      for (auto& theirs : rule.theirs)
        SF_CHECK(filled(theirs, known, any).find('{') == std::string::npos, who, ": the rule for '", ours, "' does not say what stands for all braces of '",
                 theirs, "'");
    }
}

struct RuleTree::Search {
  std::vector<std::string_view> name, numbers;
  size_t depth = 0;  // of the best rule
  const Node* best = nullptr;
  std::vector<std::string_view> best_numbers;

  void visit(const Node& node, size_t at) {
    if (node.rule && (!best || at > depth)) {
      best = &node;
      depth = at;
      best_numbers = numbers;
    }
    if (at == name.size()) return;
    if (auto next = node.named.find(name[at]); next != node.named.end()) visit(next->second, at + 1);
    if (!node.number || !is_number(name[at])) return;
    numbers.push_back(name[at]);
    visit(*node.number, at + 1);
    numbers.pop_back();
  }
};

RuleTree::Match RuleTree::find(const std::string& name) const {
  Search search{.name = segments(name)};
  search.visit(root_, 0);
  if (!search.best) return {};
  Match out{search.best->rule, search.best->part, {search.best_numbers.begin(), search.best_numbers.end()}, {}};
  if (search.depth < search.name.size()) out.rest = name.substr(size_t(search.name[search.depth].data() - name.data()));
  return out;
}

std::string RuleTree::Match::theirs(size_t i) const {
  std::string out = filled(rule->theirs[i], placeholders(rule->ours[part]), numbers);
  return out.empty() || rest.empty() ? out + rest : out + "." + rest;
}

}  // namespace sf::models
