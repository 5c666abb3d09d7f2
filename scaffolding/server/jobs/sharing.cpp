// Several servers of one history. The database says whose a job is; this thread keeps this server's leases, takes up
// what others accepted, and passes on what happens to jobs. Messages only make it quick: it looks for itself every
// second, so that one that is lost costs as much.
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "scaffolding/core/error.h"
#include "scaffolding/io/json.h"
#include "scaffolding/server/jobs/live_jobs.h"
#include "scaffolding/server/unavailable.h"

namespace sf::server {

namespace {

constexpr double kLook = 1, kLookAgain = 0.1;                 // seconds; the second at most, where something happened
constexpr double kParts = 0.2, kPreviews = 0.5;               // seconds between messages of steps, and of previews
constexpr auto kTogether = std::chrono::milliseconds(2);      // what happens within it is one message of many
constexpr size_t kMostMessages = 4096, kMessageBytes = 7000;  // of NOTIFY's 8000

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void Jobs::poke() {
  if (!sharing_) return;
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = write(sharing_->poke, &one, sizeof one);  // full: it is awake
}

void Jobs::poke_to_look() {
  if (sharing_) sharing_->wants_look = true;
  poke();
}

// Before it begins. False where another server has it, or the history does not answer; then it waits here again.
bool Jobs::claim(const LivePointer& job) {
  JobRecord record;
  {
    std::lock_guard lock(mutex_);
    record = job->record;
  }
  record.state = JobState::Running, record.started = seconds_now();
  try {
    const bool ours = history_.claim(record);
    std::lock_guard lock(mutex_);
    if (ours) {
      job->record.crashes = record.crashes, job->record.pictures = record.pictures;
      job->claimed_at = job->preview_told = monotonic_seconds();
    } else {
      job->mine = false;
      poke_to_look();
    }
    return ours;
  } catch (const std::exception& e) {
    if (!dynamic_cast<const Unavailable*>(&e)) log_.write("history", {{"job", record.id}, {"error", e.what()}});
    std::lock_guard lock(mutex_);
    job->mine = false;
    queue_.push(record.id, record.client, record.priority, job->waiting_since);
  }
  pause();
  return false;
}

bool Jobs::cancel_shared(const std::string& id) {
  const JobState was = history_.ask_to_cancel(id);
  if (is_over(was)) return false;
  {
    std::lock_guard lock(mutex_);
    if (LivePointer job = live(id); job && job->mine && was == JobState::Running) job->cancelled = true;
  }
  wake_.notify_all();
  if (was == JobState::Waiting) mirror_over(id);
  return true;
}

void Jobs::cancel_left(const std::string& id) {
  if (!sharing_) {
    cancel(id);
    return;
  }
  std::lock_guard lock(mutex_);
  sharing_->to_cancel.push_back(id);
  poke();
}

void Jobs::tell_others(Live& job, const JobEvent& event) {
  auto& outbox = sharing_->outbox;
  Sharing::Message m{.job = job.record.id, .name = event.name, .text = {}, .preview = event.preview};
  if (!is_over(job.record.state))
    m.text = {{"data", event.data}, {"step", job.step}, {"steps", job.steps},
              {"place", job.place}, {"made", job.made}, {"step_seconds", job.step_seconds}};
  // Of short steps the last ones are enough: each message is a transaction, and wakes all servers.
  const double now = monotonic_seconds();
  if (m.preview && now - job.preview_told < kPreviews) m.preview.reset();
  if (m.preview) job.preview_told = now;
  const bool is_part = event.name == "step" || event.name == "decode", is_end = is_over(job.record.state);
  // Parts take the place of the last ones. Of a job that is over the others read its pictures with its end.
  std::erase_if(outbox, [&](auto& o) {
    if (o.job != m.job || !(is_end ? o.name != "started" : is_part && o.name == m.name)) return false;
    if (!is_end && !m.preview) m.preview = o.preview;
    return true;
  });
  if (outbox.size() < kMostMessages) outbox.push_back(std::move(m));
  if (is_part && now - sharing_->poked < kParts) return;
  sharing_->poked = now;
  poke();
}

void Jobs::send() {
  std::vector<Sharing::Message> messages;
  {
    std::lock_guard lock(mutex_);
    messages.swap(sharing_->outbox);
  }
  std::vector<std::string> texts;
  for (auto& m : messages) {
    if (m.preview) history_.save_preview(m.job, m.preview->png());
    json text = m.text;
    text["from"] = history_.server(), text["what"] = m.name, text["job"] = m.job, text["preview"] = bool(m.preview);
    texts.push_back(io::tolerant_json_text(text));
    if (texts.back().size() > kMessageBytes) texts.pop_back();
  }
  history_.notify(texts);
}

void Jobs::mirror_started(Live& job) {
  if (job.record.state != JobState::Waiting) return;
  queue_.remove(job.record.id);
  job.record.state = JobState::Running;
  if (job.record.started == 0) job.record.started = seconds_now();
  if (!job.is_served) job.is_served = true, queue_.begin_serving(job.record.client);
  tell(job, "started", {{"model", job.record.request.model}});
}

void Jobs::mirror_waiting(Live& job) {
  if (job.record.state == JobState::Running) {
    job.record.state = JobState::Waiting, job.record.started = 0;
    job.step = job.steps = 0, job.made = double(job.record.pictures.size()), job.preview.reset();
    if (job.is_served) job.is_served = false, queue_.count_served(job.record.client, 0, seconds_now());
  }
  if (queue_.has(job.record.id)) return;
  queue_.push(job.record.id, job.record.client, job.record.priority, job.waiting_since);
  has_news_ = true;
}

void Jobs::mirror_over(const std::string& id) {
  LivePointer job;
  {
    std::lock_guard lock(mutex_);
    job = live(id);
    if (!job || is_over(job->record.state) || (job->mine && job->claimed_at > 0)) return;
  }
  if (auto record = history_.find(id)) {
    if (!is_over(record->state)) return;
    {
      std::lock_guard lock(mutex_);
      for (auto& picture : record->pictures) add_picture(*job, picture);
    }
    told_over(job, *record);
    return;
  }
  JobRecord gone = job->record;  // retention has removed it already
  gone.state = JobState::Cancelled;
  told_over(job, gone);
}

// A job that another server has just accepted, before it was looked for.
void Jobs::fetch(const std::string& id) {
  if (!sharing_) return;
  {
    std::lock_guard lock(mutex_);
    if (live(id)) return;
  }
  auto record = history_.find(id);
  if (!record || is_over(record->state)) return;
  std::lock_guard lock(mutex_);
  if (!live(id)) take_up(std::move(*record)), has_news_ = true;
  wake_.notify_all();
}

bool Jobs::is_watched(const std::string& id) const {
  std::lock_guard lock(mutex_);
  const LivePointer job = live(id);
  return job && job->wants_previews;
}

// Whoever may write to the database may send anything: what does not fit is passed over.
void Jobs::hear(const std::string& message) {
  try {
    const json m = io::parse_json(message);
    if (m.at("from") == history_.server()) return;
    const std::string name = m.at("what"), id = m.at("job");
    if (name == "done" || name == "failed" || name == "cancelled") return mirror_over(id);
    const char* event = nullptr;
    for (const char* known : {"started", "step", "decode", "picture"})
      if (name == known) event = known;
    if (!event) return;
    fetch(id);
    std::optional<JobRecord> record;
    if (name == "picture") record = history_.find(id);
    const bool has_preview = m.at("preview");
    const auto preview = has_preview && is_watched(id) ? history_.preview(id) : nullptr;
    std::lock_guard lock(mutex_);
    const LivePointer job = live(id);
    if (!job || job->mine || is_over(job->record.state)) return;
    mirror_started(*job);
    if (name == "started") return;
    job->step = m.at("step"), job->steps = m.at("steps"), job->place = m.at("place");
    job->made = m.at("made"), job->step_seconds = m.at("step_seconds");
    if (has_preview) job->preview = preview, job->preview_elsewhere = !preview;
    if (name != "picture") tell(*job, event, m.at("data"), preview);
    else if (record)
      for (auto& picture : record->pictures) add_picture(*job, picture);
  } catch (const json::exception&) {}
}

// At all jobs that wait or run anywhere.
void Jobs::look() {
  const double began = monotonic_seconds();
  const auto rows = history_.active();
  std::vector<std::string> unknown, gone;
  bool news = false;
  {
    std::lock_guard lock(mutex_);
    std::set<std::string> there;
    for (auto& row : rows) {
      there.insert(row.id);
      const LivePointer job = live(row.id);
      if (!job) {
        unknown.push_back(row.id);
        continue;
      }
      if (is_over(job->record.state)) continue;  // since then
      const bool ours = row.owner == history_.server();
      if (job->mine) {
        if (ours && row.cancelled) job->cancelled = news = true;
        if (!ours && job->claimed_at > 0 && job->claimed_at < began) job->lost = news = true;
        continue;
      }
      if (row.priority != job->record.priority)
        job->record.priority = row.priority, queue_.set_priority(row.id, row.priority), news = true;
      if (row.state == JobState::Waiting) mirror_waiting(*job), news = true;
      else if (!ours) mirror_started(*job);
    }
    for (auto& [id, job] : live_) {
      if (is_over(job->record.state) || there.count(id)) continue;
      if (!job->mine) gone.push_back(id);
      else if (job->claimed_at > 0 && job->claimed_at < began) job->lost = news = true;
    }
  }
  for (auto& id : unknown) fetch(id);
  for (auto& id : gone) mirror_over(id);
  if (news) wake_.notify_all();
}

void Jobs::share() {
  const double lease = history_.lease();
  // Others could not keep their leases either while the database was away: they have one more from when it came back.
  double failed = monotonic_seconds(), looked = 0, kept = 0;
  bool answers = true, changed = false;
  while (!sharing_->is_over) {
    try {
      const auto messages = history_.wait(changed ? kLookAgain : std::min(0.5, lease / 4), sharing_->poke);
      uint64_t pokes = 0;
      if (read(sharing_->poke, &pokes, sizeof pokes) > 0) std::this_thread::sleep_for(kTogether);
      send();
      if (sharing_->wants_look.exchange(false)) changed = true;
      for (auto& m : messages) {
        if (m.find("\"change\"") != m.npos) changed = true;
        else hear(m);
      }
      std::vector<std::string> left;
      {
        std::lock_guard lock(mutex_);
        left = sharing_->to_cancel;
      }
      for (auto& id : left) {
        cancel_shared(id);
        std::lock_guard lock(mutex_);
        std::erase(sharing_->to_cancel, id);
      }
      const double now = monotonic_seconds();
      if (now - kept >= lease / 3) {
        if (const int64_t jobs = history_.keep_leases(now - failed > lease)) {
          log_.write("taken over", {{"jobs", jobs}});
          std::lock_guard lock(mutex_);
          sharing_->outbox.push_back({.job = "", .name = "change", .text = {}, .preview = nullptr});
          changed = true;
        }
        kept = now;
      }
      if (now - looked >= (changed ? kLookAgain : kLook)) look(), looked = now, changed = false;
      if (!answers) answers = true, log_.write("database", {{"answers", true}});
    } catch (const std::exception& e) {
      failed = monotonic_seconds();
      if (answers) answers = false, log_.write("database", {{"answers", false}, {"error", e.what()}});
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  }
  try {
    send();
  } catch (const std::exception&) {}  // the others look for themselves
}

}  // namespace sf::server
