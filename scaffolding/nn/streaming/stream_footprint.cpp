#include "scaffolding/nn/streaming/stream_footprint.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace sf::nn {

std::vector<bool> spread_evenly(const std::vector<int64_t>& group_bytes, int64_t bytes) {
  const int64_t total = std::accumulate(group_bytes.begin(), group_bytes.end(), int64_t(0));
  const double share = total ? std::min(1.0, double(bytes) / double(total)) : 1;
  std::vector<bool> stays(group_bytes.size(), false);
  int64_t taken = 0;
  double due = 0;
  auto take = [&](size_t i) {
    if (stays[i] || taken + group_bytes[i] > bytes) return;
    stays[i] = true;
    taken += group_bytes[i];
  };
  for (size_t i = 0; i < stays.size(); ++i) {
    due += share * double(group_bytes[i]);
    if (double(taken) + double(group_bytes[i]) / 2 <= due) take(i);
  }
  for (size_t i = 0; i < stays.size(); ++i) take(i);
  return stays;
}

StreamFootprint stream_footprint(const std::vector<int64_t>& group_bytes, int64_t resident_bytes, int64_t slots) {
  StreamFootprint f{.stays = spread_evenly(group_bytes, resident_bytes)};
  int64_t largest = 0;
  for (size_t i = 0; i < group_bytes.size(); ++i) {
    if (f.stays[i]) f.resident_bytes += group_bytes[i];
    else f.streamed_bytes += group_bytes[i], largest = std::max(largest, group_bytes[i]);
  }
  f.slot_bytes = slots * largest;
  if (f.slot_bytes < f.streamed_bytes || slots == 0) return f;
  return {.stays = std::vector<bool>(group_bytes.size(), true), .resident_bytes = f.resident_bytes + f.streamed_bytes};
}

std::optional<int64_t> resident_bytes_within(const std::vector<int64_t>& group_bytes, int64_t device_bytes,
                                             int64_t slots) {
  std::optional<int64_t> best;
  int64_t most = -1;
  std::set<int64_t> tries;  // what is left beside slots of each size; and, since large groups may stay, all between
  for (int64_t bytes : group_bytes) tries.insert(device_bytes - slots * bytes);
  constexpr int64_t kSteps = 512;
  for (int64_t i = 0; i <= kSteps; ++i) tries.insert(device_bytes / kSteps * i + device_bytes % kSteps * i / kSteps);
  for (int64_t resident : tries) {
    if (resident < 0) continue;
    const StreamFootprint f = stream_footprint(group_bytes, resident, slots);
    if (f.device_bytes() <= device_bytes && f.resident_bytes > most) most = f.resident_bytes, best = resident;
  }
  return best;
}

}  // namespace sf::nn
