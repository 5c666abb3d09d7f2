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

#include "scaffolding/core/error.h"
#include "scaffolding/io/disk_full.h"
#include "scaffolding/io/file.h"
#include "scaffolding/io/json.h"
#include "scaffolding/server/jobs/history_tables.h"
#include "scaffolding/server/unavailable.h"

namespace sf::server {

namespace fs = std::filesystem;

namespace {

constexpr const char* kColumns =
    "jobs.id, jobs.client, jobs.key, jobs.request, jobs.priority, jobs.state, jobs.created, jobs.started, jobs.ended, "
    "jobs.crashes, jobs.error, jobs.seconds";

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

}  // namespace

History::History(const std::string& folder, const std::string& database, double lease)
    : folder_(folder), server_(database.empty() ? "" : new_id()), lease_(lease) {
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
    db_ = is_shared() ? open_postgres(database) : open_sqlite(folder + "/history.sqlite");
    make_tables(*db_, folder);
    if (is_shared()) listener_ = open_postgres(database), listener_->listen();
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
  // In one statement: another server may be given the same key at this moment.
  Statement in = db_->prepare(
      "INSERT INTO jobs (id, client, key, request, prompt, priority, state, created, started, ended, crashes, error) "
      "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING");
  in.bind(1, job.id).bind(2, job.client);
  if (job.key.empty()) in.bind_null(3);
  else in.bind(3, job.key);
  in.bind(4, io::json_text(to_json(job.request))).bind(5, job.request.prompt).bind(6, int64_t(job.priority));
  in.bind(7, name_of(job.state)).bind(8, job.created).bind(9, job.started).bind(10, job.ended);
  in.bind(11, job.crashes).bind(12, job.error).run();
  if (db_->changes() == 0) {
    Statement known = db_->prepare(std::string("SELECT ") + kColumns + " FROM jobs WHERE client = ? AND key = ?");
    SF_CHECK_AS(RuntimeError, known.bind(1, job.client).bind(2, job.key).step(), "history: job ", job.id,
                " is there already");
    JobRecord there = read(known);
    json a = to_json(there.request), b = to_json(job.request);
    for (json* r : {&a, &b}) {
      for (const char* drawn : {"seed", "image", "mask"}) r->erase(drawn);  // which differ where they were not given
      if (r->contains("controlnet"))
        for (auto& net : (*r)["controlnet"]) net.erase("image");
    }
    SF_CHECK(a == b, "Idempotency-Key: '", job.key, "' was used for another request");
    known.run();
    return {std::move(there), false};
  }
  if (is_shared()) db_->notify(io::json_text(json{{"from", server_}, {"what", "change"}}));
  all.commit();
  return {std::move(job), true};
}

bool History::set_state(const JobRecord& job) {
  std::lock_guard lock(mutex_);
  return write_state(job);
}

bool History::write_state(const JobRecord& job) {
  Statement s = db_->prepare(
      "UPDATE jobs SET state = ?1, started = ?2, ended = ?3, error = ?4, crashes = ?5, seconds = ?6, "
      "owner = CASE WHEN ?1 = 'running' THEN owner ELSE '' END "
      "WHERE id = ?7 AND state IN ('waiting', 'running') AND owner IN ('', ?8)");
  s.bind(1, name_of(job.state)).bind(2, job.started).bind(3, job.ended).bind(4, job.error).bind(5, job.crashes);
  s.bind(6, job.seconds).bind(7, job.id).bind(8, server_).run();
  return db_->changes() > 0;
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
  if (!is_shared()) write_file("/pictures/" + picture.file, bytes);
  std::lock_guard lock(mutex_);
  Database::Transaction all(*db_);
  if (is_shared()) {
    Statement ours = db_->prepare("SELECT id FROM jobs WHERE id = ? AND state = 'running' AND owner = ? FOR UPDATE");
    SF_CHECK_AS(server::History::LeaseLost, ours.bind(1, job.id).bind(2, server_).step(), "history: job ", job.id,
                " is another server's by now");
    put_file(picture.file, bytes);
  }
  Statement in = db_->prepare(
      "INSERT INTO pictures (id, job, place, file, seed, width, height, bytes, frames) "
      "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET file = excluded.file, seed = excluded.seed, "
      "width = excluded.width, height = excluded.height, bytes = excluded.bytes, frames = excluded.frames");
  in.bind(1, picture.id).bind(2, job.id).bind(3, picture.place).bind(4, picture.file).bind(5, picture.seed);
  in.bind(6, picture.width).bind(7, picture.height).bind(8, picture.bytes).bind(9, picture.frames).run();
  if (is_over(job.state)) write_state(job);
  all.commit();
  return picture;
}

std::string History::add_input(const std::string& job, const char* what, std::string_view bytes) {
  const std::string name = job + "-" + what;
  if (is_shared()) {
    std::lock_guard lock(mutex_);
    put_file(name, bytes);
    return name;
  }
  write_file("/inputs/" + name, bytes);
  return name;
}

void History::write_file(const std::string& name, std::string_view bytes) const {
  try {
    io::ReplacingFile file(folder_ + name);
    file.write(bytes.data(), bytes.size());
    file.commit();
  } catch (const io::DiskFull&) {
    throw StorageFull();
  }
}

void History::put_file(const std::string& name, std::string_view bytes) {
  db_->prepare(
         "INSERT INTO files (name, created, bytes) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET bytes = "
         "excluded.bytes, created = excluded.created")
      .bind(1, name)
      .bind(2, now())
      .bind_bytes(3, bytes)
      .run();
}

std::optional<std::string> History::file(const char* folder, const std::string& name) const {
  if (is_shared()) {
    std::lock_guard lock(mutex_);
    Statement s = db_->prepare("SELECT bytes FROM files WHERE name = ?");
    if (!s.bind(1, name).step()) return {};
    return s.bytes(0);
  }
  std::ifstream in(folder_ + folder + name, std::ios::binary);
  if (!in) return {};
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::string History::input_bytes(const std::string& name) const {
  auto bytes = file("/inputs/", name);
  SF_CHECK_AS(RuntimeError, bytes, "history: the picture '", name, "' that a job begins with is gone");
  return std::move(*bytes);
}

std::optional<std::string> History::picture_bytes(const Picture& picture) const {
  return file("/pictures/", picture.file);
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
    job.request = request_of(io::parse_json(row.text(3)));
  } catch (const std::exception&) {
    fail<RuntimeError>("history: what job ", job.id, " asked for cannot be read");
  }
  job.priority = Priority(std::clamp<int64_t>(row.whole(4), 0, 2));
  job.state = job_state(row.text(5));
  job.created = row.number(6), job.started = row.number(7), job.ended = row.number(8);
  job.crashes = row.whole(9), job.error = row.text(10), job.seconds = row.number(11);
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
  const std::string words = search_words(db_->dialect(), f.words, false);
  if (!words.empty()) sql += search_join(db_->dialect());
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
  const std::string words = search_words(db_->dialect(), f.words, true);
  std::string from = " FROM pictures JOIN jobs ON jobs.id = pictures.job";
  if (!words.empty()) from += search_join(db_->dialect());
  from += " WHERE (?2 IS NULL OR jobs.client = ?2) AND (?3 = 0 OR pictures.favourite <> 0)";
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
  Database::Transaction all(*db_);
  db_->prepare("DELETE FROM pictures WHERE id = ?").bind(1, id).run();
  if (is_shared()) db_->prepare("DELETE FROM files WHERE name = ?").bind(1, found->picture.file).run();
  all.commit();
  std::error_code error;
  if (!is_shared()) fs::remove(picture_path(found->picture), error);
  return true;
}

std::vector<JobRecord> History::recover() {
  std::lock_guard lock(mutex_);
  if (!is_shared()) {  // else the jobs that run are other servers', until their leases end
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
  recover_files();
  std::vector<JobRecord> waiting;
  Statement s = db_->prepare(std::string("SELECT ") + kColumns + " FROM jobs WHERE state = 'waiting' ORDER BY id");
  while (s.step()) waiting.push_back(read(s));
  return waiting;
}

// Those that nothing records go.
void History::recover_files() {
  std::error_code error;
  if (is_shared()) {
    // Of an hour ago: another server may be about to add their job.
    db_->prepare("DELETE FROM files WHERE created < ? AND split_part(name, '-', 1) NOT IN (SELECT id FROM jobs)")
        .bind(1, now() - 3600)
        .run();
    db_->execute("DELETE FROM previews WHERE job NOT IN (SELECT id FROM jobs WHERE state = 'running')");
    for (auto& entry : fs::directory_iterator(folder_ + "/pictures", error))
      if (entry.path().filename().string().find(".part") != std::string::npos) fs::remove(entry.path(), error);
    return;
  }
  std::set<std::string> files, jobs;
  Statement of = db_->prepare("SELECT file FROM pictures");
  while (of.step()) files.insert(of.text(0));
  Statement ids = db_->prepare("SELECT id FROM jobs");
  while (ids.step()) jobs.insert(ids.text(0));
  for (auto& entry : fs::directory_iterator(folder_ + "/pictures", error))
    if (!files.count(entry.path().filename().string())) fs::remove(entry.path(), error);
  for (auto& entry : fs::directory_iterator(folder_ + "/inputs", error)) {
    const std::string name = entry.path().filename().string();
    if (!jobs.count(name.substr(0, name.find('-')))) fs::remove(entry.path(), error);
  }
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
  for (auto& [id, file] : gone) {
    db_->prepare("DELETE FROM pictures WHERE id = ?").bind(1, id).run();
    if (is_shared()) db_->prepare("DELETE FROM files WHERE name = ?").bind(1, file).run();
  }
  if (r.days > 0)
    db_->prepare(
           "DELETE FROM jobs WHERE state NOT IN ('waiting', 'running') AND ended < ? AND id NOT IN (SELECT job FROM "
           "pictures)")
        .bind(1, oldest)
        .run();
  all.commit();
  std::error_code error;
  if (!is_shared())
    for (auto& [id, file] : gone) fs::remove(folder_ + "/pictures/" + file, error);
  return int64_t(gone.size());
}

std::string History::secret() const {
  const std::string path = folder_ + "/secret";
  std::string text;
  if (!is_shared()) std::ifstream(path) >> text;
  if (text.size() == 64) return text;
  std::random_device random;
  char digits[9];
  text.clear();
  while (text.size() < 64) std::snprintf(digits, sizeof digits, "%08x", random()), text += digits;
  if (is_shared()) {  // the first server's is all servers'
    std::lock_guard lock(mutex_);
    db_->prepare("INSERT INTO secrets (name, value) VALUES ('server', ?) ON CONFLICT DO NOTHING").bind(1, text).run();
    Statement s = db_->prepare("SELECT value FROM secrets WHERE name = 'server'");
    SF_CHECK_AS(RuntimeError, s.step(), "history: the servers' secret is gone");
    return s.text(0);
  }
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
