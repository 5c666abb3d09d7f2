// The page to work in, served at "/": a client of our own API, embedded in the program (cmake/embedded.cmake).
#pragma once
#include <string_view>
#include <vector>

#include "scaffolding/server/http/router.h"

namespace sf::server {

struct PageFile {
  std::string_view name, text;  // "index.html"
};
const std::vector<PageFile>& page_files();

void add_page_routes(Router& router);

}  // namespace sf::server
