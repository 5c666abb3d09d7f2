// Targets of requests: the path and the query, decoded. Functions only.
#pragma once
#include <map>
#include <string>
#include <string_view>

namespace sf::server {

// "%20" and, in a query, "+" as a space. ValueError for a percent sign without two hexadecimal digits behind it, for a
// NUL, and for what is no UTF-8.
std::string decode_percent(std::string_view text, bool in_query = false);
std::string encode_percent(std::string_view text);  // all but letters, digits and "-._~"

struct Target {
  std::string path;  // decoded; begins with '/'
  std::map<std::string, std::string> query;
};
// Of an origin form, "/a/b?c=d". ValueError for another; of names that come twice the last counts.
Target parse_target(std::string_view target);

// "host:port" without the port and in small letters; "[::1]" keeps its brackets.
std::string host_of(std::string_view authority);

}  // namespace sf::server
