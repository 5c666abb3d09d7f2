// What libscaffolding_postgres.so gives: the one function by which it is entered.
#pragma once
#include "scaffolding/server/jobs/database.h"

namespace sf::server {

struct PostgresLibrary {
  const char* version;  // of Scaffolding
  std::unique_ptr<Database> (*open)(const std::string& address);
};

}  // namespace sf::server

extern "C" const sf::server::PostgresLibrary* scaffolding_postgres_library();
