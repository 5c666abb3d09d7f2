// RuleTree: the rule for a tensor's name, found segment by segment. Private to name_table.cpp. It points into the rules that it is made of.
#pragma once
#include <map>
#include <memory>
#include <string_view>

#include "scaffolding/models/names/name_rules.h"

namespace sf::models {

class RuleTree {
 public:
  // ValueError for two rules of one name, and for a placeholder of theirs that is none of ours.
  RuleTree(const std::vector<NameRule>& rules, const std::string& who);

  struct Match {
    const NameRule* rule = nullptr;      // null: no rule names the tensor
    size_t part = 0;                     // which of the rule's ours
    std::vector<std::string> numbers;    // what its placeholders stand for
    std::string rest;                    // what follows: "weight", or nothing
    std::string theirs(size_t i) const;  // the name of the i-th of theirs
  };
  Match find(const std::string& name) const;

 private:
  struct Node {
    std::map<std::string, Node, std::less<>> named;
    std::unique_ptr<Node> number;
    const NameRule* rule = nullptr;
    size_t part = 0;
  };
  struct Search;
  Node root_;
};

}  // namespace sf::models
