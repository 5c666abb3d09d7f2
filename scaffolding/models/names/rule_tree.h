// RuleTree: the rule for a tensor's name, found segment by segment. Private to name_table.cpp.
// It points into the rules that it is made of.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <string_view>

#include "scaffolding/models/names/name_rules.h"

namespace sf::models {

class RuleTree {
 public:
  // ValueError for two rules of one name, and for a placeholder of theirs that is none of ours.
  RuleTree(const std::vector<NameRule>& rules, const std::string& who);

  // It points into the name that was looked for, too.
  struct Match {
    const NameRule* rule = nullptr;             // null: no rule names the tensor
    size_t part = 0;                            // which of the rule's ours
    std::span<const std::string_view> holders;  // its placeholders
    std::vector<std::string_view> numbers;      // what they stand for
    std::string_view rest;                      // what follows: "weight", or nothing
    std::string theirs(size_t i) const;         // the name of the i-th of theirs
  };
  Match find(std::string_view name) const;

 private:
  struct Node {
    std::map<std::string_view, Node> named;
    std::unique_ptr<Node> number;
    const NameRule* rule = nullptr;
    size_t part = 0;
    std::vector<std::string_view> holders;
  };
  struct Search;
  Node root_;
};

}  // namespace sf::models
