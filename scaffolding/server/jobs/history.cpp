#include "scaffolding/server/jobs/history.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "scaffolding/core/error.h"
#include "scaffolding/io/file.h"

namespace sf::server {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kVersion = 2;  // of the tables

constexpr const char* kTables = R"(
CREATE TABLE jobs (
  id TEXT PRIMARY KEY, client TEXT NOT NULL, key TEXT, request TEXT NOT NULL, prompt TEXT NOT NULL,
  priority INTEGER NOT NULL, state TEXT NOT NULL, created REAL NOT NULL, started REAL NOT NULL, ended REAL NOT NULL,
  crashes INTEGER NOT NULL, error TEXT NOT NULL);
CREATE UNIQUE INDEX jobs_by_key ON jobs (client, key) WHERE key IS NOT NULL;
CREATE INDEX jobs_by_state ON jobs (state);
CREATE TABLE pictures (
  id TEXT PRIMARY KEY, job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE, place INTEGER NOT NULL,
  file TEXT NOT NULL, seed INTEGER NOT NULL, width INTEGER NOT NULL, height INTEGER NOT NULL, bytes INTEGER NOT NULL,
  favourite INTEGER NOT NULL DEFAULT 0, frames INTEGER NOT NULL DEFAULT 1, UNIQUE (job, place));
CREATE VIRTUAL TABLE words USING fts5 (prompt, content='jobs', content_rowid='rowid');
CREATE TRIGGER words_in AFTER INSERT ON jobs BEGIN
  INSERT INTO words (rowid, prompt) VALUES (new.rowid, new.prompt); END;
CREATE TRIGGER words_out AFTER DELETE ON jobs BEGIN
  INSERT INTO words (words, rowid, prompt) VALUES ('delete', old.rowid, old.prompt); END;
PRAGMA user_version = 2;
)";
constexpr const char* kFromVersion1 = R"(
ALTER TABLE pictures ADD COLUMN frames INTEGER NOT NULL DEFAULT 1;
PRAGMA user_version = 2;
)";

constexpr const char* kColumns =
    "jobs.id, jobs.client, jobs.key, jobs.request, jobs.priority, jobs.state, jobs.created, jobs.started, jobs.ended, "
    "jobs.crashes, jobs.error";

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

Picture read_picture(Statement& row) {  // by kPictureColumns
  return {.id = row.text(0),
          .file = row.text(1),
          .place = row.whole(2),
          .seed = row.whole(3),
          .width = row.whole(4),
          .height = row.whole(5),
          .bytes = row.whole(6),
          .frames = row.whole(8),
          .favourite = row.whole(7) != 0};
}
constexpr const char* kPictureColumns =
    "pictures.id, pictures.file, pictures.place, pictures.seed, pictures.width, pictures.height, pictures.bytes, "
    "pictures.favourite, pictures.frames";

// Words as FTS5 takes them, each in quotes: what a stranger writes is no expression.
std::string quoted_words(const std::string& text) {
  std::string out, word;
  std::istringstream in(text);
  while (in >> word) {
    std::string quoted = "\"";
    for (char c : word) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    out += (out.empty() ? "" : " ") + quoted + "\"";
  }
  return out;
}

}  // namespace

History::History(const std::string& folder) : folder_(folder) {
  std::error_code error;
  for (const char* part : {"", "/pictures", "/inputs"}) {
    fs::create_directories(folder + part, error);
    SF_CHECK_AS(RuntimeError, !error, "--data: cannot make '", folder + part, "': ", error.message());
  }
  lock_ = open((folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  SF_CHECK_AS(RuntimeError, lock_ >= 0, "--data: cannot write in '", folder, "': ", std::strerror(errno));
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    close(lock_);
    fail<RuntimeError>("--data: another server has '", folder, "'");
  }
  try {
    db_ = std::make_unique<Database>(folder + "/history.sqlite");
    Statement version = db_->prepare("PRAGMA user_version");
    version.step();
    const int64_t found = version.whole(0);
    SF_CHECK_AS(RuntimeError, found <= kVersion, "--data: '", folder, "' was written by a later version");
    version.run();
    if (found < kVersion) {
      Database::Transaction all(*db_);
      db_->execute(found == 0 ? kTables : kFromVersion1);
      all.commit();
    }
  } catch (...) {
    close(lock_);
    throw;
  }
}

History::~History() {
  db_.reset();
  close(lock_);
}

std::string History::new_id() {
  static constexpr char kLetters[] = "0123456789abcdefghijklmnopqrstuv";
  const auto ms = uint64_t(
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count());
  std::string out;
  for (int shift = 45; shift >= 0; shift -= 5) out += kLetters[(ms >> shift) & 31];
  std::random_device random;
  for (int i = 0; i < 10; ++i) out += kLetters[random() & 31];
  return out;
}

History::Added History::add(JobRecord job) {
  std::lock_guard lock(mutex_);
  Database::Transaction all(*db_);
  if (!job.key.empty()) {
    Statement known = db_->prepare(std::string("SELECT ") + kColumns + " FROM jobs WHERE client = ? AND key = ?");
    if (known.bind(1, job.client).bind(2, job.key).step()) {
      JobRecord there = read(known);
      json a = to_json(there.request), b = to_json(job.request);
      for (json* r : {&a, &b})
        for (const char* drawn : {"seed", "image", "mask"}) r->erase(drawn);  // which differ where they were not given
      SF_CHECK(a == b, "Idempotency-Key: '", job.key, "' was used for another request");
      known.run();
      return {std::move(there), false};
    }
  }
  Statement in = db_->prepare("INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  in.bind(1, job.id).bind(2, job.client);
  if (job.key.empty()) in.bind_null(3);
  else in.bind(3, job.key);
  in.bind(4, to_json(job.request).dump()).bind(5, job.request.prompt).bind(6, int64_t(job.priority));
  in.bind(7, name_of(job.state)).bind(8, job.created).bind(9, job.started).bind(10, job.ended);
  in.bind(11, job.crashes).bind(12, job.error).run();
  all.commit();
  return {std::move(job), true};
}

void History::set_state(const JobRecord& job) {
  std::lock_guard lock(mutex_);
  Statement s = db_->prepare("UPDATE jobs SET state = ?, started = ?, ended = ?, error = ?, crashes = ? WHERE id = ?");
  s.bind(1, name_of(job.state)).bind(2, job.started).bind(3, job.ended).bind(4, job.error).bind(5, job.crashes);
  s.bind(6, job.id).run();
}

void History::set_priority(const std::string& id, Priority priority) {
  std::lock_guard lock(mutex_);
  db_->prepare("UPDATE jobs SET priority = ? WHERE id = ?").bind(1, int64_t(priority)).bind(2, id).run();
}

Picture History::add_picture(const JobRecord& job, Picture picture, const std::string& bytes,
                             const std::string& suffix) {
  picture.id = job.id + "-" + std::to_string(picture.place);
  picture.file = picture.id + suffix;
  picture.bytes = int64_t(bytes.size());
  io::ReplacingFile file(folder_ + "/pictures/" + picture.file);
  file.write(bytes.data(), bytes.size());
  file.commit();
  std::lock_guard lock(mutex_);
  Statement in = db_->prepare("INSERT OR REPLACE INTO pictures VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?)");
  in.bind(1, picture.id).bind(2, job.id).bind(3, picture.place).bind(4, picture.file).bind(5, picture.seed);
  in.bind(6, picture.width).bind(7, picture.height).bind(8, picture.bytes).bind(9, picture.frames).run();
  return picture;
}

std::string History::add_input(const std::string& job, const char* what, std::string_view bytes) {
  const std::string name = job + "-" + what;
  io::ReplacingFile file(folder_ + "/inputs/" + name);
  file.write(bytes.data(), bytes.size());
  file.commit();
  return name;
}

std::vector<Picture> History::pictures_of(const std::string& job) const {
  std::vector<Picture> out;
  Statement s = db_->prepare(std::string("SELECT ") + kPictureColumns + " FROM pictures WHERE job = ? ORDER BY place");
  s.bind(1, job);
  while (s.step()) out.push_back(read_picture(s));
  return out;
}

JobRecord History::read(Statement& row) const {
  JobRecord job{.id = row.text(0), .client = row.text(1), .key = row.text(2)};
  try {
    job.request = request_of(json::parse(row.text(3)));
  } catch (const std::exception&) {
    fail<RuntimeError>("history: what job ", job.id, " asked for cannot be read");
  }
  job.priority = Priority(std::clamp<int64_t>(row.whole(4), 0, 2));
  job.state = job_state(row.text(5));
  job.created = row.number(6), job.started = row.number(7), job.ended = row.number(8);
  job.crashes = row.whole(9), job.error = row.text(10);
  job.pictures = pictures_of(job.id);
  return job;
}

std::optional<JobRecord> History::find(const std::string& id) const {
  std::lock_guard lock(mutex_);
  Statement s = db_->prepare(std::string("SELECT ") + kColumns + " FROM jobs WHERE id = ?");
  if (!s.bind(1, id).step()) return {};
  return read(s);
}

std::optional<JobRecord> History::find_key(const std::string& client, const std::string& key) const {
  std::lock_guard lock(mutex_);
  Statement s = db_->prepare(std::string("SELECT ") + kColumns + " FROM jobs WHERE client = ? AND key = ?");
  if (!s.bind(1, client).bind(2, key).step()) return {};
  return read(s);
}

std::vector<JobRecord> History::list(const JobFilter& f) const {
  std::lock_guard lock(mutex_);
  std::string sql = std::string("SELECT ") + kColumns + " FROM jobs";
  const std::string words = quoted_words(f.words);
  if (!words.empty()) sql += " JOIN words ON words.rowid = jobs.rowid AND words MATCH ?1";
  sql +=
      " WHERE (?2 IS NULL OR jobs.client = ?2) AND (?3 IS NULL OR jobs.state = ?3) AND (?4 IS NULL OR jobs.id < ?4)"
      " ORDER BY jobs.id DESC LIMIT ?5";
  Statement s = db_->prepare(sql);
  if (!words.empty()) s.bind(1, words);
  f.client ? s.bind(2, *f.client) : s.bind_null(2);
  f.state ? s.bind(3, name_of(*f.state)) : s.bind_null(3);
  f.before.empty() ? s.bind_null(4) : s.bind(4, f.before);
  s.bind(5, f.limit);
  std::vector<JobRecord> out;
  while (s.step()) out.push_back(read(s));
  return out;
}

History::Page History::pictures(const PictureFilter& f) const {
  std::lock_guard lock(mutex_);
  std::string words = quoted_words(f.words);
  std::string from = " FROM pictures JOIN jobs ON jobs.id = pictures.job";
  if (!words.empty()) words += "*", from += " JOIN words ON words.rowid = jobs.rowid AND words MATCH ?1";
  from += " WHERE (?2 IS NULL OR jobs.client = ?2) AND (?3 = 0 OR pictures.favourite)";
  auto bound = [&](Statement s) {
    if (!words.empty()) s.bind(1, words);
    f.client ? s.bind(2, *f.client) : s.bind_null(2);
    s.bind(3, int64_t(f.favourites));
    return s;
  };
  Page page;
  Statement count = bound(db_->prepare("SELECT count(*)" + from));
  if (count.step()) page.total = count.whole(0);
  Statement s = bound(db_->prepare(std::string("SELECT ") + kPictureColumns +
                                   ", jobs.id, substr(jobs.prompt, 1, 300), jobs.created" + from +
                                   " ORDER BY jobs.id DESC, pictures.place DESC LIMIT ?4 OFFSET ?5"));
  s.bind(4, f.limit).bind(5, f.offset);
  while (s.step()) page.pictures.push_back({read_picture(s), s.text(9), s.text(10), s.number(11)});
  return page;
}

std::optional<History::Found> History::find_picture(const std::string& id) const {
  std::lock_guard lock(mutex_);
  Statement s = db_->prepare(std::string("SELECT ") + kPictureColumns +
                             ", jobs.client, jobs.id FROM pictures JOIN jobs ON jobs.id = pictures.job WHERE "
                             "pictures.id = ?");
  if (!s.bind(1, id).step()) return {};
  return Found{read_picture(s), s.text(9), s.text(10)};
}

void History::set_favourite(const std::string& id, bool favourite) {
  std::lock_guard lock(mutex_);
  db_->prepare("UPDATE pictures SET favourite = ? WHERE id = ?").bind(1, int64_t(favourite)).bind(2, id).run();
}

bool History::remove_picture(const std::string& id) {
  const auto found = find_picture(id);
  if (!found) return false;
  std::lock_guard lock(mutex_);
  db_->prepare("DELETE FROM pictures WHERE id = ?").bind(1, id).run();
  std::error_code error;
  fs::remove(picture_path(found->picture), error);
  return true;
}

std::vector<JobRecord> History::recover() {
  std::lock_guard lock(mutex_);
  {
    Database::Transaction all(*db_);
    db_->execute("UPDATE jobs SET crashes = crashes + 1 WHERE state = 'running'");
    db_->prepare(
           "UPDATE jobs SET state = 'failed', ended = ?, error = 'the server went down twice while this job ran, "
           "so that it is not begun again' WHERE state = 'running' AND crashes >= 2")
        .bind(1, now())
        .run();
    db_->execute("UPDATE jobs SET state = 'waiting', started = 0 WHERE state = 'running'");
    all.commit();
  }
  std::set<std::string> files, jobs;
  Statement of = db_->prepare("SELECT file FROM pictures");
  while (of.step()) files.insert(of.text(0));
  Statement ids = db_->prepare("SELECT id FROM jobs");
  while (ids.step()) jobs.insert(ids.text(0));
  std::error_code error;
  for (auto& entry : fs::directory_iterator(folder_ + "/pictures", error))
    if (!files.count(entry.path().filename().string())) fs::remove(entry.path(), error);
  for (auto& entry : fs::directory_iterator(folder_ + "/inputs", error)) {
    const std::string name = entry.path().filename().string();
    if (!jobs.count(name.substr(0, name.find('-')))) fs::remove(entry.path(), error);
  }
  std::vector<JobRecord> waiting;
  Statement s = db_->prepare(std::string("SELECT ") + kColumns + " FROM jobs WHERE state = 'waiting' ORDER BY id");
  while (s.step()) waiting.push_back(read(s));
  return waiting;
}

int64_t History::clean(const Retention& r) {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<std::string, std::string>> gone;  // id, file
  int64_t kept = 0, bytes = 0;
  Statement s = db_->prepare(
      "SELECT pictures.id, pictures.file, pictures.bytes, jobs.ended FROM pictures JOIN jobs ON jobs.id = pictures.job "
      "WHERE pictures.favourite = 0 AND jobs.state NOT IN ('waiting', 'running') ORDER BY pictures.id DESC");
  const double oldest = r.days > 0 ? now() - r.days * 86400 : 0;
  while (s.step()) {
    ++kept, bytes += s.whole(2);
    if (s.number(3) >= oldest && (r.pictures == 0 || kept <= r.pictures) && (r.bytes == 0 || bytes <= r.bytes))
      continue;
    --kept, bytes -= s.whole(2);
    gone.emplace_back(s.text(0), s.text(1));
  }
  if (gone.empty()) return 0;
  Database::Transaction all(*db_);
  for (auto& [id, file] : gone) db_->prepare("DELETE FROM pictures WHERE id = ?").bind(1, id).run();
  if (r.days > 0)
    db_->prepare(
           "DELETE FROM jobs WHERE state NOT IN ('waiting', 'running') AND ended < ? AND id NOT IN (SELECT job FROM "
           "pictures)")
        .bind(1, oldest)
        .run();
  all.commit();
  std::error_code error;
  for (auto& [id, file] : gone) fs::remove(folder_ + "/pictures/" + file, error);
  return int64_t(gone.size());
}

std::string History::secret() const {
  const std::string path = folder_ + "/secret";
  std::string text;
  std::ifstream(path) >> text;
  if (text.size() == 64) return text;
  std::random_device random;
  char digits[9];
  text.clear();
  while (text.size() < 64) std::snprintf(digits, sizeof digits, "%08x", random()), text += digits;
  io::ReplacingFile file(path);
  fs::permissions(file.temporary(), fs::perms::owner_read | fs::perms::owner_write);
  file.write(text.data(), text.size());
  file.commit();
  return text;
}

void History::check() const {
  std::lock_guard lock(mutex_);
  db_->prepare("SELECT count(*) FROM jobs WHERE state = 'running'").step();
}

}  // namespace sf::server
