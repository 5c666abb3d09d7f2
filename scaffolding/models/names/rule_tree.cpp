#include "scaffolding/models/names/rule_tree.h"

#include <algorithm>

namespace sf::models {

namespace {

// The first segment of a name, which loses it.
std::string_view cut(std::string_view& name) {
  const size_t dot = std::min(name.find('.'), name.size());
  const std::string_view first = name.substr(0, dot);
  name.remove_prefix(std::min(dot + 1, name.size()));
  return first;
}

bool is_placeholder(std::string_view s) { return s.size() > 2 && s.front() == '{' && s.back() == '}'; }
bool is_number(std::string_view s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Puts numbers in place of a pattern's placeholders.
void fill(std::string& text, std::span<const std::string_view> holders, std::span<const std::string_view> numbers) {
  for (size_t i = 0; i < holders.size(); ++i)
    for (size_t at = 0; (at = text.find(holders[i], at)) != std::string::npos; at += numbers[i].size())
      text.replace(at, holders[i].size(), numbers[i]);
}

bool all_known(std::string text, std::span<const std::string_view> holders) {
  if (text.find('{') == std::string::npos) return true;
  const std::vector<std::string_view> any(holders.size(), "0");
  fill(text, holders, any);
  return text.find('{') == std::string::npos;
}

}  // namespace

RuleTree::RuleTree(const std::vector<NameRule>& rules, const std::string& who) {
  for (auto& rule : rules)
    for (size_t part = 0; part < rule.ours.size(); ++part) {
      const std::string& ours = rule.ours[part];
      std::vector<std::string_view> holders;
      Node* node = &root_;
      for (std::string_view left = ours; !left.empty();) {
        const std::string_view s = cut(left);
        if (!is_placeholder(s)) {
          node = &node->named[s];
          continue;
        }
        holders.push_back(s);
        node = (node->number ? node->number : node->number = std::make_unique<Node>()).get();
      }
      SF_CHECK(!node->rule, who, ": two rules name '", ours, "': as '", node->rule ? node->rule->theirs[0] : "",
               "' and as '", rule.theirs[0], "'");
      for (auto& theirs : rule.theirs)
        SF_CHECK(all_known(theirs, holders), who, ": the rule for '", ours,
                 "' does not say what stands for all braces of '", theirs, "'");
      node->rule = &rule;
      node->part = part;
      node->holders = std::move(holders);
    }
}

struct RuleTree::Search {
  std::vector<std::string_view> numbers;
  const Node* best = nullptr;
  std::vector<std::string_view> best_numbers;
  std::string_view best_rest;  // the best rule leaves least of the name

  void visit(const Node& node, std::string_view left) {
    if (node.rule && (!best || left.size() < best_rest.size())) {
      best = &node;
      best_rest = left;
      best_numbers = numbers;
    }
    if (left.empty()) return;
    const std::string_view segment = cut(left);
    if (auto next = node.named.find(segment); next != node.named.end()) visit(next->second, left);
    if (!node.number || !is_number(segment)) return;
    numbers.push_back(segment);
    visit(*node.number, left);
    numbers.pop_back();
  }
};

RuleTree::Match RuleTree::find(std::string_view name) const {
  Search search;
  search.visit(root_, name);
  if (!search.best) return {};
  return {search.best->rule, search.best->part, search.best->holders, std::move(search.best_numbers), search.best_rest};
}

std::string RuleTree::Match::theirs(size_t i) const {
  const std::string& pattern = rule->theirs[i];
  std::string out;
  out.reserve(pattern.size() + 1 + rest.size());
  out += pattern;
  fill(out, holders, numbers);
  if (!out.empty() && !rest.empty()) out += '.';
  out += rest;
  return out;
}

}  // namespace sf::models
