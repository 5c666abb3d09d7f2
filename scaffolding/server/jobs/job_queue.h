// The order of waiting jobs: the more urgent first, those that waited long count as more urgent, and among equals those
// of whoever was served least. Not locked: its owner does.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scaffolding/server/jobs/job.h"

namespace sf::server {

struct QueueLimits {
  size_t jobs = 1000;       // that wait
  double ageing = 300;      // seconds of waiting by which a job becomes more urgent by one
  double forgetting = 600;  // seconds by which what was served counts half
};

class JobQueue {
 public:
  explicit JobQueue(QueueLimits limits = {}) : limits_(limits) {}

  bool is_full() const { return waiting_.size() >= limits_.jobs; }
  size_t size() const { return waiting_.size(); }
  void push(const std::string& id, const std::string& client, Priority priority, double now);  // now: seconds
  bool has(const std::string& id) const;
  bool remove(const std::string& id);  // false where it does not wait
  void set_priority(const std::string& id, Priority priority);

  struct Waiting {
    std::string id, client;
    Priority priority;
    double since;
    uint64_t number;
  };
  std::optional<Waiting> best(double now) const;  // the next, which stays
  std::optional<Waiting> pop(double now);
  // How many go before it, as things are now; absent where it does not wait.
  std::optional<size_t> place_of(const std::string& id, double now) const;
  int urgency(const Waiting& job, double now) const;

  // A client's job is being served, and was: until then it counts as what jobs usually come to, so that several at a
  // time are not all of one client.
  void begin_serving(const std::string& client) { ++shares_[client].running; }
  void count_served(const std::string& client, double seconds, double now);

 private:
  bool goes_before(const Waiting& a, const Waiting& b, double now) const;
  double served(const std::string& client, double now) const;
  struct Share {
    double seconds = 0, at = 0;
    int64_t running = 0;
  };
  QueueLimits limits_;
  std::vector<Waiting> waiting_;
  std::map<std::string, Share> shares_;  // by client: as many as there are tokens
  double usual_ = 1;                     // seconds of a job
  uint64_t numbers_ = 0;
};

}  // namespace sf::server
