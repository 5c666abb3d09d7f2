#include <fcntl.h>
#include <poll.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scaffolding/core/error.h"
#include "scaffolding/server/jobs/database.h"
#include "scaffolding/server/unavailable.h"

namespace sf::server {

namespace {

void check(sqlite3* db, int code, const char* what) {
  if (code == SQLITE_OK || code == SQLITE_DONE || code == SQLITE_ROW) return;
  if (code == SQLITE_FULL) throw StorageFull();
  fail<RuntimeError>("history: ", what, ": ", db ? sqlite3_errmsg(db) : sqlite3_errstr(code));
}

class SqliteStatement final : public Statement::Impl {
 public:
  SqliteStatement(sqlite3* db, sqlite3_stmt* statement) : db_(db), statement_(statement) {}
  ~SqliteStatement() override { sqlite3_finalize(statement_); }
  SqliteStatement(const SqliteStatement&) = delete;
  SqliteStatement& operator=(const SqliteStatement&) = delete;

  void bind_text(int at, std::string_view text) override {
    check(db_, sqlite3_bind_text64(statement_, at, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8), "bind");
  }
  void bind_bytes(int at, std::string_view bytes) override {
    check(db_, sqlite3_bind_blob64(statement_, at, bytes.data(), bytes.size(), SQLITE_TRANSIENT), "bind");
  }
  void bind_whole(int at, int64_t value) override { check(db_, sqlite3_bind_int64(statement_, at, value), "bind"); }
  void bind_number(int at, double value) override { check(db_, sqlite3_bind_double(statement_, at, value), "bind"); }
  void bind_null(int at) override { check(db_, sqlite3_bind_null(statement_, at), "bind"); }
  bool step() override {
    const int code = sqlite3_step(statement_);
    check(db_, code, "a statement failed");
    return code == SQLITE_ROW;
  }
  void reset() override { check(db_, sqlite3_reset(statement_), "reset"); }
  std::string text(int column) const override {
    const auto* t = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return t ? std::string(t, size_t(sqlite3_column_bytes(statement_, column))) : "";
  }
  std::string bytes(int column) const override { return text(column); }
  int64_t whole(int column) const override { return sqlite3_column_int64(statement_, column); }
  double number(int column) const override { return sqlite3_column_double(statement_, column); }

 private:
  sqlite3* db_;
  sqlite3_stmt* statement_;
};

class SqliteDatabase final : public Database {
 public:
  explicit SqliteDatabase(const std::string& path) : path_(path) {
    const int code =
        sqlite3_open_v2(path.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
    try {
      check(db_, code, ("cannot open '" + path + "'").c_str());
      sqlite3_busy_timeout(db_, 5000);
      execute("PRAGMA journal_mode = WAL");
      execute("PRAGMA synchronous = FULL");
      file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
      execute("PRAGMA foreign_keys = ON");
      Statement sound = prepare("PRAGMA quick_check(1)");
      SF_CHECK_AS(RuntimeError, sound.step() && sound.text(0) == "ok", "history: '", path,
                  "' is damaged: ", sound.text(0),
                  "; move it away, and the server begins a new one beside the pictures");
    } catch (...) {
      sqlite3_close_v2(db_);
      close(file_);
      throw;
    }
  }
  ~SqliteDatabase() override {
    sqlite3_close_v2(db_);
    close(file_);  // the last of the file: SQLite's locks end with any that is closed
  }

  void execute(const char* sql) override {
    char* message = nullptr;
    const int code = sqlite3_exec(db_, sql, nullptr, nullptr, &message);
    const std::string why = message ? message : "";
    sqlite3_free(message);
    if (code == SQLITE_FULL) throw StorageFull();
    if (code != SQLITE_OK)
      fail<RuntimeError>("history: '", path_, "': ", why.empty() ? sqlite3_errstr(code) : why.c_str());
  }
  Statement prepare(std::string_view sql) override {
    check_file();
    sqlite3_stmt* s = nullptr;
    check(db_, sqlite3_prepare_v2(db_, sql.data(), int(sql.size()), &s, nullptr), "a statement cannot be prepared");
    return Statement(std::make_unique<SqliteStatement>(db_, s));
  }
  int64_t changes() const override { return sqlite3_changes64(db_); }
  Dialect dialect() const override { return Dialect::Sqlite; }
  void notify(const std::string&) override {}
  void listen() override {}
  std::vector<std::string> wait(double seconds, int wake) override {
    pollfd one{.fd = wake, .events = POLLIN, .revents = 0};
    poll(&one, 1, int(seconds * 1000));
    return {};
  }

 protected:
  void begin(OnDisk when) override {
    wait_for_disk(when == OnDisk::AtCommit);
    try {
      execute("BEGIN IMMEDIATE");
    } catch (...) {
      wait_for_disk(true);
      throw;
    }
  }
  void commit() override {
    execute("COMMIT");
    wait_for_disk(true);
  }
  void roll_back() noexcept override {
    try {
      execute("ROLLBACK");
    } catch (const sf::Error&) {}  // it was rolled back by what failed
    try {
      wait_for_disk(true);
    } catch (const sf::Error&) {}  // before the next one begins
  }

 private:
  // SQLite keeps pages in memory, and writes into a file that has no name any more: what was accepted would be gone at
  // the next start.
  void check_file() const {
    struct stat named, opened;
    char head[16] = {};
    const bool is_there = stat(path_.c_str(), &named) == 0 && fstat(file_, &opened) == 0 &&
                          named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
    SF_CHECK_AS(RuntimeError,
                is_there && pread(file_, head, sizeof head, 0) == sizeof head &&
                    std::string_view(head, sizeof head) == std::string_view("SQLite format 3", sizeof head),
                "history: '", path_, "' was ", is_there ? "overwritten" : "removed",
                " under the server; put it back, or start the server anew");
  }
  void wait_for_disk(bool waits) {  // between transactions
    if (waits == waits_) return;
    execute(waits ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL");
    waits_ = waits;
  }

  bool waits_ = true;
  sqlite3* db_ = nullptr;
  int file_ = -1;  // to look at; SQLite has its own
  std::string path_;
};

}  // namespace

std::unique_ptr<Database> open_sqlite(const std::string& path) { return std::make_unique<SqliteDatabase>(path); }

}  // namespace sf::server
