#include "scaffolding/core/fuzz_target.h"
#include "scaffolding/server/http/guard.h"

// Headers, one in a line, before a server with one token: nobody gets in who does not have it.
SF_FUZZ_TARGET(guard) {
  static const std::string token = "a-token-that-nobody-guesses";
  static const sf::server::Guard guard({.tokens = {{"one", sf::server::hash_of_token(token), false}},
                                        .loopback = true,
                                        .hosts = {"pictures.example"},
                                        .origins = {"https://page.example"},
                                        .secret = std::string(64, 'a')});
  sf::server::Request request{.method = "POST"};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (size_t at = 0; at < text.size() && request.headers.size() < 64;) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    const size_t colon = std::min(line.find(':'), line.size());
    request.headers.emplace_back(line.substr(0, colon), line.substr(std::min(colon + 1, line.size())));
    at = end + 1;
  }
  guard.check_origin(request);
  guard.cors(request);
  sf::server::Guard::is_preflight(request);
  try {
    const auto caller = guard.caller(request, sf::server::Access::User);
    if (text.find(token) == text.npos || caller.name != "one" || caller.admin) __builtin_trap();
  } catch (const sf::server::ApiError&) {}
}
