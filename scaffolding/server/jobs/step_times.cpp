#include "scaffolding/server/jobs/step_times.h"

#include <algorithm>

namespace sf::server {

namespace {
constexpr size_t kMostKinds = 256;
}

void StepTimes::measured(const std::string& kind, int64_t rows, double seconds, double now) {
  if (times_.size() >= kMostKinds && !times_.count(kind)) times_.clear();
  Kind& k = times_[kind];
  ++k.calls;
  Times& t = k.by_rows[rows];
  if (t.is_first) {
    t.is_first = false;
    return;
  }
  t.samples.push_back({seconds, now, k.calls});
  if (t.samples.size() > kSamples) t.samples.pop_front();
}

StepTimes::Least StepTimes::least(const Kind& k, const Times& t, double now) {
  Least least;  // whatever else the machine does makes it longer
  for (auto& s : t.samples) {
    if (now - s.at >= kForgotten || k.calls - s.call >= kCalls) continue;
    ++least.samples;
    if (least.seconds < 0 || s.seconds < least.seconds) least.seconds = s.seconds;
  }
  return least;
}

StepTimes::Least StepTimes::near(const std::string& kind, int64_t rows, double now) const {
  const auto of_kind = times_.find(kind);
  if (of_kind == times_.end()) return {};
  const Kind& k = of_kind->second;
  double below = -1;
  int64_t below_rows = 0;
  for (auto& [there, t] : k.by_rows) {
    const Least known = least(k, t, now);
    if (known.seconds < 0) continue;
    if (there == rows) return known;
    if (there < rows) below = known.seconds, below_rows = there;
    else if (below < 0) return {};
    else return {below + (known.seconds - below) * double(rows - below_rows) / double(there - below_rows), 0};
  }
  return {};
}

double StepTimes::seconds(const std::string& kind, int64_t rows, double now) const {
  return near(kind, rows, now).seconds;
}

size_t StepTimes::best(const std::string& kind, const std::vector<int64_t>& rows, double now) const {
  size_t chosen = 1, tried = 1;
  double best_rate = 0;
  int64_t sum = 0;
  for (size_t n = 1; n <= rows.size(); ++n) {
    sum += rows[n - 1];
    const Least took = near(kind, sum, now);
    const bool is_trial = n == tried;
    if (is_trial && took.samples < kEnough) return n;
    if (took.seconds < 0) {
      if (n == rows.size()) return n;  // less than twice as many as were timed
      continue;
    }
    const double rate = double(n) / std::max(took.seconds, 1e-9);
    if (is_trial && rate < best_rate * kHope) break;
    if (is_trial) tried *= 2;
    if (rate > best_rate * kGain) best_rate = rate, chosen = n;
  }
  return chosen;
}

}  // namespace sf::server
