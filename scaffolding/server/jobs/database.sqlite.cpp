#include <sqlite3.h>

#include "scaffolding/core/error.h"
#include "scaffolding/server/jobs/database.h"

namespace sf::server {

namespace {

void check(sqlite3* db, int code, const char* what) {
  if (code == SQLITE_OK || code == SQLITE_DONE || code == SQLITE_ROW) return;
  fail<RuntimeError>("history: ", what, ": ", db ? sqlite3_errmsg(db) : sqlite3_errstr(code));
}

}  // namespace

Statement::Statement(Statement&& other) noexcept : db_(other.db_), statement_(other.statement_) {
  other.statement_ = nullptr;
}
Statement::~Statement() { sqlite3_finalize(statement_); }

Statement& Statement::bind(int at, std::string_view text) {
  check(db_, sqlite3_bind_text64(statement_, at, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8), "bind");
  return *this;
}
Statement& Statement::bind(int at, int64_t value) {
  check(db_, sqlite3_bind_int64(statement_, at, value), "bind");
  return *this;
}
Statement& Statement::bind(int at, double value) {
  check(db_, sqlite3_bind_double(statement_, at, value), "bind");
  return *this;
}
Statement& Statement::bind_null(int at) {
  check(db_, sqlite3_bind_null(statement_, at), "bind");
  return *this;
}
bool Statement::step() {
  const int code = sqlite3_step(statement_);
  check(db_, code, "a statement failed");
  return code == SQLITE_ROW;
}
void Statement::run() {
  while (step()) {}
  check(db_, sqlite3_reset(statement_), "reset");
}
std::string Statement::text(int column) const {
  const auto* t = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return t ? std::string(t, size_t(sqlite3_column_bytes(statement_, column))) : "";
}
int64_t Statement::whole(int column) const { return sqlite3_column_int64(statement_, column); }
double Statement::number(int column) const { return sqlite3_column_double(statement_, column); }
bool Statement::is_null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }

Database::Database(const std::string& path) : path_(path) {
  const int code =
      sqlite3_open_v2(path.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  try {
    check(db_, code, ("cannot open '" + path + "'").c_str());
    sqlite3_busy_timeout(db_, 5000);
    execute("PRAGMA journal_mode = WAL");
    execute("PRAGMA synchronous = FULL");
    execute("PRAGMA foreign_keys = ON");
    Statement sound = prepare("PRAGMA quick_check(1)");
    SF_CHECK_AS(RuntimeError, sound.step() && sound.text(0) == "ok", "history: '", path,
                "' is damaged: ", sound.text(0), "; move it away, and the server begins a new one beside the pictures");
  } catch (...) {
    sqlite3_close(db_);
    throw;
  }
}

Database::~Database() { sqlite3_close(db_); }

void Database::execute(const char* sql) {
  char* message = nullptr;
  const int code = sqlite3_exec(db_, sql, nullptr, nullptr, &message);
  const std::string why = message ? message : "";
  sqlite3_free(message);
  if (code != SQLITE_OK)
    fail<RuntimeError>("history: '", path_, "': ", why.empty() ? sqlite3_errstr(code) : why.c_str());
}

Statement Database::prepare(std::string_view sql) {
  sqlite3_stmt* s = nullptr;
  check(db_, sqlite3_prepare_v2(db_, sql.data(), int(sql.size()), &s, nullptr), "a statement cannot be prepared");
  return {db_, s};
}

int64_t Database::changes() const { return sqlite3_changes64(db_); }

Database::Transaction::~Transaction() {
  if (done_) return;
  try {
    db_.execute("ROLLBACK");
  } catch (const sf::Error&) {}  // it was rolled back by what failed
}

}  // namespace sf::server
