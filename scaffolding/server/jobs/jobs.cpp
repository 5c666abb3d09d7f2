#include "scaffolding/server/jobs/jobs.h"

#include <algorithm>
#include <chrono>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/out_of_memory.h"
#include "scaffolding/diffusion/pipelines/image_processor.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/server/http/api_error.h"

namespace sf::server {

namespace {

constexpr size_t kKeptEvents = 512, kKeptOver = 256;  // of a job; jobs that are over and still told about

}  // namespace

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Guarded by the mutex of Jobs.
struct Jobs::Live {
  JobRecord record;
  int64_t step = 0, steps = 0, place = 0;
  double step_seconds = 0;  // of the last ones, on average
  std::shared_ptr<const std::string> preview;
  std::deque<JobEvent> events;
  uint64_t event_ids = 0;
  std::vector<std::function<bool(const JobEvent&)>> subscribers;
  std::vector<std::function<void(const JobRecord&)>> waiters;
  bool cancelled = false;
  double waiting_since = 0;
};

// A job that runs: the worker's alone.
struct Jobs::Active {
  LivePointer job;
  Priority priority;
  std::shared_ptr<diffusion::DiffusionPipeline> pipeline;
  std::unique_ptr<PictureRun> run;
  std::vector<diffusion::LoraTag> loras;
  int64_t place = 0;
  double seconds = 0;
};

double JobView::progress() const {
  if (record.state == JobState::Done) return 1;
  if (steps == 0 || record.request.count == 0) return 0;
  return std::min(1.0, (double(place) + double(step) / double(steps)) / double(record.request.count));
}

Jobs::Jobs(History& history, ModelShelf& shelf, Samplers samplers, JobSettings settings, Log& log, Metrics& metrics)
    : history_(history),
      shelf_(shelf),
      samplers_(std::move(samplers)),
      settings_(settings),
      log_(log),
      metrics_(metrics),
      queue_(settings.queue) {}

Jobs::~Jobs() { stop(0); }

void Jobs::take_up(JobRecord record) {
  auto job = std::make_shared<Live>();
  job->record = std::move(record);
  job->waiting_since = seconds_now();
  queue_.push(job->record.id, job->record.client, job->record.priority, job->waiting_since);
  tell(*job, "queued", {{"created", job->record.created}});
  live_[job->record.id] = job;
}

void Jobs::start() {
  const auto waiting = history_.recover();
  {
    std::lock_guard lock(mutex_);
    for (auto& record : waiting) take_up(record);
  }
  if (!waiting.empty()) log_.write("recovered", {{"jobs", waiting.size()}});
  history_.clean(settings_.retention);
  worker_ = std::thread([this] { work(); });
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
    if (auto there = find(added.job.id)) return {*there, false};
    return {JobView{.record = added.job}, false};
  }
  const std::string id = added.job.id;
  {
    std::lock_guard lock(mutex_);
    take_up(std::move(added.job));
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

size_t Jobs::cancel_all(const std::string& client) {
  size_t n = 0;
  for (auto& job : active(client)) n += cancel(job.record.id);
  return n;
}

bool Jobs::set_priority(const std::string& id, Priority priority) {
  {
    std::lock_guard lock(mutex_);
    LivePointer job = live(id);
    if (!job || job->record.state != JobState::Waiting) return false;
    job->record.priority = priority;
    queue_.set_priority(id, priority);
  }
  history_.set_priority(id, priority);
  wake_.notify_all();
  return true;
}

std::optional<JobView> Jobs::find(const std::string& id) const {
  {
    std::lock_guard lock(mutex_);
    if (LivePointer job = live(id)) {
      JobView view{.record = job->record, .step = job->step, .steps = job->steps, .place = job->place};
      view.queue_place = queue_.place_of(id, seconds_now());
      view.preview = job->preview;
      if (job->steps && job->step_seconds > 0)
        view.seconds_left =
            job->step_seconds * double(job->steps * (job->record.request.count - job->place) - job->step);
      return view;
    }
  }
  if (auto record = history_.find(id)) return JobView{.record = *record};
  return {};
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

void Jobs::subscribe(const std::string& id, uint64_t after, std::function<bool(const JobEvent&)> to) {
  {
    std::lock_guard lock(mutex_);
    if (LivePointer job = live(id)) {
      for (auto& event : job->events)
        if (event.id > after && !to(event)) return;
      if (!is_over(job->record.state)) job->subscribers.push_back(std::move(to));
      return;
    }
  }
  const auto record = history_.find(id);
  if (record && is_over(record->state)) to({after + 1, name_of(record->state), {{"error", record->error}}});
}

void Jobs::tell(Live& job, const char* name, json data, std::shared_ptr<const std::string> preview) {
  JobEvent event{++job.event_ids, name, std::move(data), std::move(preview)};
  std::erase_if(job.subscribers, [&](auto& to) { return !to(event); });
  // Of steps the last is enough to go on from.
  if (event.name == "step") std::erase_if(job.events, [](const JobEvent& e) { return e.name == "step"; });
  job.events.push_back(std::move(event));
  if (job.events.size() > kKeptEvents) job.events.pop_front();
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
  try {
    history_.set_state(record);
  } catch (const std::exception& e) {
    log_.write("history", {{"job", record.id}, {"error", e.what()}});
  }
  std::vector<std::function<void(const JobRecord&)>> waiters;
  {
    std::lock_guard lock(mutex_);
    job->record = record;
    job->preview.reset();
    tell(*job, name_of(state), error.empty() ? json::object() : json{{"error", error}});
    job->subscribers.clear();
    waiters.swap(job->waiters);
    over_.push_back(record.id);
    forget_old();
  }
  metrics_.count_job(name_of(state));
  nlohmann::ordered_json line{{"job", record.id},
                              {"state", name_of(state)},
                              {"model", record.request.model},
                              {"seconds", record.ended - (record.started ? record.started : record.ended)}};
  if (!error.empty()) line["error"] = error;
  log_.write("job", line);
  for (auto& then : waiters) then(record);
}

// ---- the worker

void Jobs::begin(LivePointer job) {
  JobRecord record;
  {
    std::lock_guard lock(mutex_);
    job->record.state = JobState::Running;
    job->record.started = seconds_now();
    record = job->record;
    ++running_;
    tell(*job, "started", {{"model", record.request.model}});
  }
  history_.set_state(record);
  active_.push_back({.job = job, .priority = record.priority, .pipeline = nullptr, .run = nullptr, .loras = {}});
  Active& a = active_.back();
  a.loras = record.request.loras;
  for (auto& tag : diffusion::take_lora_tags(record.request.prompt).tags) a.loras.push_back(tag);
}

// false where every picture is there.
bool Jobs::begin_picture(Active& a) {
  const JobRecord& record = a.job->record;  // which the worker alone changes while it runs
  while (std::any_of(record.pictures.begin(), record.pictures.end(), [&](auto& p) { return p.place == a.place; }))
    ++a.place;
  if (a.place >= record.request.count) return false;
  for (;;) {
    try {
      a.pipeline = shelf_.load(record.request.model, record.request.task);
      shelf_.use_loras(record.request.model, a.loras);
      a.run = std::make_unique<PictureRun>(*a.pipeline, record.request, a.place, history_, samplers_);
      break;
    } catch (const OutOfMemory&) {
      a.run.reset(), a.pipeline.reset();
      if (!shelf_.unload_oldest()) throw;
    }
  }
  learn_colours(a);
  std::lock_guard lock(mutex_);
  a.job->place = a.place, a.job->step = 0, a.job->steps = a.run->steps();
  return true;
}

void Jobs::step(Active& a) {
  if (shelf_.is_loaded(a.job->record.request.model)) shelf_.use_loras(a.job->record.request.model, a.loras);
  const auto begin = std::chrono::steady_clock::now();
  a.run->step();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  metrics_.count_step(seconds);
  a.seconds += seconds;
  auto preview = preview_of(a);
  std::lock_guard lock(mutex_);
  Live& job = *a.job;
  job.step = a.run->at(), job.steps = a.run->steps();
  job.step_seconds = job.step_seconds > 0 ? 0.7 * job.step_seconds + 0.3 * seconds : seconds;
  if (preview) job.preview = preview;
  tell(job, "step", {{"picture", a.place}, {"step", job.step}, {"steps", job.steps}}, preview);
}

std::shared_ptr<const std::string> Jobs::preview_of(const Active& a) const {
  if (!settings_.previews) return nullptr;
  const auto at = colours_.find(a.job->record.request.model);
  if (at == colours_.end()) return nullptr;
  const auto picture = at->second->picture(a.run->latents());
  if (!picture) return nullptr;
  return std::make_shared<const std::string>(io::encode_image(*picture, io::ImageFormat::PNG, {.compression = 1}));
}

// What this autoencoder makes of latents: of coarse noise before the first picture, of pictures from then on.
void Jobs::learn_colours(const Active& a) {
  auto& colours = colours_[a.job->record.request.model];
  if (colours || !settings_.previews) return;
  colours = std::make_shared<LatentColours>();
  const Tensor& like = a.run->latents();
  if (like.ndim() != 4 || !a.pipeline->the_autoencoder()) return;
  autograd::NoGrad no_grad;
  auto generator = make_generator();
  generator->manual_seed(0);
  const Tensor noise = diffusion::randn_tensor({1, like.size(1), 4, 4}, {generator});
  const int64_t c = like.size(1);
  const Tensor latents = noise.reshape({1, c, 4, 1, 4, 1}).expand({1, c, 4, 4, 4, 4}).reshape({1, c, 16, 16});
  const Tensor values = a.pipeline->decoded(latents.to(like.dtype()).to(like.device()));
  if (values.ndim() != 4) return;
  const Tensor images = clamp(values.to(kFloat32) * 0.5 + 0.5, 0.0, 1.0);
  colours->learn(latents, diffusion::VaeImageProcessor::frames(images).select(0, 0));
}

void Jobs::finish_picture(Active& a) {
  const JobRecord& record = a.job->record;
  const PictureRun::Made made = a.run->finish(shelf_.dtype());
  if (settings_.previews) colours_[record.request.model]->learn(made.latents, made.decoded);
  Picture picture{.place = a.place,
                  .seed = record.request.seed + a.place,
                  .width = made.frame.size(1),
                  .height = made.frame.size(0)};
  picture = history_.add_picture(record, picture, made.png);
  metrics_.count_picture();
  a.run.reset();
  std::lock_guard lock(mutex_);
  a.job->record.pictures.push_back(picture);
  tell(*a.job, "picture",
       {{"id", picture.id},
        {"picture", picture.place},
        {"seed", picture.seed},
        {"width", picture.width},
        {"height", picture.height}});
  ++a.place;
}

void Jobs::fail_overdue(double now) {
  std::vector<LivePointer> overdue;
  {
    std::lock_guard lock(mutex_);
    for (auto& [id, job] : live_)
      if (job->record.state == JobState::Waiting && now - job->waiting_since > settings_.most_waiting &&
          queue_.remove(id))
        overdue.push_back(job);
  }
  for (auto& job : overdue) finish(job, JobState::Failed, "the job waited for longer than this server lets it");
}

// Those that were overtaken; the one that runs is asked between its steps.
void Jobs::drop_cancelled() {
  if (active_.size() < 2) return;
  for (auto a = active_.begin(), last = std::prev(active_.end()); a != last;) {
    LivePointer job = a->job;
    {
      std::lock_guard lock(mutex_);
      if (!job->cancelled) {
        ++a;
        continue;
      }
      --running_;
    }
    a = active_.erase(a);
    finish(job, JobState::Cancelled, "");
  }
}

void Jobs::work() {
  double looked = 0;
  for (;;) {
    LivePointer next;
    {
      std::unique_lock lock(mutex_);
      auto ready = [&] {
        return stop_now_ || stopping_ || (unload_ && active_.empty()) || queue_.size() > 0 || !active_.empty();
      };
      wake_.wait_for(lock, std::chrono::seconds(5), ready);
      const double now = seconds_now();
      if (unload_ && active_.empty()) unload_ = false, shelf_.unload_all(), colours_.clear();
      if (stopping_ && (stop_now_ || active_.empty() || now > stop_at_)) break;
      // The next job, where nothing runs or it is more urgent than what does.
      const auto best = stopping_ ? std::nullopt : queue_.best(now);
      if (best && (active_.empty() || (best->priority > active_.back().priority))) {
        queue_.remove(best->id);
        next = live(best->id);
      }
    }
    const double now = seconds_now();
    if (now - looked > 5) looked = now, fail_overdue(now);
    drop_cancelled();
    if (next) {
      try {
        begin(next);
      } catch (const std::exception& e) {
        finish(next, JobState::Failed, e.what());
        continue;
      }
    }
    if (active_.empty()) continue;
    Active& a = active_.back();
    JobState end = JobState::Done;
    std::string error;
    bool over = false, cancelled;
    {
      std::lock_guard lock(mutex_);
      cancelled = a.job->cancelled;
    }
    try {
      if (cancelled) over = true, end = JobState::Cancelled;
      else if (!a.run) over = !begin_picture(a);
      else if (!a.run->done()) step(a);
      else finish_picture(a);
      if (!over && now - a.job->record.started > settings_.most_running)
        over = true, end = JobState::Failed, error = "the job ran for longer than this server lets it";
    } catch (const std::exception& e) {
      over = true, end = JobState::Failed, error = e.what();
    }
    if (!over) continue;
    LivePointer job = a.job;
    {
      std::lock_guard lock(mutex_);
      queue_.count_served(job->record.client, a.seconds, now);
      --running_;
    }
    active_.pop_back();
    finish(job, end, error);
    if (end == JobState::Done &&
        (settings_.retention.pictures || settings_.retention.bytes || settings_.retention.days))
      history_.clean(settings_.retention);
  }
  // What still runs waits for the next start: it was stopped, which is no crash.
  for (auto& a : active_) {
    JobRecord record;
    std::vector<std::function<void(const JobRecord&)>> waiters;
    {
      std::lock_guard lock(mutex_);
      a.job->record.state = JobState::Waiting, a.job->record.started = 0;
      record = a.job->record;
      waiters.swap(a.job->waiters);
    }
    history_.set_state(record);
    for (auto& then : waiters) then(record);
  }
  active_.clear();
  std::vector<std::pair<JobRecord, std::function<void(const JobRecord&)>>> left;
  {
    std::lock_guard lock(mutex_);
    running_ = 0;
    for (auto& [id, job] : live_)
      for (auto& then : job->waiters) left.emplace_back(job->record, std::move(then));
    for (auto& [id, job] : live_) job->waiters.clear(), job->subscribers.clear();
  }
  for (auto& [record, then] : left) then(record);  // still waiting: the client is told to come again
}

}  // namespace sf::server
