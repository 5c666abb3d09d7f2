// What the history needs of a database: statements with values, transactions, errors as exceptions. SQLite
// (database.sqlite.cpp) and PostgreSQL (database.postgres.cpp, a library of its own) are behind it; the SQL is what
// both understand, with placeholders as SQLite has them: ? or ?1. One thread at a time for a Database and its
// statements. RuntimeError with the database's words where something fails, Unavailable where it does not answer.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sf::server {

class Statement {
 public:
  struct Impl {
    virtual ~Impl() = default;
    virtual void bind_text(int at, std::string_view text) = 0;
    virtual void bind_bytes(int at, std::string_view bytes) = 0;
    virtual void bind_whole(int at, int64_t value) = 0;
    virtual void bind_number(int at, double value) = 0;
    virtual void bind_null(int at) = 0;  // of a text
    virtual bool step() = 0;
    virtual void reset() = 0;
    virtual std::string text(int column) const = 0;
    virtual std::string bytes(int column) const = 0;
    virtual int64_t whole(int column) const = 0;
    virtual double number(int column) const = 0;
  };
  explicit Statement(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

  Statement& bind(int at, std::string_view text) { return impl_->bind_text(at, text), *this; }  // at: from 1
  Statement& bind(int at, int64_t value) { return impl_->bind_whole(at, value), *this; }
  Statement& bind(int at, double value) { return impl_->bind_number(at, value), *this; }
  Statement& bind_bytes(int at, std::string_view bytes) { return impl_->bind_bytes(at, bytes), *this; }
  Statement& bind_null(int at) { return impl_->bind_null(at), *this; }
  bool step() { return impl_->step(); }  // true: there is a row
  void run() {                           // to its end, and ready for other values
    while (step()) {}
    impl_->reset();
  }
  std::string text(int column) const { return impl_->text(column); }  // from 0; "" for null
  std::string bytes(int column) const { return impl_->bytes(column); }
  int64_t whole(int column) const { return impl_->whole(column); }
  double number(int column) const { return impl_->number(column); }

 private:
  std::unique_ptr<Impl> impl_;
};

enum class Dialect : uint8_t { Sqlite, Postgres };

class Database {
 public:
  virtual ~Database() = default;
  virtual void execute(const char* sql) = 0;  // several statements, without values
  virtual Statement prepare(std::string_view sql) = 0;
  virtual int64_t changes() const = 0;  // rows of the last statement
  virtual Dialect dialect() const = 0;

  // Messages to whoever listens to this database, of transactions once they are committed. At most 7 kB. SQLite has
  // nobody who would.
  virtual void notify(const std::string& message) = 0;
  virtual void listen() = 0;
  // Messages that came, at once or until `seconds` have passed or `wake`, a file descriptor, can be read.
  virtual std::vector<std::string> wait(double seconds, int wake) = 0;

  // Of one that is Soon, and of nothing else, commit() does not wait for the disk: a crash of the machine, or of the
  // database's own, may forget it. A crash of this process does not.
  enum class OnDisk : uint8_t { AtCommit, Soon };

  // Rolls back unless commit() was called.
  class Transaction {
   public:
    explicit Transaction(Database& db, OnDisk when = OnDisk::AtCommit) : db_(db) { db_.begin(when); }
    ~Transaction() {
      if (!done_) db_.roll_back();
    }
    Transaction(const Transaction&) = delete;
    Transaction& operator=(const Transaction&) = delete;
    void commit() { db_.commit(), done_ = true; }

   private:
    Database& db_;
    bool done_ = false;
  };

 protected:
  virtual void begin(OnDisk when) = 0;
  virtual void commit() = 0;
  virtual void roll_back() noexcept = 0;  // what failed may have done so already
};

// Opened, or made where it is not there; WAL, and each commit is on the disk. RuntimeError for a file that is no
// database, and for a damaged one.
std::unique_ptr<Database> open_sqlite(const std::string& path);

// A database of PostgreSQL's, in the schema `scaffolding`; address: postgresql://user@host/name. RuntimeError where it
// cannot be reached, and where libscaffolding_postgres.so is missing. Later it is connected to again by itself, and no
// statement takes longer than some seconds.
std::unique_ptr<Database> open_postgres(const std::string& address);

}  // namespace sf::server
