#include "scaffolding/io/hub/http.h"

#include <algorithm>
#include <cctype>

#include "scaffolding/core/version.h"

#ifdef SF_WITH_CURL
#include <curl/curl.h>
#include <dlfcn.h>
#endif

namespace sf::io {

namespace {

constexpr size_t kMaxHead = size_t(1) << 20;

std::string lower(std::string s) {
  std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return s;
}

}  // namespace

const std::string& HttpResponse::header(const std::string& name) const {
  static const std::string none;
  auto it = headers.find(name);
  return it == headers.end() ? none : it->second;
}

std::string url_origin(const std::string& url) {
  size_t colon = url.find("://");
  std::string scheme = lower(url.substr(0, colon == std::string::npos ? 0 : colon));
  SF_CHECK(scheme == "http" || scheme == "https", "url: must begin with http:// or https://, got '", printable(url),
           "'");
  std::string host = url.substr(colon + 3);
  host = host.substr(0, host.find_first_of("/?#\\"));
  if (size_t at = host.rfind('@'); at != std::string::npos) host = host.substr(at + 1);
  size_t port = host.rfind(':');
  bool has_port = port != std::string::npos && host.find(']', port) == std::string::npos;
  std::string number = has_port ? host.substr(port + 1) : "";
  if (has_port) host = host.substr(0, port);
  SF_CHECK(!host.empty(), "url: '", printable(url), "' names no host");
  return scheme + "://" + lower(host) + ":" + (!number.empty() ? number : scheme == "https" ? "443" : "80");
}

std::string url_quoted(const std::string& text, bool keep_slashes) {
  std::string out;
  for (unsigned char c : text) {
    if (std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '~' || (keep_slashes && c == '/')) {
      out += char(c);
    } else {
      out += '%';
      out += "0123456789ABCDEF"[c >> 4];
      out += "0123456789ABCDEF"[c & 15];
    }
  }
  return out;
}

#ifdef SF_WITH_CURL

namespace {

// Loaded at the first request: libcurl brings two dozen libraries with it, which nobody should wait for at the start.
struct Library {
  decltype(&curl_global_init) global_init;
  decltype(&curl_easy_init) easy_init;
  decltype(&curl_easy_cleanup) easy_cleanup;
  decltype(&curl_easy_reset) easy_reset;
  decltype(&curl_easy_perform) easy_perform;
  decltype(&curl_easy_strerror) easy_strerror;
  CURLcode (*easy_setopt)(CURL*, CURLoption, ...);
  CURLcode (*easy_getinfo)(CURL*, CURLINFO, ...);
  decltype(&curl_slist_append) slist_append;
  decltype(&curl_slist_free_all) slist_free_all;

  Library() {
    void* handle = nullptr;
    for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.4.dylib"})
      if (!handle) handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    SF_CHECK_AS(
        NotSupported, handle,
        "http: libcurl.so.4 is not on this machine, so nothing can be downloaded; install it (Debian: libcurl4)");
    auto load = [&](auto& f, const char* name) {
      f = reinterpret_cast<std::decay_t<decltype(f)>>(dlsym(handle, name));
      SF_CHECK_AS(NotSupported, f, "http: this machine's libcurl has no ", name);
    };
    load(global_init, "curl_global_init");
    load(easy_init, "curl_easy_init");
    load(easy_cleanup, "curl_easy_cleanup");
    load(easy_reset, "curl_easy_reset");
    load(easy_perform, "curl_easy_perform");
    load(easy_strerror, "curl_easy_strerror");
    load(easy_setopt, "curl_easy_setopt");
    load(easy_getinfo, "curl_easy_getinfo");
    load(slist_append, "curl_slist_append");
    load(slist_free_all, "curl_slist_free_all");
    SF_CHECK_AS(NotSupported, global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK, "http: libcurl could not be initialised");
  }
};

const Library& library() {
  static const Library loaded;
  return loaded;
}

// What libcurl's callbacks work on. Exceptions must not pass through C: they are kept, the transfer is stopped,
// and send() throws them.
struct Transfer {
  const HttpRequest& request;
  HttpResponse response;
  std::exception_ptr thrown;
  bool refused = false, too_long = false, begun = false;
  size_t head_bytes = 0;

  void head_line(std::string line) {
    head_bytes += line.size();
    SF_CHECK_AS(RuntimeError, head_bytes <= kMaxHead, "http: the answer of ", request.url, " begins with more than ",
                kMaxHead, " bytes of headers");
    while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.pop_back();
    if (line.rfind("HTTP/", 0) == 0) {  // a new answer: after "100 Continue", or a proxy's
      response.headers.clear();
      size_t space = line.find(' ');
      response.status = space == std::string::npos ? 0 : std::strtol(line.c_str() + space, nullptr, 10);
      return;
    }
    size_t colon = line.find(':');
    if (colon == std::string::npos) return;
    size_t from = line.find_first_not_of(" \t", colon + 1);
    response.headers[lower(line.substr(0, colon))] = from == std::string::npos ? "" : line.substr(from);
  }

  bool take(const char* data, size_t bytes) {
    if (response.status / 100 == 2 && request.body) {
      if (!begun && request.head) request.head(response);
      begun = true;
      return request.body(data, bytes) || (refused = true, false);
    }
    too_long = response.body.size() + bytes > request.max_body;
    if (!too_long) response.body.append(data, bytes);
    return !too_long;
  }

  template <class F> size_t guarded(size_t good, const F& f) {
    try {
      return f() ? good : 0;
    } catch (...) {
      thrown = std::current_exception();
      return 0;
    }
  }
};

size_t on_header(char* data, size_t size, size_t count, void* self) {
  return static_cast<Transfer*>(self)->guarded(size * count, [&] {
    static_cast<Transfer*>(self)->head_line(std::string(data, size * count));
    return true;
  });
}
size_t on_body(char* data, size_t size, size_t count, void* self) {
  return static_cast<Transfer*>(self)->guarded(size * count,
                                               [&] { return static_cast<Transfer*>(self)->take(data, size * count); });
}
int on_tick(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto* transfer = static_cast<Transfer*>(self);
  return transfer->guarded(1, [&] {
    if (transfer->request.tick) transfer->request.tick();
    return true;
  }) == 0;
}

}  // namespace

struct Http::Curl {
  const Library& lib = library();
  CURL* handle = lib.easy_init();
  ~Curl() { lib.easy_cleanup(handle); }
};

Http::Http() = default;
Http::~Http() = default;

HttpResponse Http::send(const HttpRequest& request) {
  url_origin(request.url);
  for (auto& line : request.headers)
    SF_CHECK(std::none_of(line.begin(), line.end(), [](unsigned char c) { return c < 32 && c != '\t'; }),
             "http: a header must be one line of text");
  if (!curl_) curl_ = std::make_unique<Curl>();
  auto& [lib, handle] = *curl_;
  SF_CHECK_AS(RuntimeError, handle, "http: libcurl has no memory for a request");
  Transfer transfer{request, {}, {}};
  curl_slist* lines = nullptr;
  std::string agent = std::string("User-Agent: scaffolding/") + version();
  lines = lib.slist_append(lines, agent.c_str());
  for (auto& line : request.headers) lines = lib.slist_append(lines, line.c_str());
  char reason[CURL_ERROR_SIZE] = "";
  bool head = request.method == "HEAD";
  lib.easy_reset(handle);  // keeps connections
  lib.easy_setopt(handle, CURLOPT_URL, request.url.c_str());
  lib.easy_setopt(handle, CURLOPT_NOBODY, head ? 1L : 0L);
  lib.easy_setopt(handle, CURLOPT_HTTPHEADER, lines);
  lib.easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
#if LIBCURL_VERSION_NUM >= 0x075500
  lib.easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  lib.easy_setopt(handle, CURLOPT_PROTOCOLS, long(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
  lib.easy_setopt(handle, CURLOPT_SSL_VERIFYPEER, 1L);
  lib.easy_setopt(handle, CURLOPT_SSL_VERIFYHOST, 2L);
  lib.easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  const double connect_timeout = request.connect_timeout > 0 ? request.connect_timeout : request.timeout;
  lib.easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, long(connect_timeout * 1000));
#if LIBCURL_VERSION_NUM >= 0x075700
  lib.easy_setopt(handle, CURLOPT_QUICK_EXIT, 1L);  // it does not wait for a name server after the timeout
#endif
  lib.easy_setopt(handle, CURLOPT_TIMEOUT_MS, head ? long(request.timeout * 1000) : 0L);
  lib.easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
  lib.easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, std::max(1L, long(request.timeout)));
  lib.easy_setopt(handle, CURLOPT_HEADERFUNCTION, &on_header);
  lib.easy_setopt(handle, CURLOPT_HEADERDATA, &transfer);
  lib.easy_setopt(handle, CURLOPT_WRITEFUNCTION, &on_body);
  lib.easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
  lib.easy_setopt(handle, CURLOPT_NOPROGRESS, request.tick ? 0L : 1L);
  lib.easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, &on_tick);
  lib.easy_setopt(handle, CURLOPT_XFERINFODATA, &transfer);
  lib.easy_setopt(handle, CURLOPT_BUFFERSIZE, 512L * 1024);
  lib.easy_setopt(handle, CURLOPT_ERRORBUFFER, reason);
  CURLcode code = lib.easy_perform(handle);
  lib.slist_free_all(lines);
  lib.easy_setopt(handle, CURLOPT_ERRORBUFFER, static_cast<char*>(nullptr));
  if (transfer.thrown) std::rethrow_exception(transfer.thrown);
  SF_CHECK_AS(RuntimeError, !transfer.too_long, "http: the answer of ", request.url, " is longer than ",
              request.max_body, " bytes");
  if (code != CURLE_OK && !transfer.refused) {
    std::string why = reason[0] ? reason : lib.easy_strerror(code);
    bool tls =
        code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_CONNECT_ERROR;
    bool no_address = code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL;
    double sent = 0;  // seconds until the request could be sent; 0: it never could
    lib.easy_getinfo(handle, CURLINFO_PRETRANSFER_TIME, &sent);
    bool nobody =
        code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY;
    bool late = code == CURLE_OPERATION_TIMEDOUT && sent == 0;
    if (tls) why += "; is the package ca-certificates installed, or does a proxy answer in the server's place?";
    throw HttpError(request.method + " " + request.url + ": " + why, !tls && !no_address, nobody, late);
  }
  char* target = nullptr;
  if (transfer.response.status / 100 == 3 && lib.easy_getinfo(handle, CURLINFO_REDIRECT_URL, &target) == CURLE_OK &&
      target)
    transfer.response.location = target;
  if (!transfer.begun && !transfer.refused && transfer.response.status / 100 == 2 && request.head)
    request.head(transfer.response);
  return std::move(transfer.response);
}

#else

struct Http::Curl {};
Http::Http() = default;
Http::~Http() = default;
HttpResponse Http::send(const HttpRequest& request) {
  fail<NotSupported>("http: this build has no libcurl, so ", request.url,
                     " cannot be asked; build with it (Debian: libcurl4-openssl-dev) or put the files into the hub's "
                     "cache folder by other means");
}

#endif

}  // namespace sf::io
