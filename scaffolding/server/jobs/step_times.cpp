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
  k.last_rows = rows;
  Times& t = k.by_rows[rows];
  if (t.is_first) {
    t.is_first = false;
    return;
  }
  t.samples.push_back({seconds, now, k.calls});
  if (t.samples.size() > kSamples) t.samples.pop_front();
}

StepTimes::Least StepTimes::least(const Kind& k, int64_t rows, const Times& t, double now) {
  Least least;  // whatever else the machine does makes it longer
  for (auto& s : t.samples) {
    if (now - s.at >= kForgotten || (rows > k.last_rows && k.calls - s.call >= kCalls)) continue;
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
    const Least known = least(k, there, t, now);
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
  std::vector<int64_t> sums{0};
  for (int64_t r : rows) sums.push_back(sums.back() + r);
  auto rate = [](size_t n, const Least& took) { return double(n) / std::max(took.seconds, 1e-9); };
  size_t chosen = 1;
  double best_rate = 0;
  for (size_t n = 1; n <= rows.size(); n *= 2) {
    const Least took = near(kind, sums[n], now);
    if (took.samples < kEnough) return n;
    if (rate(n, took) < best_rate * kHope) break;
    if (rate(n, took) > best_rate * kGain) best_rate = rate(n, took), chosen = n;
  }
  // As many as there are, or as pay; of those that were hardly timed nobody knows better.
  for (size_t n = std::min(rows.size(), 2 * chosen - 1); n > chosen; --n) {
    const Least took = near(kind, sums[n], now);
    const bool is_known = took.seconds > 0 && (took.samples == 0 || took.samples >= kEnough);
    if (!is_known || rate(n, took) > best_rate * kGain) return n;
  }
  return chosen;
}

}  // namespace sf::server
