// The thread that saves what was made, while the next pictures are computed: commits cost the processor little and the
// clock milliseconds. Nobody is told of a picture, or of a job's end, before it is on the disk. Others make the files
// beside it: pictures that were drawn together on a GPU are done together, a file takes as long as some steps, and with
// one thread each client would ask for its next picture so much later than the one before it.
#if defined(__linux__)
#include <sys/resource.h>
#endif

#include <algorithm>
#include <mutex>
#include <optional>
#include <thread>

#include "scaffolding/core/alone_scope.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/release_threads.h"
#include "scaffolding/server/jobs/live_jobs.h"
#include "scaffolding/server/unavailable.h"

namespace sf::server {

namespace {

constexpr size_t kMostUnsaved = 16;  // pictures and ends; what computes waits where the disk is slower

// The calling thread, which makes files, gives way to those that compute: where it takes a core for 3 ms the others
// wait for that core, and there are gaps enough between their regions (two cores, 8 clients: 3 to 5 % more pictures a
// second). Much less, and beside another program that computes nothing would be saved in time. The thread that saves
// does not: clients that ask and threads that spin take the cores, and a job's end is told at once.
void give_way() {
#if defined(__linux__)  // where it is the thread's alone
  setpriority(PRIO_PROCESS, 0, 10);
#endif
}

}  // namespace

void Jobs::start_saving() {
  saving_->thread = std::thread([this] { save_items(); });
  // A processor that computes has no cores for more.
  const unsigned makers = shelf_.device().is_cuda() ? std::clamp(std::thread::hardware_concurrency() / 4, 1u, 4u) : 1;
  for (unsigned i = 0; i < makers; ++i) saving_->makers.emplace_back([this] { make_files(); });
}

void Jobs::stop_saving() {
  if (!saving_->thread.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    saving_->is_over = true;
  }
  saving_->changed.notify_all();
  saving_->thread.join();
  for (auto& maker : saving_->makers) maker.join();
}

void Jobs::save(SavingItem item) {
  std::unique_lock lock(mutex_);
  saving_->changed.wait(lock, [&] { return saving_->items.size() < kMostUnsaved; });
  if (item.file) {
    ++item.job->unsaved;
    const bool others = queue_.size() > 0 ||
                        std::any_of(groups_.begin(), groups_.end(), [](const Group& g) { return !g.jobs.empty(); });
    item.make = std::packaged_task<std::string()>([file = std::move(item.file), others] {
      std::optional<AloneScope> alone;  // what is drawn meanwhile has the cores
      if (others) alone.emplace();
      return file();
    });
    item.made = item.make.get_future();
  }
  saving_->items.push_back(std::move(item));
  saving_->changed.notify_all();
}

void Jobs::wait_for_saving() {
  std::unique_lock lock(mutex_);
  saving_->changed.wait(lock, [&] { return saving_->items.empty(); });
}

// Of files that nobody has begun, the oldest first.
void Jobs::make_files() {
  give_way();
  std::unique_lock lock(mutex_);
  for (;;) {
    std::packaged_task<std::string()> make;
    saving_->changed.wait(lock, [&] {
      for (auto& item : saving_->items)
        if (!make.valid() && item.make.valid()) make = std::move(item.make);
      return make.valid() || saving_->is_over;
    });
    if (!make.valid()) return;
    lock.unlock();
    make();
    make = {};  // and what it holds
    release_threads();
    lock.lock();
  }
}

void Jobs::save_items() {
  std::unique_lock lock(mutex_);
  for (;;) {
    saving_->changed.wait(lock, [&] { return !saving_->items.empty() || saving_->is_over; });
    if (saving_->items.empty()) return;
    SavingItem& item = saving_->items.front();  // it stays where it is while others are added
    if (is_over(item.state)) --running_;
    lock.unlock();
    const bool is_told = item.made.valid() && save_picture(item);
    if (is_over(item.state)) {
      if (!is_told) save_end(item);
      if (item.state == JobState::Done) clean();
    }
    lock.lock();
    saving_->items.pop_front();
    saving_->changed.notify_all();
  }
}

// Whether the job's end was recorded with it.
bool Jobs::save_picture(SavingItem& item) {
  Live& job = *item.job;
  JobRecord record;
  {
    std::lock_guard lock(mutex_);
    record = job.record;
    if (is_over(item.state) && job.failure.empty() && !job.given_up)
      record.state = item.state, record.ended = seconds_now();
  }
  bool saved = false, lost = false, told = false;
  std::string error;
  try {
    const std::string bytes = item.made.get();
    while (!saved) try {
        item.picture = history_.add_picture(record, item.picture, bytes, item.suffix);
        saved = true;
      } catch (const Unavailable& e) {
        if (!told) log_.write("history", {{"job", record.id}, {"error", e.what()}});
        told = true;
        if (!pause()) break;
      }
  } catch (const History::LeaseLost&) {
    lost = true;
  } catch (const std::exception& e) {
    error = e.what();
  }
  if (saved) metrics_.count_picture();
  {
    std::lock_guard lock(mutex_);
    --job.unsaved;
    if (lost) job.lost = job.mine;  // or it was given back meanwhile
    else if (!error.empty()) job.failure = error;
    else if (!saved) job.given_up = true;
    if (!saved) return wake_.notify_all(), false;
    add_picture(job, item.picture);
    record.pictures = job.record.pictures;
  }
  if (!is_over(record.state)) return false;
  tell_end(item.job, record);
  return true;
}

void Jobs::save_end(SavingItem& item) {
  {
    std::lock_guard lock(mutex_);
    if (item.job->given_up) return;  // it runs until its lease ends
    if (!item.job->failure.empty()) item.state = JobState::Failed, item.error = item.job->failure;
  }
  finish(item.job, item.state, item.error);
}

void Jobs::clean() {
  if (!settings_.retention.pictures && !settings_.retention.bytes && settings_.retention.days == 0) return;
  try {
    history_.clean(settings_.retention);
  } catch (const std::exception& e) {  // at the next one
    if (!dynamic_cast<const Unavailable*>(&e)) log_.write("history", {{"error", e.what()}});
  }
}

}  // namespace sf::server
