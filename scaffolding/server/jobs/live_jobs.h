// What Jobs keeps of jobs that wait or run: jobs.cpp answers clients by it, worker.cpp computes.
#pragma once
#include <condition_variable>
#include <deque>
#include <thread>

#include "scaffolding/diffusion/pipelines/shared_steps.h"
#include "scaffolding/server/jobs/jobs.h"

namespace sf::server {

// Guarded by the mutex of Jobs.
struct Jobs::Live {
  JobRecord record;
  int64_t step = 0, steps = 0, place = 0;
  double made = 0, decoded = 0;
  double step_seconds = 0;  // of all its pictures' next step, on average of the last ones
  PreviewPointer preview;
  std::deque<JobEvent> events;
  uint64_t event_ids = 0;
  std::vector<std::function<bool(const JobEvent&)>> subscribers;
  std::vector<std::function<void(const JobRecord&)>> waiters;
  bool cancelled = false, skipped = false, interrupted = false;
  // A web UI's job that this server makes pictures of.
  bool is_drawn_here() const { return mine && record.state == JobState::Running && record.request.api == "webui"; }
  int64_t unsaved = 0;          // pictures that were made and are not on the disk yet
  std::string failure;          // of saving one of them
  bool given_up = false;        // one of them could not be saved before the server stopped
  bool wants_previews = false;  // somebody waits for one of each step
  double waiting_since = 0;
  // Of a history that several servers have:
  bool mine = false;               // this server runs it, or is about to
  bool lost = false;               // it was this server's, and is another's
  bool is_served = false;          // by another server
  double claimed_at = 0;           // seconds of a clock, once it is this server's
  double preview_told = 0;         // when others were last told of a preview
  bool preview_elsewhere = false;  // another server made one, which nobody here has waited for
};

// What other servers are to be told; guarded by the mutex of Jobs.
struct Jobs::Sharing {
  struct Message {
    std::string job, name;  // an event's; "change": something else happened to jobs
    json text;
    PreviewPointer preview;
  };
  std::vector<Message> outbox;
  std::vector<std::string> to_cancel;  // whose clients left
  std::atomic<bool> is_over{false};
  std::atomic<bool> wants_look{false};  // at what the history has
  double poked = 0;                     // when that was last done for an event, in seconds of a clock; with the mutex
  int poke;                             // an eventfd that wakes the thread
  std::thread thread;
};

// What is put on the disk beside the computing, one thing after the other: a picture, a job's end, or its last picture
// with its end. Guarded by the mutex of Jobs; the first item is its thread's while it lies there.
struct Jobs::SavingItem {
  LivePointer job;
  std::function<std::string()> file = {};  // makes a picture's bytes; none: the job's end alone
  Picture picture = {};
  std::string suffix = {};
  JobState state = JobState::Running;  // which the job has afterwards
  std::string error = {};
  std::packaged_task<std::string()> make = {};  // of `file`, until a thread takes it
  std::future<std::string> made = {};           // what it makes
};

struct Jobs::Saving {
  std::deque<SavingItem> items;
  bool is_over = false;  // nothing comes any more
  std::condition_variable changed;
  std::thread thread;
  std::vector<std::thread> makers;  // of files
};

// A picture that is being made: the worker's alone, as what follows.
struct Jobs::Seat {
  int64_t place;
  std::shared_ptr<diffusion::DiffusionPipeline> pipeline;
  std::unique_ptr<PictureRun> run;
};

struct Jobs::Active {
  LivePointer job;
  int64_t next = 0;       // the place of the picture that begins next
  std::list<Seat> seats;  // in the order of their beginning
  double seconds = 0;     // that its pictures took
  bool has_unbegun() const { return next < job->record.request.count; }
};

// Jobs that may share calls: of one model, adapters and size, equally urgent.
struct Jobs::Group {
  Priority priority;
  std::string model;
  std::vector<diffusion::LoraTag> loras;
  bool alone = false;        // of a job that ran when the server crashed
  std::string size, timing;  // "128x128"; what its steps' times are kept by; both "" until a picture has begun
  std::list<Active> jobs;
  diffusion::SharedSteps shared;
  size_t most;  // pictures at a time, fewer where memory did not suffice
  size_t seats() const {
    size_t n = 0;
    for (auto& a : jobs) n += a.seats.size();
    return n;
  }
  const Seat* first() const {  // null before one has begun
    for (auto& a : jobs)
      if (!a.seats.empty()) return &a.seats.front();
    return nullptr;
  }
};

}  // namespace sf::server
