#include "scaffolding/server/jobs/history_tables.h"

#include <sstream>

#include "scaffolding/core/error.h"

namespace sf::server {

namespace {

constexpr int64_t kVersion = 3;  // of the tables

constexpr const char* kSqlite = R"(
CREATE TABLE jobs (
  id TEXT PRIMARY KEY, client TEXT NOT NULL, key TEXT, request TEXT NOT NULL, prompt TEXT NOT NULL,
  priority INTEGER NOT NULL, state TEXT NOT NULL, created REAL NOT NULL, started REAL NOT NULL, ended REAL NOT NULL,
  crashes INTEGER NOT NULL, error TEXT NOT NULL, owner TEXT NOT NULL DEFAULT '', lease REAL NOT NULL DEFAULT 0,
  cancelled INTEGER NOT NULL DEFAULT 0, seconds REAL NOT NULL DEFAULT 0);
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
PRAGMA user_version = 3;
)";
constexpr const char* kSqliteFrom1 = R"(
ALTER TABLE pictures ADD COLUMN frames INTEGER NOT NULL DEFAULT 1;
)";
constexpr const char* kSqliteFrom2 = R"(
ALTER TABLE jobs ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN lease REAL NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN cancelled INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN seconds REAL NOT NULL DEFAULT 0;
PRAGMA user_version = 3;
)";

// The same, and what is beside the database of a server that has a folder: files, its secret, previews. Words are found
// as FTS5 finds them: signs part them.
#define SF_WORDS_OF(text) "to_tsvector('simple', regexp_replace(left(" text ", 20000), '[!-/:-@\\[-`{-~]+', ' ', 'g'))"
constexpr const char* kPostgres = R"(
CREATE TABLE jobs (
  id TEXT COLLATE "C" PRIMARY KEY, client TEXT NOT NULL, key TEXT, request TEXT NOT NULL, prompt TEXT NOT NULL,
  priority BIGINT NOT NULL, state TEXT NOT NULL, created FLOAT8 NOT NULL, started FLOAT8 NOT NULL,
  ended FLOAT8 NOT NULL, crashes BIGINT NOT NULL, error TEXT NOT NULL, owner TEXT NOT NULL DEFAULT '',
  lease FLOAT8 NOT NULL DEFAULT 0, cancelled BIGINT NOT NULL DEFAULT 0, seconds FLOAT8 NOT NULL DEFAULT 0,
  words TSVECTOR GENERATED ALWAYS AS ()" SF_WORDS_OF("prompt") R"() STORED);
CREATE UNIQUE INDEX jobs_by_key ON jobs (client, key) WHERE key IS NOT NULL;
CREATE INDEX jobs_by_state ON jobs (state);
CREATE INDEX jobs_by_words ON jobs USING GIN (words);
CREATE TABLE pictures (
  id TEXT COLLATE "C" PRIMARY KEY, job TEXT COLLATE "C" NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  place BIGINT NOT NULL, file TEXT NOT NULL, seed BIGINT NOT NULL, width BIGINT NOT NULL, height BIGINT NOT NULL,
  bytes BIGINT NOT NULL, favourite BIGINT NOT NULL DEFAULT 0, frames BIGINT NOT NULL DEFAULT 1, UNIQUE (job, place));
CREATE TABLE files (name TEXT PRIMARY KEY, created FLOAT8 NOT NULL, bytes BYTEA NOT NULL);
ALTER TABLE files ALTER bytes SET STORAGE EXTERNAL;
CREATE TABLE secrets (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE UNLOGGED TABLE previews (job TEXT PRIMARY KEY, png BYTEA NOT NULL);
CREATE TABLE version (number BIGINT NOT NULL);
INSERT INTO version VALUES (3);
)";

void make_sqlite(Database& db, const std::string& where) {
  Statement version = db.prepare("PRAGMA user_version");
  version.step();
  const int64_t found = version.whole(0);
  SF_CHECK_AS(RuntimeError, found <= kVersion, "--data: '", where, "' was written by a later version");
  version.run();
  if (found == kVersion) return;
  Database::Transaction all(db);
  if (found == 0) db.execute(kSqlite);
  if (found == 1) db.execute(kSqliteFrom1);
  if (found == 1 || found == 2) db.execute(kSqliteFrom2);
  all.commit();
}

void make_postgres(Database& db) {
  Database::Transaction all(db);
  db.execute("SELECT pg_advisory_xact_lock(7315460921)");  // two servers begin at the same time
  db.execute("CREATE SCHEMA IF NOT EXISTS scaffolding");
  Statement there = db.prepare("SELECT count(*) FROM pg_tables WHERE schemaname = 'scaffolding' AND tablename = ?");
  there.bind(1, "version").step();
  if (there.whole(0) == 0) db.execute(kPostgres);
  Statement version = db.prepare("SELECT number FROM version");
  SF_CHECK_AS(RuntimeError, version.step() && version.whole(0) == kVersion,
              "--database: its tables were written by another version; servers that share one are of the same version");
  all.commit();
}

}  // namespace

void make_tables(Database& db, const std::string& where) {
  db.dialect() == Dialect::Sqlite ? make_sqlite(db, where) : make_postgres(db);
}

std::string search_words(Dialect dialect, const std::string& text, bool is_beginning) {
  const bool sqlite = dialect == Dialect::Sqlite;
  const char quote = sqlite ? '"' : '\'';
  std::string out, word;
  std::istringstream in(text);
  while (in >> word) {
    std::string quoted(1, quote);
    for (char c : word) {
      // PostgreSQL's words are parted at the same signs as those of the prompts.
      if (!sqlite && std::ispunct(uint8_t(c)) && uint8_t(c) < 0x80) c = ' ';
      quoted += c == quote ? std::string(2, c) : std::string(1, c);
    }
    out += (out.empty() ? "" : sqlite ? " " : " & ") + quoted + quote;
  }
  if (is_beginning && !out.empty()) out += sqlite ? "*" : ":*";
  return out;
}

const char* search_join(Dialect dialect) {
  return dialect == Dialect::Sqlite ? " JOIN words ON words.rowid = jobs.rowid AND words MATCH ?1"
                                    : " JOIN to_tsquery('simple', ?1) AS sought ON jobs.words @@ sought";
}

const char* clock_sql(Dialect dialect) {
  return dialect == Dialect::Sqlite ? "((julianday('now') - 2440587.5) * 86400.0)"
                                    : "extract(epoch FROM clock_timestamp())::float8";
}

}  // namespace sf::server
