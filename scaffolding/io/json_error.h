// json_error: what nlohmann's parser says of a stranger's text, without the name of its exception and in one line.
// A function only.
#pragma once
#include <exception>
#include <string>
#include <string_view>

#include "scaffolding/core/error.h"
#include "scaffolding/core/printable.h"

namespace sf::io {

inline std::string json_error(const std::exception& error) {
  std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
  if (const size_t end = what.find("] "); what.starts_with("[json.") && end != what.npos) what.remove_prefix(end + 2);
  return printable(what);
}

}  // namespace sf::io
