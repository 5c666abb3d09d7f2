// What several servers of one history tell each other by its database: whose a job is, and what became of it.
#include <chrono>
#include <mutex>

#include "scaffolding/core/error.h"
#include "scaffolding/io/json.h"
#include "scaffolding/server/jobs/history.h"
#include "scaffolding/server/jobs/history_tables.h"

namespace sf::server {

namespace {

constexpr const char* kTwice = "the server went down twice while this job ran, so that it is not begun again";

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

// What a crash of the machine forgets waits again, as it was accepted.
bool History::claim(JobRecord& job) {
  std::lock_guard lock(mutex_);
  Database::Transaction all(*db_, Database::OnDisk::Soon);
  const bool ours = is_shared() ? claim_row(job) : write_state(job);
  all.commit();
  return ours;
}

bool History::claim_row(JobRecord& job) {
  const std::string clock = clock_sql(db_->dialect());
  // One that is ours already was claimed by a statement whose answer was lost.
  Statement s = db_->prepare(
      "UPDATE jobs SET state = 'running', started = ?1, owner = ?2, lease = " + clock +
      " + ?3 WHERE id = (SELECT id FROM jobs WHERE id = ?4 AND (state = 'waiting' OR (state = 'running' AND owner = "
      "?2)) FOR UPDATE SKIP LOCKED) RETURNING crashes, (SELECT count(*) FROM pictures WHERE job = ?4)");
  if (!s.bind(1, job.started).bind(2, server_).bind(3, lease_).bind(4, job.id).step()) return false;
  job.crashes = s.whole(0);
  job.pictures.clear();
  if (s.whole(1) > 0) job.pictures = pictures_of(job.id);  // of a server that went down
  return true;
}

int64_t History::keep_leases(bool take_over) {
  std::lock_guard lock(mutex_);
  const std::string clock = clock_sql(db_->dialect());
  db_->prepare("UPDATE jobs SET lease = " + clock + " + ? WHERE state = 'running' AND owner = ?")
      .bind(1, lease_)
      .bind(2, server_)
      .run();
  if (!take_over) return 0;
  db_->prepare(
         "UPDATE jobs SET crashes = crashes + 1, owner = '', "
         "state = CASE WHEN cancelled <> 0 THEN 'cancelled' WHEN crashes >= 1 THEN 'failed' ELSE 'waiting' END, "
         "error = CASE WHEN cancelled = 0 AND crashes >= 1 THEN ?1 ELSE '' END, "
         "started = CASE WHEN cancelled = 0 AND crashes < 1 THEN 0 ELSE started END, "
         "ended = CASE WHEN cancelled = 0 AND crashes < 1 THEN 0 ELSE ?2 END "
         "WHERE id IN (SELECT id FROM jobs WHERE state = 'running' AND lease < " +
         clock + " FOR UPDATE SKIP LOCKED)")
      .bind(1, kTwice)
      .bind(2, seconds_since_1970())
      .run();
  return db_->changes();
}

std::vector<History::Sketch> History::active() const {
  std::lock_guard lock(mutex_);
  Statement s = db_->prepare(
      "SELECT id, owner, state, priority, cancelled FROM jobs WHERE state IN ('waiting', 'running') ORDER BY id");
  std::vector<Sketch> out;
  while (s.step())
    out.push_back({.id = s.text(0),
                   .owner = s.text(1),
                   .state = job_state(s.text(2)),
                   .priority = Priority(std::clamp<int64_t>(s.whole(3), 0, 2)),
                   .cancelled = s.whole(4) != 0});
  return out;
}

JobState History::ask_to_cancel(const std::string& id) {
  std::lock_guard lock(mutex_);
  Database::Transaction all(*db_);
  Statement s = db_->prepare("SELECT state FROM jobs WHERE id = ? FOR UPDATE");
  const JobState state = s.bind(1, id).step() ? job_state(s.text(0)) : JobState::Failed;
  if (is_over(state)) return state;
  if (state == JobState::Waiting)
    db_->prepare("UPDATE jobs SET state = 'cancelled', ended = ? WHERE id = ?")
        .bind(1, seconds_since_1970())
        .bind(2, id)
        .run();
  else db_->prepare("UPDATE jobs SET cancelled = 1 WHERE id = ?").bind(1, id).run();
  db_->notify(io::json_text(json{{"from", server_}, {"what", "change"}}));
  all.commit();
  return state;
}

void History::save_preview(const std::string& job, const std::string& png) {
  std::lock_guard lock(mutex_);
  db_->prepare("INSERT INTO previews (job, png) VALUES (?, ?) ON CONFLICT (job) DO UPDATE SET png = excluded.png")
      .bind(1, job)
      .bind_bytes(2, png)
      .run();
}

PreviewPointer History::preview(const std::string& job) const {
  std::lock_guard lock(mutex_);
  Statement s = db_->prepare("SELECT png FROM previews WHERE job = ?");
  if (!s.bind(1, job).step()) return nullptr;
  return std::make_shared<const Preview>(std::string(s.bytes(0)));
}

void History::notify(const std::vector<std::string>& messages) {
  if (messages.empty()) return;
  std::lock_guard lock(mutex_);
  Database::Transaction all(*db_, Database::OnDisk::Soon);  // what is forgotten the others see for themselves
  for (auto& m : messages) db_->notify(m);
  all.commit();
}

std::vector<std::string> History::wait(double seconds, int wake) { return listener_->wait(seconds, wake); }

}  // namespace sf::server
