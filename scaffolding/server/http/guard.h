// Who may call: tokens, the Host and Origin that a browser names, and how often. Immutable but for the rates, which are
// locked: any thread may ask.
#pragma once
#include <chrono>
#include <mutex>
#include <optional>

#include "scaffolding/server/http/router.h"

namespace sf::server {

struct Token {
  std::string name, hash;  // SHA-256 in 64 small hexadecimal digits
  bool admin = false;
};
// A file of tokens: "name hash" or "name hash admin" a line, '#' begins a comment. ValueError naming the line.
std::vector<Token> read_tokens(const std::string& path);
std::string hash_of_token(const std::string& token);
std::string random_token();  // 256 bits from the system, in 43 letters, digits, '-' and '_'
bool is_equal_in_constant_time(std::string_view a, std::string_view b);
// HMAC (RFC 2104) with SHA-256, in hexadecimal digits; the secret too.
std::string signature(const std::string& secret, const std::string& text);

struct GuardSettings {
  std::vector<Token> tokens;
  bool loopback = true;              // what it listens on
  std::vector<std::string> hosts;    // that requests may name besides the loopback's
  std::vector<std::string> origins;  // that may call from a browser: "https://example.org"; "*" any
  double jobs_per_minute = 0;        // of each token; 0: as many as it likes
  std::string secret = {};           // signs sessions; "": there are none
};

class Guard {
 public:
  explicit Guard(GuardSettings settings) : s_(std::move(settings)) {}

  // What is wrong with a request that a page of another origin, or a name that leads here, may have sent; nothing: go
  // on. Looked at before the body is read.
  std::optional<ApiError> check_origin(const Request& request) const;
  // Who it is. ApiError 401 for a token that is none, or absent where one is needed; 403 for an admin's route.
  Caller caller(const Request& request, Access access) const;
  bool has_tokens() const { return !s_.tokens.empty(); }

  // What the cookie of that name holds for so long, as a browser's caller that has shown its token. It is good as long
  // as the file of tokens has that one. ApiError 401 for a token that is none.
  static constexpr const char* kSessionCookie = "scaffolding_session";
  static constexpr double kSessionSeconds = 30 * 86400;
  std::string session_of(const std::string& token, double now) const;

  // ApiError 429 with Retry-After where the caller has made its jobs of this minute.
  void count_job(const Caller& caller, std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now());

  // What a browser of an allowed origin has to be told, else nothing.
  Headers cors(const Request& request) const;
  static bool is_preflight(const Request& request);

 private:
  bool is_allowed_origin(std::string_view origin) const;
  const Token* token_of_session(std::string_view cookies) const;  // null: none, or of one that is over
  GuardSettings s_;
  struct Bucket {
    double left = 0;
    std::chrono::steady_clock::time_point at;
  };
  std::mutex mutex_;
  std::map<std::string, Bucket> buckets_;  // by token, of which there are few
};

}  // namespace sf::server
