#include "scaffolding/server/jobs/live_jobs.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "scaffolding/core/error.h"
#include "scaffolding/server/http/api_error.h"
#include "scaffolding/server/unavailable.h"

namespace sf::server {

namespace {

constexpr size_t kKeptEvents = 512, kKeptOver = 256;  // of a job; jobs that are over and still told about
constexpr size_t kKeptFeed = 4096;                    // events of all jobs

}  // namespace

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double JobView::progress() const {
  if (record.state == JobState::Done) return 1;
  return record.request.count == 0 ? 0 : std::min(1.0, made / double(record.request.count));
}

Jobs::Jobs(History& history, ModelShelf& shelf, Samplers samplers, JobSettings settings, Log& log, Metrics& metrics)
    : history_(history),
      shelf_(shelf),
      samplers_(std::move(samplers)),
      settings_(settings),
      log_(log),
      metrics_(metrics),
      queue_(settings.queue),
      feed_ids_(uint64_t(seconds_now() * 1000)),
      feed_from_(feed_ids_),
      saving_(std::make_unique<Saving>()) {
  if (!history_.is_shared()) return;
  sharing_ = std::make_unique<Sharing>();
  sharing_->poke = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  SF_CHECK_AS(RuntimeError, sharing_->poke >= 0, "serve: no more files can be opened");
}

Jobs::~Jobs() {
  stop(0);
  if (sharing_) close(sharing_->poke);
}

void Jobs::take_up(JobRecord record) {
  auto job = std::make_shared<Live>();
  job->record = std::move(record);
  job->waiting_since = sharing_ ? job->record.created : seconds_now();
  job->wants_previews = std::any_of(followers_.begin(), followers_.end(),
                                    [&](auto& f) { return f.previews && f.client == job->record.client; });
  const bool waits = job->record.state == JobState::Waiting;
  if (waits) queue_.push(job->record.id, job->record.client, job->record.priority, job->waiting_since);
  else job->record.state = JobState::Waiting;
  tell(*job, "queued", {{"created", job->record.created}});
  live_[job->record.id] = job;
  if (!waits) mirror_started(*job);
}

void Jobs::start() {
  const auto waiting = history_.recover();
  {
    std::lock_guard lock(mutex_);
    for (auto& record : waiting) take_up(record);
  }
  if (!waiting.empty()) log_.write("recovered", {{"jobs", waiting.size()}});
  history_.clean(settings_.retention);
  start_saving();
  worker_ = std::thread([this] { work(); });
  if (sharing_) sharing_->thread = std::thread([this] { share(); });
}

void Jobs::stop(double drain_seconds) {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    stop_at_ = seconds_now() + drain_seconds;
    if (drain_seconds <= 0) stop_now_ = true;
  }
  wake_.notify_all();
  if (worker_.joinable()) worker_.join();
  stop_saving();
  if (sharing_ && sharing_->thread.joinable()) {
    sharing_->is_over = true;
    poke();
    sharing_->thread.join();
  }
}

Jobs::Accepted Jobs::submit(JobRecord record) {
  std::unique_lock one(submitting_);
  {
    std::lock_guard lock(mutex_);
    if (stopping_) throw ApiError(503, "the server is stopping", "stopping", "", {{"Retry-After", "10"}});
    if (queue_.is_full())
      throw ApiError(429, "the queue is full: " + std::to_string(queue_.size()) + " jobs wait", "queue_full", "",
                     {{"Retry-After", "30"}});
  }
  History::Added added;
  try {
    added = history_.add(std::move(record));
  } catch (const ValueError& e) {
    throw ApiError(409, e.what(), "idempotency_key");
  }
  if (!added.is_new) {
    fetch(added.job.id);
    if (auto there = find(added.job.id)) return {*there, false};
    return {JobView{.record = added.job}, false};
  }
  const std::string id = added.job.id;
  {
    std::lock_guard lock(mutex_);
    if (!live(id)) take_up(std::move(added.job));
    has_news_ = true;
  }
  one.unlock();
  wake_.notify_all();
  return {*find(id), true};
}

Jobs::LivePointer Jobs::live(const std::string& id) const {
  const auto at = live_.find(id);
  return at == live_.end() ? nullptr : at->second;
}

bool Jobs::cancel(const std::string& id) {
  if (sharing_) return cancel_shared(id);
  LivePointer job;
  {
    std::lock_guard lock(mutex_);
    job = live(id);
    if (!job || is_over(job->record.state)) return false;
    job->cancelled = true;
    if (!queue_.remove(id)) return wake_.notify_all(), true;  // it runs: between steps
  }
  finish(job, JobState::Cancelled, "");
  return true;
}

void Jobs::skip(const std::string& client) {
  std::lock_guard lock(mutex_);
  for (auto& [id, job] : live_)
    if (job->record.client == client && job->is_drawn_here()) job->skipped = true;
}

void Jobs::interrupt(const std::string& client) {
  for (auto& view : active(client)) {
    {
      std::lock_guard lock(mutex_);
      const LivePointer job = live(view.record.id);
      if (job && job->is_drawn_here()) {
        job->interrupted = true;
        continue;
      }
    }
    cancel(view.record.id);
  }
}

bool Jobs::set_priority(const std::string& id, Priority priority) {
  fetch(id);
  {
    std::lock_guard lock(mutex_);
    LivePointer job = live(id);
    if (!job || job->record.state != JobState::Waiting) return false;
    job->record.priority = priority;
    queue_.set_priority(id, priority);
    has_news_ = true;
  }
  history_.set_priority(id, priority);
  if (sharing_) {
    std::lock_guard lock(mutex_);
    sharing_->outbox.push_back({.job = "", .name = "change", .text = {}, .preview = nullptr});
    poke();
  }
  wake_.notify_all();
  return true;
}

std::optional<JobView> Jobs::find(const std::string& id) const {
  {
    std::lock_guard lock(mutex_);
    if (LivePointer job = live(id)) {
      JobView view{.record = job->record, .step = job->step, .steps = job->steps, .place = job->place};
      view.made = job->made, view.decoded = job->decoded, view.interrupted = job->interrupted;
      view.queue_place = queue_.place_of(id, seconds_now());
      if (job->steps && job->step_seconds > 0)
        view.seconds_left =
            job->step_seconds * double(job->steps) * std::max(0.0, double(job->record.request.count) - job->made);
      return view;
    }
  }
  if (auto record = history_.find(id)) return JobView{.record = *record};
  return {};
}

PreviewPointer Jobs::preview(const std::string& id) const {
  {
    std::lock_guard lock(mutex_);
    const LivePointer job = live(id);
    if (!job || !job->preview_elsewhere) return job ? job->preview : nullptr;
  }
  return history_.preview(id);
}

std::vector<JobView> Jobs::active(const std::string& client) const {
  std::vector<std::string> ids;
  {
    std::lock_guard lock(mutex_);
    for (auto& [id, job] : live_)
      if (!is_over(job->record.state) && job->record.client == client) ids.push_back(id);
  }
  std::vector<JobView> out;
  for (auto& id : ids)
    if (auto view = find(id)) out.push_back(std::move(*view));
  return out;
}

void Jobs::when_over(const std::string& id, std::function<void(const JobRecord&)> then) {
  fetch(id);
  std::optional<JobRecord> over;
  {
    std::lock_guard lock(mutex_);
    if (LivePointer job = live(id)) {
      if (!is_over(job->record.state)) return job->waiters.push_back(std::move(then));
      over = job->record;
    }
  }
  if (!over) over = history_.find(id);
  if (over) then(*over);
}

void Jobs::subscribe(const std::string& id, uint64_t after, std::function<bool(const JobEvent&)> to, bool previews) {
  fetch(id);
  {
    std::lock_guard lock(mutex_);
    if (LivePointer job = live(id)) {
      job->wants_previews = job->wants_previews || previews;
      for (auto& event : job->events)
        if (event.id > after && !to(event)) return;
      if (!is_over(job->record.state)) job->subscribers.push_back(std::move(to));
      return;
    }
  }
  const auto record = history_.find(id);
  if (record && is_over(record->state)) to({after + 1, name_of(record->state), {{"error", record->error}}});
}

void Jobs::follow(const std::string& client, uint64_t after, std::function<void(bool, uint64_t)> begin,
                  std::function<bool(const FeedEvent&)> to, bool previews) {
  std::lock_guard lock(mutex_);
  const bool complete = after >= feed_from_ && after <= feed_ids_;
  begin(complete, complete ? after : feed_ids_);
  if (complete)
    for (auto& e : feed_)
      if (e.id > after && e.client == client && !to(e)) return;
  if (previews)
    for (auto& [id, job] : live_)
      if (job->record.client == client) job->wants_previews = true;
  followers_.push_back({client, std::move(to), previews});
}

void Jobs::tell(Live& job, const char* name, json data, PreviewPointer preview) {
  JobEvent event{++job.event_ids, name, std::move(data), std::move(preview)};
  if (sharing_ && job.mine) tell_others(job, event);
  std::erase_if(job.subscribers, [&](auto& to) { return !to(event); });
  FeedEvent all{++feed_ids_, job.record.client, job.record.id, job.record.key, event};
  std::erase_if(followers_, [&](Follower& f) { return f.client == all.client && !f.to(all); });
  all.event.preview.reset();
  feed_.push_back(std::move(all));
  if (feed_.size() > kKeptFeed) feed_from_ = feed_.front().id, feed_.pop_front();
  // Of steps the last is enough to go on from, and of parts that were decoded.
  if (event.name == "step" || event.name == "decode")
    std::erase_if(job.events, [&](const JobEvent& e) { return e.name == event.name; });
  job.events.push_back(std::move(event));
  if (job.events.size() > kKeptEvents) job.events.pop_front();
}

void Jobs::add_picture(Live& job, const Picture& picture) {
  auto& pictures = job.record.pictures;
  const auto at = std::lower_bound(pictures.begin(), pictures.end(), picture.place,
                                   [](auto& p, int64_t place) { return p.place < place; });
  if (at != pictures.end() && at->place == picture.place) return;  // it is known
  pictures.insert(at, picture);
  tell(job, "picture",
       {{"id", picture.id},
        {"picture", picture.place},
        {"seed", picture.seed},
        {"width", picture.width},
        {"height", picture.height},
        {"frames", picture.frames}});
}

size_t Jobs::waiting() const {
  std::lock_guard lock(mutex_);
  return queue_.size();
}
size_t Jobs::running() const {
  std::lock_guard lock(mutex_);
  return running_;
}

void Jobs::unload_models() {
  {
    std::lock_guard lock(mutex_);
    unload_ = true;
  }
  wake_.notify_all();
}

void Jobs::load_model(const std::string& model) {
  {
    std::lock_guard lock(mutex_);
    to_load_ = model;
  }
  wake_.notify_all();
}

void Jobs::forget_old() {
  while (over_.size() > kKeptOver) live_.erase(over_.front()), over_.pop_front();
}

void Jobs::finish(LivePointer job, JobState state, const std::string& error) {
  JobRecord record;
  {
    std::lock_guard lock(mutex_);
    if (is_over(job->record.state)) return;
    record = job->record;
  }
  record.state = state, record.error = error, record.ended = seconds_now();
  if (!record_end(record)) {  // another server says what becomes of it
    std::lock_guard lock(mutex_);
    job->mine = job->lost = false, job->claimed_at = 0;
    poke_to_look();
    return;
  }
  tell_end(job, record);
}

// Once it is on the disk.
void Jobs::tell_end(const LivePointer& job, const JobRecord& record) {
  metrics_.count_job(name_of(record.state));
  nlohmann::ordered_json line{{"job", record.id},
                              {"state", name_of(record.state)},
                              {"model", record.request.model},
                              {"seconds", record.ended - (record.started ? record.started : record.ended)}};
  if (!record.error.empty()) line["error"] = record.error;
  log_.write("job", line);
  told_over(job, record);
}

void Jobs::told_over(const LivePointer& job, const JobRecord& record) {
  std::vector<std::function<void(const JobRecord&)>> waiters;
  {
    std::lock_guard lock(mutex_);
    if (is_over(job->record.state)) return;
    queue_.remove(record.id);
    if (job->is_served) queue_.count_served(record.client, record.seconds, seconds_now());
    job->record = record;
    job->preview.reset(), job->preview_elsewhere = false;
    tell(*job, name_of(record.state), record.error.empty() ? json::object() : json{{"error", record.error}});
    job->mine = job->is_served = false;
    job->subscribers.clear();
    waiters.swap(job->waiters);
    over_.push_back(record.id);
    forget_old();
  }
  for (auto& then : waiters) then(record);
}

// False where it is another server's. Told to nobody before it is on the disk.
bool Jobs::record_end(const JobRecord& record) {
  for (;;) {
    try {
      return history_.set_state(record) || !sharing_;
    } catch (const Unavailable&) {
      if (!pause()) return false;  // it runs until its lease ends
    } catch (const std::exception& e) {
      log_.write("history", {{"job", record.id}, {"error", e.what()}});
      return true;
    }
  }
}

bool Jobs::pause() {
  std::unique_lock lock(mutex_);
  if (stop_now_ || (stopping_ && seconds_now() > stop_at_)) return false;
  wake_.wait_for(lock, std::chrono::milliseconds(500), [&] { return stop_now_; });
  return !stop_now_;
}

}  // namespace sf::server
