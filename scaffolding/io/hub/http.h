// Http: requests over libcurl, which is loaded when the first one is made. Certificates are verified; redirects are
// reported, not followed, since the caller decides who may see its token. One thread at a time;
// a connection is kept between requests.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "scaffolding/core/error.h"
#include "scaffolding/core/printable.h"

namespace sf::io {

// No answer, or one that ended early: name resolution, connection, TLS, timeouts. Worth another try,
// except TLS and addresses that are none (`again` false).
struct HttpError : RuntimeError {
  HttpError(const std::string& what, bool worth_retrying, bool no_one_there = false, bool no_connection = false)
      : RuntimeError(printable(what)), again(worth_retrying), nobody(no_one_there), late(no_connection) {}
  bool again;
  bool nobody;  // the host has no such name, or refuses the connection
  bool late;    // no connection within connect_timeout
};

struct HttpRequest {
  std::string method = "GET";  // or HEAD
  std::string url;             // http or https
  std::vector<std::string> headers = {};
  double timeout = 10;         // seconds: to connect, and without a byte; for HEAD the whole request
  double connect_timeout = 0;  // seconds, in place of it to connect; 0: the same
  std::function<bool(const char*, size_t)> body =
      {};  // of a 2xx answer, piece by piece; false ends the request. Without one: kept, up to max_body
  std::function<void(const struct HttpResponse&)> head = {};  // of a 2xx answer, before its body
  std::function<void()> tick = {};                            // called several times a second; may throw
  uint64_t max_body = uint64_t(64) << 20;
};

struct HttpResponse {
  long status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // of answers that no `body` took
  std::string location;                        // of a redirect: where to, made absolute
  const std::string& header(const std::string& name) const;
};

class Http {
 public:
  Http();
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;
  // HttpError without an answer; NotSupported in a build without libcurl's header or on a machine without the library.
  HttpResponse send(const HttpRequest& request);

 private:
  struct Curl;
  std::unique_ptr<Curl> curl_;
};

// "https://host:443" of a URL, for telling whether two are served by the same;
// ValueError unless it is http or https with a host.
std::string url_origin(const std::string& url);
std::string url_quoted(const std::string& text, bool keep_slashes);  // percent-encoded, as Python's urllib.parse.quote

}  // namespace sf::io
