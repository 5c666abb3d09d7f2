// Jobs from the moment they are accepted: the queue, the worker that steps the pipelines' runs, and what clients are
// told of them. Any thread may call; one thread of its own computes: pictures that fit share its calls of the denoiser
// (worker.cpp).
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "scaffolding/server/jobs/drawing.h"
#include "scaffolding/server/jobs/job_queue.h"
#include "scaffolding/server/jobs/model_shelf.h"
#include "scaffolding/server/jobs/preview.h"
#include "scaffolding/server/jobs/step_clock.h"
#include "scaffolding/server/jobs/step_times.h"
#include "scaffolding/server/log.h"
#include "scaffolding/server/metrics.h"

namespace sf::server {

struct JobSettings {
  QueueLimits queue;
  double most_waiting = 3600, most_running = 3600;  // seconds, after which a job fails
  bool previews = true;
  size_t most_together = 8;  // pictures that share calls of the denoiser
  Retention retention;
};

// What is told of a job while it goes on; ids count up from 1 for each job.
struct JobEvent {
  uint64_t id = 0;
  std::string name;  // "queued", "started", "step", "decode", "picture", "done", "failed", "cancelled"
  json data;
  PreviewPointer preview;  // of a step
};

// The same of all jobs of a client, with an id that is larger than each before it, of earlier starts too.
struct FeedEvent {
  uint64_t id = 0;
  std::string client, job, key;
  JobEvent event;
};

struct JobView {
  JobRecord record;
  int64_t step = 0, steps = 0, place = 0;  // of the first picture that is being made, and which one it is
  double made = 0;                         // pictures, with the parts of those that are being made
  double decoded = 0;                      // of a clip's frames, the share that is there
  std::optional<size_t> queue_place;       // how many go before it
  double seconds_left = -1;                // as the steps so far took; below 0: not known
  bool interrupted = false;                // it ends with the pictures that have begun
  double progress() const;                 // 0 to 1
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
  void cancel_left(const std::string& id);  // its client is gone: at once, or once the history answers
  // The pictures that this server makes of its web UI's jobs end as they are now; the jobs go on with the next ones.
  void skip(const std::string& client);
  // Those end with the pictures that have begun, as they are now; what else the client has is cancelled.
  void interrupt(const std::string& client);
  bool set_priority(const std::string& id, Priority priority);  // false where it does not wait

  std::optional<JobView> find(const std::string& id) const;
  PreviewPointer preview(const std::string& id) const;
  // Those of a client that wait or run, in the order in which they came.
  std::vector<JobView> active(const std::string& client) const;
  // Once it is over, on the thread that saves, or now where it is.
  void when_over(const std::string& id, std::function<void(const JobRecord& job)> then);
  // Each event after that number, now and later, until false comes back; `to` is called under a lock and must not call
  // back. Of a job that is over and forgotten, its last. previews: with one at every step, else when it costs little.
  void subscribe(const std::string& id, uint64_t after, std::function<bool(const JobEvent& event)> to,
                 bool previews = false);

  // As subscribe(), of all jobs of a client. Called first with whether all events behind that id are still known and
  // follow, else whoever listens has to look at the jobs anew; and with the id behind which they begin.
  void follow(const std::string& client, uint64_t after, std::function<void(bool complete, uint64_t from)> begin,
              std::function<bool(const FeedEvent& event)> to, bool previews = false);

  size_t waiting() const;
  size_t running() const;
  ModelShelf& shelf() { return shelf_; }
  History& history() { return history_; }
  const Samplers& samplers() const { return samplers_; }
  // Asked of the worker, between steps: whatever runs keeps its networks.
  void unload_models();
  void load_model(const std::string& model);  // beside what runs, where it has room; after an unload_models() before

 private:
  struct Live;
  struct Seat;
  struct Active;
  struct Group;
  struct Saving;
  struct SavingItem;
  struct Sharing;
  using LivePointer = std::shared_ptr<Live>;
  void work();
  bool may_join(const Group& group, const JobRecord& record) const;  // with the mutex
  size_t best_at_a_time(const Group& group, size_t unbegun) const;
  std::set<std::string> models_in_use() const;
  bool is_at_hand(const std::string& model);
  void load_beside(const std::string& model, bool now);
  void take_loaded();
  void begin(LivePointer job);
  void turn(Group& group);
  Active* next_to_begin(Group& group, size_t seats);
  void begin_picture(Group& group, Active& active);
  void step(Group& group);
  void set_most(Group& group, size_t pictures);
  void told_step(Active& active, Seat& seat, double seconds, size_t together);
  PreviewPointer preview_of(const Active& active, const Seat& seat);
  void learn_colours(const Active& active, const Seat& seat);
  void finish_picture(Group& group, Active& active, std::list<Seat>::iterator seat);
  void end(Group& group, Active& active, JobState state, const std::string& error);
  void leave(Group& group, Active& active, SavingItem item);
  // Beside the computing (saving.cpp).
  void start_saving();
  void stop_saving();
  void save(SavingItem item);
  void save_items();
  void make_files();
  bool save_picture(SavingItem& item);
  void save_end(SavingItem& item);
  void clean();  // what is kept no longer
  void wait_for_saving();
  void finish(LivePointer job, JobState state, const std::string& error);
  void tell(Live& job, const char* name, json data,
            PreviewPointer preview = nullptr);          // with the mutex
  void add_picture(Live& job, const Picture& picture);  // with the mutex; told where it is new
  LivePointer live(const std::string& id) const;
  void take_up(JobRecord job);
  void forget_old();
  void fail_overdue(double now);
  void drop_ended(double now);
  bool is_unwanted(const Active& active) const;
  void told_over(const LivePointer& job, const JobRecord& record);
  void tell_end(const LivePointer& job, const JobRecord& record);
  bool record_end(const JobRecord& record);
  bool pause();  // while the history does not answer; false: the server stops
  void lose(Group& group, Active& active);

  // With other servers of the history (sharing.cpp): each has all jobs that wait or run anywhere, and mirrors what the
  // others tell of those that they run.
  bool claim(const LivePointer& job);
  bool cancel_shared(const std::string& id);
  void share();
  void send();
  void hear(const std::string& message);
  void look();
  void fetch(const std::string& id);
  bool is_watched(const std::string& id) const;
  void mirror_started(Live& job);  // with the mutex, as the next
  void mirror_waiting(Live& job);
  void mirror_over(const std::string& id);
  void tell_others(Live& job, const JobEvent& event);  // with the mutex
  void poke();
  void poke_to_look();

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
  struct Follower {
    std::string client;
    std::function<bool(const FeedEvent&)> to;
    bool previews;
  };
  std::vector<Follower> followers_;
  std::deque<FeedEvent> feed_;     // the last ones, of everybody, without previews
  uint64_t feed_ids_, feed_from_;  // the last id; behind which feed_ has all
  std::deque<std::string> over_;   // of live_, those that are over, the oldest first
  std::list<Group> groups_;        // the worker's; the last one runs, the others were overtaken
  StepTimes times_;                // the worker's
  StepClock step_clock_;           // the worker's
  std::thread worker_;
  std::map<std::string, std::shared_ptr<LatentColours>> colours_;  // by model; the worker's
  std::atomic<bool> stopping_{false};
  bool stop_now_ = false, unload_ = false;
  std::string to_load_;    // by load_model()
  bool has_news_ = false;  // a job came, or a model
  struct Loading {
    std::string model;
    double began = 0;  // in seconds of a clock
    std::shared_ptr<diffusion::DiffusionPipeline> pipeline;
    bool is_over = false, failed = false;  // with the mutex
    std::future<void> thread;              // the last member: it is waited for before the others go
  };
  std::unique_ptr<Loading> loading_;  // the worker's
  size_t running_ = 0;
  double stop_at_ = 0;
  std::unique_ptr<Saving> saving_;
  std::unique_ptr<Sharing> sharing_;         // null: this server is alone
  double previewed_ = 0, preview_took_ = 0;  // when the last one was made, in seconds of a clock, and how long it took
};

double seconds_now();  // since 1970

}  // namespace sf::server
