#include "scaffolding/server/jobs/job_queue.h"

#include <algorithm>
#include <cmath>

namespace sf::server {

void JobQueue::push(const std::string& id, const std::string& client, Priority priority, double now) {
  waiting_.push_back({id, client, priority, now, numbers_++});
}

bool JobQueue::has(const std::string& id) const {
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& w) { return w.id == id; });
}

bool JobQueue::remove(const std::string& id) {
  return std::erase_if(waiting_, [&](const Waiting& w) { return w.id == id; }) > 0;
}

void JobQueue::set_priority(const std::string& id, Priority priority) {
  for (auto& w : waiting_)
    if (w.id == id) w.priority = priority;
}

int JobQueue::urgency(const Waiting& job, double now) const {
  const int aged = limits_.ageing > 0 ? int(std::min(100.0, std::max(0.0, now - job.since) / limits_.ageing)) : 0;
  return int(job.priority) + aged;
}

double JobQueue::served(const std::string& client, double now) const {
  const auto at = shares_.find(client);
  if (at == shares_.end()) return 0;
  const Share& share = at->second;
  return share.seconds * std::exp2(-std::max(0.0, now - share.at) / limits_.forgetting) +
         double(share.running) * usual_;
}

void JobQueue::count_served(const std::string& client, double seconds, double now) {
  Share& share = shares_[client];
  if (share.running > 0) --share.running, usual_ = 0.8 * usual_ + 0.2 * seconds;
  const double others = double(share.running) * usual_;
  share.seconds = served(client, now) - others + seconds, share.at = now;
}

bool JobQueue::goes_before(const Waiting& a, const Waiting& b, double now) const {
  const int x = urgency(a, now), y = urgency(b, now);
  if (x != y) return x > y;
  if (a.client != b.client) {
    const double s = served(a.client, now), t = served(b.client, now);
    if (s != t) return s < t;
  }
  return a.number < b.number;
}

std::optional<JobQueue::Waiting> JobQueue::best(double now) const {
  const auto at = std::min_element(waiting_.begin(), waiting_.end(),
                                   [&](const Waiting& a, const Waiting& b) { return goes_before(a, b, now); });
  if (at == waiting_.end()) return {};
  return *at;
}

std::optional<JobQueue::Waiting> JobQueue::pop(double now) {
  auto found = best(now);
  if (found) remove(found->id);
  return found;
}

std::optional<size_t> JobQueue::place_of(const std::string& id, double now) const {
  const auto at = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& w) { return w.id == id; });
  if (at == waiting_.end()) return {};
  return size_t(std::count_if(waiting_.begin(), waiting_.end(),
                              [&](const Waiting& w) { return w.id != id && goes_before(w, *at, now); }));
}

}  // namespace sf::server
