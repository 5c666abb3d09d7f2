// The tables of the history, of SQLite's and PostgreSQL's kind: one set, made or brought to the newest version.
#pragma once
#include "scaffolding/server/jobs/database.h"

namespace sf::server {

// where: for messages. RuntimeError where they are of a later version.
void make_tables(Database& db, const std::string& where);

// The last word may be a beginning. What FTS5 or to_tsquery takes: what a stranger writes is no expression. "" of
// nothing to look for.
std::string search_words(Dialect dialect, const std::string& text, bool is_beginning);
// What joins "jobs" with those that have ?1 in their prompt.
const char* search_join(Dialect dialect);
const char* clock_sql(Dialect dialect);  // the database's seconds since 1970, as an expression

}  // namespace sf::server
