// Jobs from the moment they are accepted: the queue, the worker that steps the pipelines' runs, and what clients are
// told of them. Any thread may call; one thread of its own computes.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <thread>

#include "scaffolding/server/jobs/drawing.h"
#include "scaffolding/server/jobs/job_queue.h"
#include "scaffolding/server/jobs/model_shelf.h"
#include "scaffolding/server/jobs/preview.h"
#include "scaffolding/server/log.h"
#include "scaffolding/server/metrics.h"

namespace sf::server {

struct JobSettings {
  QueueLimits queue;
  double most_waiting = 3600, most_running = 3600;  // seconds, after which a job fails
  bool previews = true;
  Retention retention;
};

// What is told of a job while it goes on; ids count up from 1 for each job.
struct JobEvent {
  uint64_t id = 0;
  std::string name;  // "queued", "started", "step", "picture", "done", "failed", "cancelled"
  json data;
  std::shared_ptr<const std::string> preview;  // of a step, a PNG; null: none
};

struct JobView {
  JobRecord record;
  int64_t step = 0, steps = 0, place = 0;      // of the picture that is made, and which one it is
  std::optional<size_t> queue_place;           // how many go before it
  double seconds_left = -1;                    // as the steps so far took; below 0: not known
  std::shared_ptr<const std::string> preview;  // a PNG; null: none
  double progress() const;                     // 0 to 1
};

class Jobs {
 public:
  Jobs(History& history, ModelShelf& shelf, Samplers samplers, JobSettings settings, Log& log, Metrics& metrics);
  ~Jobs();
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;

  void start();  // takes up what the history has waiting
  // No job is accepted any more; what runs may go on for so many seconds, and then waits for the next start.
  void stop(double drain_seconds);
  bool is_stopping() const { return stopping_; }

  struct Accepted {
    JobView job;
    bool is_new = true;  // false: the same request was accepted before, by its key
  };
  // Once it is on the disk. ApiError: 429 where the queue is full, 503 where the server stops, 409 for a key that was
  // used for another request.
  Accepted submit(JobRecord job);
  // false where it is over, or not there
  bool cancel(const std::string& id);
  size_t cancel_all(const std::string& client);                 // of that client, by its API: how many
  bool set_priority(const std::string& id, Priority priority);  // false where it does not wait

  std::optional<JobView> find(const std::string& id) const;
  // Those of a client that wait or run, in the order in which they came.
  std::vector<JobView> active(const std::string& client) const;
  // Once it is over, on the worker's thread, or now where it is.
  void when_over(const std::string& id, std::function<void(const JobRecord& job)> then);
  // Each event after that number, now and later, until false comes back; `to` is called under a lock and must not call
  // back. Of a job that is over and forgotten, its last.
  void subscribe(const std::string& id, uint64_t after, std::function<bool(const JobEvent& event)> to);

  size_t waiting() const;
  size_t running() const;
  ModelShelf& shelf() { return shelf_; }
  History& history() { return history_; }
  const Samplers& samplers() const { return samplers_; }
  // Asked of the worker, between steps: whatever runs keeps its networks.
  void unload_models();

 private:
  struct Live;
  struct Active;
  using LivePointer = std::shared_ptr<Live>;
  void work();
  void begin(LivePointer job);
  bool begin_picture(Active& active);
  void step(Active& active);
  std::shared_ptr<const std::string> preview_of(const Active& active) const;
  void learn_colours(const Active& active);
  void finish_picture(Active& active);
  void finish(LivePointer job, JobState state, const std::string& error);
  void tell(Live& job, const char* name, json data,
            std::shared_ptr<const std::string> preview = nullptr);  // with the mutex
  LivePointer live(const std::string& id) const;
  void take_up(JobRecord job);
  void forget_old();
  void fail_overdue(double now);
  void drop_cancelled();

  History& history_;
  ModelShelf& shelf_;
  const Samplers samplers_;
  const JobSettings settings_;
  Log& log_;
  Metrics& metrics_;
  std::mutex submitting_;  // a job that was added is taken up before another one is asked for
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  JobQueue queue_;
  std::map<std::string, LivePointer> live_;
  std::deque<std::string> over_;  // of live_, those that are over, the oldest first
  std::list<Active> active_;      // the worker's; the last one runs, the others were overtaken
  std::thread worker_;
  std::map<std::string, std::shared_ptr<LatentColours>> colours_;  // by model; the worker's
  std::atomic<bool> stopping_{false};
  bool stop_now_ = false, unload_ = false;
  size_t running_ = 0;
  double stop_at_ = 0;
};

double seconds_now();  // since 1970

}  // namespace sf::server
