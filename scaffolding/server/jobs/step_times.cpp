#include "scaffolding/server/jobs/step_times.h"

#include <algorithm>

namespace sf::server {

namespace {
constexpr size_t kMostKinds = 256;
}

void StepTimes::measured(const std::string& kind, int64_t rows, double seconds, double now) {
  if (times_.size() >= kMostKinds && !times_.count(kind)) times_.clear();
  Times& t = times_[kind][rows];
  if (t.is_first) {
    t.is_first = false;
    return;
  }
  t.samples.push_back({seconds, now});
  if (t.samples.size() > kSamples) t.samples.pop_front();
}

double StepTimes::seconds(const std::string& kind, int64_t rows, double now) const {
  const auto of_kind = times_.find(kind);
  if (of_kind == times_.end()) return -1;
  const auto of_rows = of_kind->second.find(rows);
  if (of_rows == of_kind->second.end()) return -1;
  double least = -1;  // whatever else the machine does makes it longer
  for (auto& s : of_rows->second.samples)
    if (now - s.at < kForgotten && (least < 0 || s.seconds < least)) least = s.seconds;
  return least;
}

size_t StepTimes::best(const std::string& kind, const std::vector<int64_t>& rows, double now) const {
  size_t chosen = 1;
  double best_rate = 0, last_rate = 0;
  int64_t sum = 0;
  for (size_t n = 1; n <= rows.size(); ++n) {
    sum += rows[n - 1];
    const double took = seconds(kind, sum, now);
    if (took < 0) return last_rate >= best_rate / kGain ? n : chosen;
    last_rate = double(n) / std::max(took, 1e-9);
    if (last_rate > best_rate * kGain) best_rate = last_rate, chosen = n;
  }
  return chosen;
}

}  // namespace sf::server
