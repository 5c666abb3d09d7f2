#include "scaffolding/server/http/guard.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <sstream>

#include "scaffolding/core/error.h"
#include "scaffolding/core/printable.h"
#include "scaffolding/io/base64.h"
#include "scaffolding/io/sha.h"
#include "scaffolding/server/http/url.h"

namespace sf::server {

std::string hash_of_token(const std::string& token) {
  io::Sha sha(io::Sha::Sha256);
  sha.update(token.data(), token.size());
  return sha.hex();
}

std::string random_token() {
  std::random_device random;  // the kernel's
  std::string bytes;
  while (bytes.size() < 32) {
    const uint32_t word = random();
    bytes.append(reinterpret_cast<const char*>(&word), sizeof word);
  }
  std::string out = io::to_base64(bytes);
  out.resize(out.find('='));
  std::replace(out.begin(), out.end(), '+', '-');
  std::replace(out.begin(), out.end(), '/', '_');
  return out;
}

bool is_equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char differs = 0;
  for (size_t i = 0; i < a.size(); ++i) differs = static_cast<unsigned char>(differs | (a[i] ^ b[i]));
  return differs == 0;
}

std::string signature(const std::string& secret, const std::string& text) {
  std::string inner(64, '\x36'), outer(64, '\x5c');
  for (size_t i = 0; i < std::min<size_t>(secret.size(), 64); ++i)
    inner[i] = char(inner[i] ^ secret[i]), outer[i] = char(outer[i] ^ secret[i]);
  io::Sha first(io::Sha::Sha256), second(io::Sha::Sha256);
  first.update(inner.data(), inner.size()), first.update(text.data(), text.size());
  const std::string hex = first.hex();
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes += char(std::stoi(hex.substr(i, 2), nullptr, 16));
  second.update(outer.data(), outer.size()), second.update(bytes.data(), bytes.size());
  return second.hex();
}

std::vector<Token> read_tokens(const std::string& path) {
  std::ifstream in(path);
  SF_CHECK(in, "--tokens: cannot read '", path, "'");
  std::vector<Token> out;
  size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    line = line.substr(0, line.find('#'));
    std::istringstream words(line);
    Token token;
    std::string role, more;
    if (!(words >> token.name)) continue;
    words >> token.hash >> role >> more;
    const bool hex = token.hash.size() == 64 && token.hash.find_first_not_of("0123456789abcdef") == std::string::npos;
    SF_CHECK(hex && (role.empty() || role == "admin") && more.empty(), "--tokens: line ", int64_t(number), " of '",
             path, "' must be 'name hash' or 'name hash admin' with a hash that --new-token wrote");
    for (auto& other : out)
      SF_CHECK(other.name != token.name, "--tokens: '", token.name, "' comes twice in '", path, "'");
    token.admin = role == "admin";
    out.push_back(token);
  }
  SF_CHECK(!out.empty(), "--tokens: '", path, "' has no token; --new-token NAME writes one");
  return out;
}

bool Guard::is_allowed_origin(std::string_view origin) const {
  return std::any_of(s_.origins.begin(), s_.origins.end(),
                     [&](const std::string& o) { return o == "*" || o == origin; });
}

std::optional<ApiError> Guard::check_origin(const Request& request) const {
  const std::string_view authority = request.header("host");
  const std::string host = host_of(authority);
  if (authority.empty()) return ApiError(400, "a request names its Host", "host");
  // Where everybody who reaches it may call, a page must not reach it by a name of its own that leads here.
  const bool any = has_tokens() && s_.hosts.empty() && !s_.loopback;
  const bool known = host == "localhost" || host == "127.0.0.1" || host == "[::1]" ||
                     std::find(s_.hosts.begin(), s_.hosts.end(), host) != s_.hosts.end();
  if (!any && !known)
    return ApiError(
        403,
        "this server does not go by the name '" + printable(host.substr(0, 100)) + "'; --allow-host names those it has",
        "host");
  const std::string_view origin = request.header("origin");
  if (origin.empty() || is_allowed_origin(origin)) return {};
  const size_t scheme = origin.find("://");
  if (scheme != origin.npos && origin.substr(scheme + 3) == authority) return {};
  return ApiError(403,
                  "pages of '" + printable(origin.substr(0, 100)) +
                      "' may not call this server; --allow-origin names those that may",
                  "origin");
}

std::string Guard::session_of(const std::string& token, double now) const {
  const std::string hash = hash_of_token(token), until = std::to_string(int64_t(now + kSessionSeconds));
  for (auto& t : s_.tokens)
    if (is_equal_in_constant_time(t.hash, hash) && !s_.secret.empty())
      return hash.substr(0, 16) + "." + until + "." + signature(s_.secret, "session " + hash + " " + until);
  throw ApiError(401, "there is no such token", "invalid_api_key", "token");
}

const Token* Guard::token_of_session(std::string_view cookies) const {
  const std::string name = std::string(kSessionCookie) + "=";
  while (!cookies.empty()) {
    const size_t end = std::min(cookies.find(';'), cookies.size());
    std::string_view one = cookies.substr(0, end);
    cookies.remove_prefix(std::min(end + 1, cookies.size()));
    while (one.starts_with(' ')) one.remove_prefix(1);
    if (!one.starts_with(name)) continue;
    one.remove_prefix(name.size());
    const size_t dot = one.find('.'), second = dot == one.npos ? dot : one.find('.', dot + 1);
    if (one.size() > 200 || second == one.npos) return nullptr;
    const std::string until(one.substr(dot + 1, second - dot - 1));
    if (until.empty() || until.size() > 12 || until.find_first_not_of("0123456789") != until.npos) return nullptr;
    const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    for (auto& t : s_.tokens)
      if (t.hash.starts_with(one.substr(0, dot)) && !s_.secret.empty() && std::stod(until) > now &&
          is_equal_in_constant_time(one.substr(second + 1), signature(s_.secret, "session " + t.hash + " " + until)))
        return &t;
    return nullptr;
  }
  return nullptr;
}

Caller Guard::caller(const Request& request, Access access) const {
  if (!has_tokens()) return {.name = "", .admin = true};
  std::string_view given = request.header("authorization");
  std::string token;
  auto is_scheme = [&](std::string_view name) {
    return given.size() > name.size() && std::equal(name.begin(), name.end(), given.begin(), [](char a, char b) {
             return a == (b >= 'A' && b <= 'Z' ? char(b + 32) : b);
           });
  };
  if (is_scheme("bearer ")) {
    token = given.substr(7);
  } else if (is_scheme("basic ")) {
    const std::string pair = io::from_base64(given.substr(6)).value_or("");
    token = pair.substr(std::min(pair.find(':'), pair.size()));
    if (!token.empty()) token.erase(0, 1);
  }
  const std::string hash = hash_of_token(token);
  const Token* found = nullptr;
  for (auto& t : s_.tokens)
    if (is_equal_in_constant_time(t.hash, hash)) found = &t;
  if (token.empty()) found = token_of_session(request.header("cookie"));
  if (found) {
    if (access == Access::Admin && !found->admin)
      throw ApiError(403, "this is for admins, and '" + found->name + "' is none", "forbidden");
    return {.name = found->name, .admin = found->admin};
  }
  if (access == Access::Open) return {};
  // A browser would ask for a password by itself, where the page has a form for it.
  const bool page = !request.header("x-requested-with").empty();
  throw ApiError(401, token.empty() ? "a token is needed: Authorization: Bearer TOKEN" : "there is no such token",
                 "invalid_api_key", "",
                 {{"WWW-Authenticate", page ? "Bearer" : "Bearer, Basic realm=\"scaffolding\""}});
}

void Guard::count_job(const Caller& caller, std::chrono::steady_clock::time_point now) {
  if (s_.jobs_per_minute <= 0) return;
  std::lock_guard lock(mutex_);
  auto [at, is_new] = buckets_.try_emplace(caller.name, Bucket{s_.jobs_per_minute, now});
  Bucket& b = at->second;
  const double rate = s_.jobs_per_minute / 60;  // a second
  b.left = std::min(s_.jobs_per_minute, b.left + rate * std::chrono::duration<double>(now - b.at).count());
  b.at = now;
  if (b.left < 1)
    throw ApiError(429, "too many jobs in this minute", "rate_limit_exceeded", "",
                   {{"Retry-After", std::to_string(int64_t(std::ceil((1 - b.left) / rate)))}});
  b.left -= 1;
}

bool Guard::is_preflight(const Request& request) {
  return request.method == "OPTIONS" && !request.header("origin").empty() &&
         !request.header("access-control-request-method").empty();
}

Headers Guard::cors(const Request& request) const {
  const std::string_view origin = request.header("origin");
  if (origin.empty() || !is_allowed_origin(origin)) return {};
  Headers out{{"Access-Control-Allow-Origin", std::string(origin)}, {"Vary", "Origin"}};
  if (!is_preflight(request)) return out;
  out.push_back({"Access-Control-Allow-Methods", "GET, POST, PATCH, DELETE"});
  out.push_back({"Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, Last-Event-ID"});
  out.push_back({"Access-Control-Max-Age", "600"});
  return out;
}

}  // namespace sf::server
