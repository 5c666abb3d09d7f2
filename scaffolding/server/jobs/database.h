// A thin layer over SQLite: statements with values, errors as exceptions. One thread at a time for a Database and its
// statements. RuntimeError with SQLite's words where something fails.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace sf::server {

class Statement {
 public:
  Statement(Statement&& other) noexcept;
  ~Statement();
  Statement& bind(int at, std::string_view text);  // at: from 1
  Statement& bind(int at, int64_t value);
  Statement& bind(int at, double value);
  Statement& bind_null(int at);
  bool step();                         // true: there is a row
  void run();                          // to its end, and ready for other values
  std::string text(int column) const;  // from 0; "" for null
  int64_t whole(int column) const;
  double number(int column) const;
  bool is_null(int column) const;

 private:
  friend class Database;
  Statement(sqlite3* db, sqlite3_stmt* s) : db_(db), statement_(s) {}
  sqlite3* db_;
  sqlite3_stmt* statement_;
};

class Database {
 public:
  // Opened, or made where it is not there; WAL, and each commit is on the disk. RuntimeError for a file that is no
  // database, and for a damaged one.
  explicit Database(const std::string& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  void execute(const char* sql);
  Statement prepare(std::string_view sql);
  int64_t changes() const;  // rows of the last statement

  // Rolls back unless commit() was called.
  class Transaction {
   public:
    explicit Transaction(Database& db) : db_(db) { db_.execute("BEGIN IMMEDIATE"); }
    ~Transaction();
    void commit() { db_.execute("COMMIT"), done_ = true; }

   private:
    Database& db_;
    bool done_ = false;
  };

 private:
  sqlite3* db_ = nullptr;
  std::string path_;
};

}  // namespace sf::server
