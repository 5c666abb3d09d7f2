// The history in PostgreSQL, by libpq. Values travel beside the SQL, never in it. Everything is asked without blocking
// and with a deadline, so that a database that is slow, stopped or behind a broken network costs seconds and says so.
#include <libpq-fe.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include "scaffolding/core/error.h"
#include "scaffolding/server/jobs/postgres_library.h"
#include "scaffolding/server/unavailable.h"

namespace sf::server {

namespace {

constexpr double kDeadline = 5;       // seconds of a statement; the database gives up a little before
constexpr double kShortDeadline = 1;  // after a failure, until one is answered: few threads wait for a dead one
constexpr double kPause = 0.5;        // seconds after a failure in which nothing is asked
constexpr int kOften = 3;             // uses from which on a statement is prepared
constexpr size_t kMostStatements = 128;
constexpr unsigned kText = 25, kWhole = 20, kNumber = 701, kBytes = 17;  // types, by PostgreSQL's numbers

double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Clear {
  void operator()(PGresult* r) const { PQclear(r); }
};
using Result = std::unique_ptr<PGresult, Clear>;

// PostgreSQL's texts are UTF-8 without NUL: what is neither becomes U+FFFD, as a stranger's search words may have.
std::string clean_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const auto c = uint8_t(text[i]);
    const size_t length = c == 0 ? 0 : c < 0x80 ? 1 : c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;
    bool good = length > 0 && i + length <= text.size();
    for (size_t k = 1; good && k < length; ++k) good = (uint8_t(text[i + k]) & 0xC0) == 0x80;
    if (good && length > 2) {
      const auto next = uint8_t(text[i + 1]);
      good = !(c == 0xE0 && next < 0xA0) && !(c == 0xED && next > 0x9F) && !(c == 0xF0 && next < 0x90) &&
             !(c == 0xF4 && next > 0x8F);
    }
    if (good) out.append(text.substr(i, length)), i += length;
    else out += "\xEF\xBF\xBD", ++i;
  }
  return out;
}

// ? and ?1 as $1, outside of quotes.
std::string with_dollars(std::string_view sql) {
  std::string out;
  int next = 1;
  bool quoted = false;
  for (size_t i = 0; i < sql.size(); ++i) {
    const char c = sql[i];
    if (c == '\'') quoted = !quoted;
    if (c != '?' || quoted) {
      out += c;
      continue;
    }
    out += '$';
    if (i + 1 < sql.size() && std::isdigit(uint8_t(sql[i + 1]))) continue;
    out += std::to_string(next++);
  }
  return out;
}

class PostgresDatabase;

class PostgresStatement final : public Statement::Impl {
 public:
  PostgresStatement(PostgresDatabase& db, std::string sql) : db_(db), sql_(std::move(sql)) {}
  void bind_text(int at, std::string_view text) override { set(at, kText, clean_text(text), false); }
  void bind_bytes(int at, std::string_view bytes) override { set(at, kBytes, std::string(bytes), true); }
  void bind_whole(int at, int64_t value) override { set(at, kWhole, std::to_string(value), false); }
  void bind_number(int at, double value) override {
    char digits[40];
    std::snprintf(digits, sizeof digits, "%.17g", value);
    set(at, kNumber, digits, false);
  }
  void bind_null(int at) override {
    set(at, kText, "", false);
    values_[size_t(at) - 1].null = true;
  }
  bool step() override;
  void reset() override { result_.reset(), row_ = -1; }
  std::string text(int column) const override {
    return {PQgetvalue(result_.get(), row_, column), size_t(PQgetlength(result_.get(), row_, column))};
  }
  std::string bytes(int column) const override {
    size_t size = 0;
    unsigned char* raw =
        PQunescapeBytea(reinterpret_cast<const unsigned char*>(PQgetvalue(result_.get(), row_, column)), &size);
    if (!raw) throw std::bad_alloc();
    std::string out(reinterpret_cast<const char*>(raw), size);
    PQfreemem(raw);
    return out;
  }
  int64_t whole(int column) const override { return std::strtoll(value(column), nullptr, 10); }
  double number(int column) const override { return std::strtod(value(column), nullptr); }

 private:
  struct Value {
    unsigned type = kText;
    std::string text;
    bool binary = false, null = false;
  };
  const char* value(int column) const { return PQgetvalue(result_.get(), row_, column); }
  void set(int at, unsigned type, std::string text, bool binary) {
    if (values_.size() < size_t(at)) values_.resize(size_t(at));
    values_[size_t(at) - 1] = {type, std::move(text), binary, false};
  }
  PostgresDatabase& db_;
  const std::string sql_;
  std::vector<Value> values_;
  Result result_;
  int row_ = -1;
};

class PostgresDatabase final : public Database {
 public:
  explicit PostgresDatabase(const std::string& address) : address_(address) {
    char* wrong = nullptr;
    PQconninfoOption* parsed = PQconninfoParse(address.c_str(), &wrong);
    const std::string why = wrong ? wrong : "";
    PQfreemem(wrong), PQconninfoFree(parsed);
    SF_CHECK(parsed, "--database: must be postgresql://user@host/name; ", trimmed(why));
    try {
      connect();
    } catch (const Unavailable& e) {
      fail<RuntimeError>("--database: ", e.what());
    }
  }
  ~PostgresDatabase() override { PQfinish(connection_); }

  void execute(const char* sql) override { run(sql, 0, nullptr, nullptr, nullptr, nullptr); }
  Statement prepare(std::string_view sql) override {
    return Statement(std::make_unique<PostgresStatement>(*this, with_dollars(sql)));
  }
  int64_t changes() const override { return changes_; }
  Dialect dialect() const override { return Dialect::Postgres; }

  void notify(const std::string& message) override {
    prepare("SELECT pg_notify('scaffolding', ?)").bind(1, message).run();
  }
  void listen() override {
    listens_ = true;
    execute("LISTEN scaffolding");
  }
  std::vector<std::string> wait(double seconds, int wake) override {
    if (heard_.empty()) {
      if (!connection_) make_sure();
      pollfd two[2] = {{.fd = PQsocket(connection_), .events = POLLIN, .revents = 0},
                       {.fd = wake, .events = POLLIN, .revents = 0}};
      poll(two, 2, int(seconds * 1000));
      if (!PQconsumeInput(connection_)) lose("the connection to the database ended");
      hear();
    }
    return std::exchange(heard_, {});
  }

  Result run(const char* sql, int values, const unsigned* types, const char* const* texts, const int* lengths,
             const int* formats) {
    make_sure();
    const std::string* name = types ? prepared(sql, values, types) : nullptr;
    const int sent = name    ? PQsendQueryPrepared(connection_, name->c_str(), values, texts, lengths, formats, 0)
                     : types ? PQsendQueryParams(connection_, sql, values, types, texts, lengths, formats, 0)
                             : PQsendQuery(connection_, sql);
    Result last = answer(sent);
    changes_ = std::strtoll(PQcmdTuples(last.get()), nullptr, 10);
    return last;
  }

 protected:
  void begin(OnDisk when) override {
    execute(when == OnDisk::AtCommit ? "BEGIN" : "BEGIN; SET LOCAL synchronous_commit = off");
    in_transaction_ = true;
  }
  void commit() override {
    execute("COMMIT");
    in_transaction_ = false;
  }
  void roll_back() noexcept override {
    // At once, also where a statement has just failed: else the connection would stay in a transaction that is void.
    const double again = std::exchange(asked_again_, 0);
    try {
      if (connection_) execute("ROLLBACK");
    } catch (const std::exception&) {
      PQfinish(connection_);  // with the connection it is gone
      connection_ = nullptr;
    }
    asked_again_ = std::max(asked_again_, again);
    in_transaction_ = false;
  }

 private:
  // What is asked often is parsed and planned once a connection. Null: it is not asked often.
  const std::string* prepared(const char* sql, int values, const unsigned* types) {
    std::string key = sql;
    for (int i = 0; i < values; ++i) key += ' ', key += std::to_string(types[i]);  // null has another than a number
    if (statements_.size() >= kMostStatements && !statements_.count(key)) return nullptr;
    Prepared& p = statements_[std::move(key)];
    if (++p.uses < kOften) return nullptr;
    if (p.name.empty()) {
      const std::string name = "statement" + std::to_string(++names_);
      answer(PQsendPrepare(connection_, name.c_str(), sql, values, types));
      p.name = name;
    }
    return &p.name;
  }

  // Of what was sent: the last result, or the first that failed.
  Result answer(int sent) {
    if (!sent) lose("the connection to the database ended");
    const double deadline = clock_seconds() + (failed_ ? kShortDeadline : kDeadline);
    Result last;
    while (true) {
      while (const int unsent = PQflush(connection_)) {
        if (unsent < 0) lose("the connection to the database ended");
        until_ready(POLLIN | POLLOUT, deadline);
        if (!PQconsumeInput(connection_)) lose("the connection to the database ended");
      }
      while (PQisBusy(connection_)) {
        until_ready(POLLIN, deadline);
        if (!PQconsumeInput(connection_)) lose("the connection to the database ended");
      }
      Result one(PQgetResult(connection_));
      if (!one) break;
      const ExecStatusType status = PQresultStatus(one.get());
      if (!last || (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)) last = std::move(one);
      else if (PQresultStatus(last.get()) == PGRES_TUPLES_OK || PQresultStatus(last.get()) == PGRES_COMMAND_OK)
        last = std::move(one);
    }
    hear();
    if (!last) lose("the connection to the database ended");
    check(last.get());
    failed_ = false;
    return last;
  }

  static std::string trimmed(std::string text) {
    for (auto& c : text)
      if (c == '\n') c = ' ';
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text;
  }

  void check(const PGresult* r) {
    const ExecStatusType status = PQresultStatus(r);
    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) return;
    const char* code = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    const std::string_view state = code ? code : "";
    // Given up for its time, a lock that another has, deadlocks; no room for another connection; stopping or starting.
    if (state == "57014" || state == "55P03" || state == "40P01" || state == "40001") {
      asked_again_ = clock_seconds() + kPause, failed_ = true;
      fail<Unavailable>("the database does not answer in time");
    }
    if (PQstatus(connection_) != CONNECTION_OK || state.empty() || state.starts_with("57P") ||
        state.starts_with("53") || state.starts_with("08") || state == "25006")
      lose(("the database does not serve now: " + trimmed(PQresultErrorMessage(r))).c_str());
    fail<RuntimeError>("history: ", trimmed(PQresultErrorMessage(r)));
  }

  [[noreturn]] void lose(const char* why) {
    const std::string text = why;
    PQfinish(connection_);
    connection_ = nullptr;
    asked_again_ = clock_seconds() + kPause, failed_ = true;
    fail<Unavailable>(text);
  }

  void until_ready(short events, double deadline) {
    const double left = deadline - clock_seconds();
    pollfd one{.fd = PQsocket(connection_), .events = events, .revents = 0};
    if (left <= 0 || poll(&one, 1, int(left * 1000) + 1) == 0)
      if (clock_seconds() >= deadline) lose("the database does not answer");
  }

  // A connection, where there is none any more: in a transaction that is lost too. One that ended while nobody asked,
  // as at a restart of the database, is noticed before it is used.
  void make_sure() {
    if (connection_ && !in_transaction_) {
      pollfd one{.fd = PQsocket(connection_), .events = POLLIN, .revents = 0};
      if (poll(&one, 1, 0) > 0 && (!PQconsumeInput(connection_) || PQstatus(connection_) != CONNECTION_OK))
        PQfinish(connection_), connection_ = nullptr;
      else hear();
    }
    if (clock_seconds() < asked_again_) fail<Unavailable>("the database does not answer");
    if (connection_) return;
    if (in_transaction_) fail<Unavailable>("the connection to the database ended");
    connect();
  }

  void connect() {
    const char* names[] = {"dbname", "application_name", "connect_timeout", "client_encoding", "options", nullptr};
    // Names that are not in this schema are not ours.
    const char* values[] = {address_.c_str(),
                            "scaffolding",
                            failed_ ? "2" : "4",  // seconds; libpq has none below two
                            "UTF8",
                            "-c statement_timeout=4500 -c lock_timeout=4000 -c search_path=scaffolding "
                            "-c idle_in_transaction_session_timeout=20000 -c client_min_messages=warning "
                            "-c standard_conforming_strings=on",
                            nullptr};
    statements_.clear();
    connection_ = PQconnectdbParams(names, values, 1);
    if (PQstatus(connection_) != CONNECTION_OK) {
      const std::string why = "cannot connect to the database: " + trimmed(PQerrorMessage(connection_));
      lose(why.c_str());
    }
    PQsetNoticeProcessor(
        connection_, [](void*, const char*) {}, nullptr);
    PQsetnonblocking(connection_, 1);
    if (listens_) execute("LISTEN scaffolding");
  }

  void hear() {
    while (PGnotify* n = PQnotifies(connection_)) {
      heard_.emplace_back(n->extra);
      PQfreemem(n);
    }
  }

  const std::string address_;
  PGconn* connection_ = nullptr;
  bool in_transaction_ = false, listens_ = false;
  bool failed_ = false;  // the last statement was not answered
  double asked_again_ = 0;
  int64_t changes_ = 0;
  std::vector<std::string> heard_;
  struct Prepared {
    int uses = 0;
    std::string name;  // "": not yet
  };
  std::map<std::string, Prepared> statements_;  // of this connection, by their texts and types
  int64_t names_ = 0;
};

bool PostgresStatement::step() {
  if (!result_) {
    std::vector<unsigned> types;
    std::vector<const char*> texts;
    std::vector<int> lengths, formats;
    for (auto& v : values_) {
      types.push_back(v.type), texts.push_back(v.null ? nullptr : v.text.c_str());
      lengths.push_back(int(v.text.size())), formats.push_back(v.binary);
    }
    static const unsigned none = 0;
    result_ = db_.run(sql_.c_str(), int(values_.size()), values_.empty() ? &none : types.data(), texts.data(),
                      lengths.data(), formats.data());
    row_ = -1;
  }
  return ++row_ < PQntuples(result_.get());
}

}  // namespace

}  // namespace sf::server

extern "C" const sf::server::PostgresLibrary* scaffolding_postgres_library() {
  static const sf::server::PostgresLibrary library{
      SF_VERSION, [](const std::string& address) -> std::unique_ptr<sf::server::Database> {
        return std::make_unique<sf::server::PostgresDatabase>(address);
      }};
  return &library;
}
