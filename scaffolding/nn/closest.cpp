#include "scaffolding/nn/closest.h"

#include <algorithm>

namespace sf::nn {

// Levenshtein's distance; `limit` or more when it reaches that.
static size_t edits(std::string_view a, std::string_view b, size_t limit) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() >= limit) return limit;
  std::vector<size_t> row(a.size() + 1);
  for (size_t i = 0; i <= a.size(); ++i) row[i] = i;
  for (size_t j = 1; j <= b.size(); ++j) {
    size_t diagonal = row[0], least = row[0] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
      size_t cost = std::min({row[i] + 1, row[i - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = row[i];
      row[i] = cost;
      least = std::min(least, cost);
    }
    if (least >= limit) return limit;
  }
  return row.back();
}

std::string closest(std::string_view name, const std::vector<std::string>& candidates) {
  std::string best;
  size_t least = std::max<size_t>(name.size() / 3, 2) + 1;  // further away is another name
  bool best_is_inside = false;
  for (auto& c : candidates) {
    // One name inside the other: a lost or added prefix ("module."). One edit is as near, and likelier.
    bool inside = !c.empty() && (name.ends_with(c) || c.ends_with(name));
    size_t n = inside ? std::min<size_t>(1, least - 1) : edits(name, c, least + best_is_inside);
    if (n < least || (n == least && best_is_inside && !inside)) {
      least = n;
      best = c;
      best_is_inside = inside;
    }
    if (least == 0) break;
  }
  return best;
}

std::string closest_hint(std::string_view name, const std::vector<std::string>& candidates) {
  std::string c = closest(name, candidates);
  return c.empty() ? "" : " (closest: '" + c + "')";
}

}  // namespace sf::nn
